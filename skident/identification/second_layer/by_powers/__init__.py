"""Second-layer units as a decomposition into powers, from Taylor coefficients of several outputs."""
