"""Ways to compute an op on tiles that its maps do not say: what it reads is known at run time, or of several operands."""
