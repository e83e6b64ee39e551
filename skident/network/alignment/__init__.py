"""Torch modules rearranged to match each other.

What may be moved
    graph (the module traced), operations and layers (what each operation does with units), units (spaces of units,
    factors of their values, blocks of tensors), symmetry (blocks moved; standard scales).
Where it is moved
    matching (by weights), answers (by what units answer on inputs), modules (`align_modules`).
"""
