"""Kernels of piecewise linear functions along lines: activation boundaries, gradients, normals, output errors."""
