"""LAPACK called from native code: the step of an op, the text of its call, and OpenBLAS's threads meanwhile."""
