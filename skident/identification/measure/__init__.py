"""Every number that is measured on a piecewise linear model, with its standard error."""
