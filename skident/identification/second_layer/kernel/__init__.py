"""Patches of input space, Taylor coefficients on them, and least squares for their coefficients."""
