"""Two hidden layers behind the first, from derivatives by its outputs."""
