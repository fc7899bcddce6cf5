"""What a compiler engineer chooses among: all tilings of a kernel under constraints of one's own, with their costs."""
