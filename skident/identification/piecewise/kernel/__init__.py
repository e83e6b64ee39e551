"""Kernels of piecewise linear functions: output errors, activation boundaries, gradients, robust fits, signs."""
