"""Piecewise linear networks: their kinks, the units that make them, and their signs.

How a black box is asked
    answers (every answer with its accuracy), rounding (what that is), windows (single kinks in short windows),
    rows (tables of arrays).
One hidden layer
    network, in view of all answers or, in_view, of some; line and line_search (kinks along lines far out), gradients
    and units (hyperplanes from them), positions (and more exactly), orientation (signs), rest (what is left over);
    hard_tanh, units of two kinks.
Any number of hidden layers
    deep_network, layer by layer: segments (kinks along many short lines), hyperplanes (the first layer), known_layers
    (what is known so far, cell by cell), facets, crossings and tracing (one unit of the next layer), same_layer (facets
    of deeper units refused), refinement and layer_units (all of them), layer_signs, completion (weights that no kink
    shows), readout (the last layer) with open_weights, judged, repair and last_look (what is missing still); of noisy
    answers local_normals and active_set.
"""
