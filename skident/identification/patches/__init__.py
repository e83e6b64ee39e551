"""Where some first-layer units are free and all others stand still: the second layer by linear algebra."""
