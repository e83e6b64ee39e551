"""Patches of input space, Taylor coefficients on them, and the coordinates they are expressed in."""
