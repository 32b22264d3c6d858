"""Loops that are compiled: how that is done, for the kernels of all rooms."""
