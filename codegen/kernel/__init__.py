"""The kernel: typed statements over raw buffers, of which numba source is one print, C another, LLVM's input a third."""
