"""The algorithms of Awasthi, Tang and Vijayaraghavan as printed."""
