"""Units of piecewise linear networks over the layers that are known, with evidence and errors."""
