"""Networks with two hidden layers of tanh, sigmoid or erf units: the second layer, given an exact first one.

``f(x) = V^T g(W2^T h + c) + v`` with ``h = g(z + correction)`` and ``z = W1^T x + b``: first-layer directions and
weight norms are exact, biases are known up to a correction per unit.

Free unit: not saturated on the patch or region at hand. Patch: points where the same units are free and all others are
constant. Saturation region: all units except free ones are saturated with fixed signs. Center output:
``g(correction)``, the output of a first-layer unit at ``z = 0``.
"""
