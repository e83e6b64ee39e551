"""Near a point: entangled weights from Hessians, and what completes them (Fiedler et al., Algorithms 1 to 5)."""
