"""Networks of smooth units that saturate: the layers after the first one from faces of the cube of its outputs."""
