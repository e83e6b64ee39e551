"""Entangled weights from Hessians near a point, and their completion to a network (Fiedler et al. 2021)."""
