"""ReLU networks of many layers with several outputs, from one set of critical points for all layers.

Jacobians that critical points share give a normal for each critical point of a few lines. A unit of the next layer is
linear in the outputs of the known layers, so critical points of one unit, in different linear regions, determine it.
"""
