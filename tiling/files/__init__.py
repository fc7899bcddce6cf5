"""Plans as files, and loops in the words of other compilers."""
