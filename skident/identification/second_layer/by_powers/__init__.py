"""The second layer from Taylor coefficients on patches, which are sums of powers of its weights at the free units."""
