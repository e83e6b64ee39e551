"""Piecewise linear networks from their activation boundaries: ReLU, leaky ReLU and hard tanh.

kernel: the error of the outputs, scans along lines, boundaries located in windows, gradients, robust fits, signs.
shallow: one hidden layer, from boundaries on lines far out that cross every hyperplane.
deep: any number of hidden layers, one after the other. The first layer are the hyperplanes; a unit of a further layer
is followed from facet to facet of its boundary, on which the layers before are linear.
"""
