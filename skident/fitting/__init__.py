"""Fits of networks to answers: one fit, many starts, pruning, polish, standard errors."""
