"""Saturating first layers: their units from steps of the outputs far away, and the network downstream of them."""
