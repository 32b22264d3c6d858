"""Kernels over columns of events and rows of matrices, without runs: order, packing, look-ahead."""
