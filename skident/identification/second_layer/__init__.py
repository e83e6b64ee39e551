"""Networks with two hidden layers of tanh, sigmoid or erf units: the second layer by linear algebra on patches.

A patch is a part of input space where some first-layer units are free (not saturated) and all others are constant.
"""
