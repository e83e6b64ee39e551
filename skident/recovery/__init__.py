from .saturation import FirstLayer, NotSaturatingError, find_first_layer
