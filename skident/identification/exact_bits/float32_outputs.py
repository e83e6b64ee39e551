"""Bits of an identified network from further outputs in float32: queries, tests on new outputs, and the summary."""

import numpy as np

from .bits import LEAST_LOG10_ODDS, Bits
from .single_precision import BLOCK, bits_from_outputs, neighbors_differ
from .summation import rounded_to_single

_NEW_OUTPUTS = 13 * BLOCK  # that must all be equal: 106,496
_SPREAD = 2.0  # of their inputs, in standard deviations of the samples


def why_not_from_single(validation, format, emulate):
    """Why outputs that are not of double precision cannot determine bits; empty if they may."""
    problem, network = validation.problem, validation.network
    kind = problem.held_out.accuracy.kind
    scales = any(activation.symmetry == "homogeneous" for activation in network.activations[:-1])
    double = f"outputs of double precision determine bits, but the error of these is that of {kind}"
    if kind != "float32" or format != "float32":
        return double
    if emulate is None:
        return f"{double}; with options=IdentifierOptions(emulate='torch') bits are searched for in 10^6 of them"
    if network.output_activation != "identity" or problem.identifies_logits or len(network.weights) < 2:
        return "bits from outputs in float32 need a linear output and a hidden layer"
    if scales:
        return "the scales of ReLU units are not determined to the last bit by outputs in float32"
    return "" if validation.agrees else "the network does not agree with the outputs"


def round_from_single(problem, network, emulate):
    """The network of float32 numbers that explains all outputs in float32, and its `Bits`.

    It is the given one, and no bit is certain, unless more than 10^5 new outputs are equal to the last bit. A
    parameter is certain if both of its neighbors change some outputs.
    """
    oracle, rng = problem.oracle, problem.rng
    if emulate == "torch":
        from .torch_outputs import emulate_torch as emulate  # torch takes a second to import

    def allowed(X):
        return oracle.to_inputs(oracle.clip_to_range(oracle.from_inputs(X)))

    def query(X):
        parts = [oracle.query_inputs(X[first : first + BLOCK]) for first in range(0, len(X), BLOCK)]
        return rounded_to_single(oracle.output_center + oracle.output_scale * np.concatenate(parts))

    with problem.log.stage("bits from outputs in float32", oracle) as entry:
        found = bits_from_outputs(network, query, allowed, emulate, rng)
        drawn = _SPREAD * oracle.scale * rng.standard_normal((_NEW_OUTPUTS, network.n_inputs))
        X = rounded_to_single(allowed(oracle.center + drawn))
        equal = float(np.mean(np.asarray(emulate(found.network, X)) == query(X)))
        entry["residual"] = 1.0 - min(equal, found.equal)
    if equal < 1.0:
        reason = f"{found.equal:.3%} of the fitted outputs and {equal:.3%} of new ones are equal to the last bit"
        return network, Bits("float32", 0, network.n_parameters, 0.0, (reason,))
    certain = neighbors_differ(found)
    reasons = () if certain.all() else ("some weights have neighbors with which all outputs are the same",)
    least = LEAST_LOG10_ODDS if certain.any() else 0.0
    return found.network, Bits("float32", int(certain.sum()), certain.size, least, reasons)
