"""Align two torch modules: permute, flip and rescale the units of one to match the other.

Steps: trace both modules and find the units that may be permuted together (`graph`, `layers`, `operations`, `units`);
cut their tensors into blocks that move with these units (`blocks`, `symmetry`); match the units by weights (`matching`,
`signs`) or by their outputs (`unit_outputs`). `modules` has the public function.
"""
