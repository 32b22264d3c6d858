"""How loops are compiled, for the kernels of all folders."""
