"""Fits of networks to samples: least squares, many starts, pruning, polish, standard errors."""
