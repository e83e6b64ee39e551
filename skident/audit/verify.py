"""A black box compared with a network whose weights are known."""

import numpy as np
from sklearn.utils import check_random_state

from skident.base.checked_data import checked_samples
from skident.oracle import Oracle
from skident.oracle.black_box import adapt, called_as, check_columns, same_onnx_model

from .causes import causes_in_calls, causes_of, quantized_cause
from .explanations import explain_differences
from .inputs import InputBox
from .quantized import quantized_copy
from .queries import FEWEST_ROWS, Queries
from .reference import Reference, in_single, method_of
from .report import IDENTICAL, AuditReport, Difference

_CHANGE = 0.01  # relative change of one weight that an audit must be able to detect
_LEAST_POWER = 0.01  # share of the weights for which it must: if for fewer, most other networks would pass as it
_LARGE_SHARE = 0.25  # of the outputs' deviation: a network that explains them to this tolerance is one of many
_ROUNDED = 2.0**-20  # relative change of a weight that may be its rounding to float32: 16 of its roundings
_VISIBLE_MARGIN = 1.5  # of the effect of a change that counts as visible, over the tolerance


def verify_same(black_box, network, X, *, tol=None, max_queries=None, response_method="auto", random_state=None):
    """Compare a black box with a network whose weights are known, and name the weights that differ.

    Outputs are compared at inputs chosen for it within the range of X: for every hidden unit some at which a change of
    it shows most and some at which it rests, and others. Rows of X are queried too: all of them, or 5,000 at random.
    Columns of integers, or with few values, are queried at such values. Outputs are the same if none differs by more
    than two evaluations of the same network may, in the number format of the outputs. If they are not, the fewest
    changes are searched for that explain the outputs: one weight, one unit removed, weights of one unit, then any
    weights. Hidden units in another order, with other signs or scales that leave the function as it is, make no
    difference.

    Parameters
    ----------
    black_box : callable, fitted estimator, torch.nn.Module, FeedforwardNetwork or path of an ``.onnx`` file
        Queried as it is; one row at a time if its outputs depend on the other rows of a batch, as those of dynamically
        quantized models do. A torch module is queried in double precision. If its weights are in single precision, and
        those of `network` are not, it is the same if it is to within their rounding. A callable does not state it: one
        that computes in double precision with weights rounded to single is different, unless `tol` allows for it
        (1e-5 or so).
    network : FeedforwardNetwork, torch.nn.Module, fitted estimator or path of an ``.onnx`` file
        With known weights, see `skident.oracle.black_box.known_network`. The tolerance includes the rounding of weights
        to float32 on three conditions. The weights are float32 numbers, and those of the black box are not, or unknown.
        Hardly any output agrees in double precision. No change of one weight or unit explains the differences. An ONNX
        file with other operators (a quantized model) has only a copy of itself as its equal, which is not queried.
    X : array-like of shape (n_samples, D)
        Where the black box is used: queries stay within the range of every column. Of a DataFrame, the black box gets
        the columns by name, and they must be those that `network` was fitted with, if it was fitted with names.
    tol : float, default=None
        Largest difference, over the standard deviation of that output's outputs, that still counts as the same.
        None: only what rounding explains, or the noise that was measured.
    max_queries : int, default=None
        Queries at most. None: the rows of X, up to 5,000, and twice as many outputs as the network has parameters,
        ``2 P / m_L`` rows (24 at least).
    response_method : {"auto", "predict", "predict_proba"}, default="auto"
        ``predict_proba`` compares class probabilities, of two classes also those of the second alone. ``auto`` does so
        if the black box or the reference is a classifier (also an ONNX file that ends in a softmax), or if the outputs
        are probabilities and nearer to the reference's than to its logits. Then logits are different: the report names
        the missing softmax.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    AuditReport
        Its `same` is None if the audit is undecided: outputs agree, but a change of 1 % would have been detected for
        fewer than 1 % of the weights, or the tolerance is above a quarter of the outputs' standard deviation. A `tol`
        that is wider than precision and noise decides.

    Raises
    ------
    ValueError
        If X is not finite or has another number of columns than the network has inputs, the black box has another
        number of outputs, `tol` is not positive and finite, or `max_queries` is below 16.
    TypeError
        If `network` has no known weights.
    BlackBoxError
        (a ValueError) If the black box fails, or changes during the audit, or its probabilities do not sum to 1.

    Notes
    -----
    Source: sensitivities are those of Proposition 2 of Fiedler et al. (2021); the search for several weights is
    orthogonal matching pursuit (Tropp and Gilbert, 2007). A change that is smaller than what rounding leaves, of a
    unit that rests within the range of X, or in a direction in which X does not vary, cannot be detected; the report
    counts these. Cost: ``O((q + c) m_L P)`` operations for q queries and c = 4 q candidates; if k weights differ,
    ``O(P k^2)`` more: seconds for 100 of 10 000 weights, half a minute and more for 200 of 20 000.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.audit import verify_same
    >>> from skident.datasets import make_network
    >>> network = make_network((6, 8, 4, 2), random_state=0)
    >>> weights = [np.array(W) for W in network.weights]
    >>> weights[1][5, 2] *= 1 + 1e-6
    >>> X = np.random.default_rng(0).standard_normal((100, 6))
    >>> report = verify_same(
    ...     network.with_parameters(weights, network.biases), network, X, random_state=0
    ... )
    >>> print(report.same, report.differences[0].name)
    False weights[1][5, 2]
    """
    _check_options(tol, max_queries, response_method)
    if same_onnx_model(black_box, network):
        return _identical(checked_samples(X))
    called, reference = called_as(black_box, X), Reference.of(network, black_box, response_method)
    check_columns(network, X)
    X = checked_samples(X)
    if X.shape[1] != reference.network.n_inputs:
        raise ValueError(f"X has {X.shape[1]} features, but the network has {reference.network.n_inputs} inputs.")
    rng = check_random_state(random_state)
    copied, called = quantized_copy(called, reference.network)
    oracle = Oracle(adapt(called, method_of(black_box, response_method)), X.shape[1])
    queries = Queries(oracle, reference, X, tol, max_queries)
    queries.first(rng)
    found, causes = _explained(queries, rng) if copied is None else (None, [quantized_cause(queries, copied)])
    if not (causes and queries.kind == "noise"):
        queries.check_drift()
    return _report(queries, found, causes)


def _check_options(tol, max_queries, response_method):
    if response_method not in ("auto", "predict", "predict_proba"):
        raise ValueError(f"response_method must be 'auto', 'predict' or 'predict_proba', got {response_method!r}.")
    if tol is not None and not 0.0 < tol < np.inf:
        raise ValueError(
            f"tol must be positive and finite, got {tol!r}: the largest difference of an output, over its standard "
            "deviation, that does not matter. Omit it to allow only what rounding or noise explains."
        )
    if max_queries is not None and max_queries < FEWEST_ROWS:
        raise ValueError(f"max_queries must be at least {FEWEST_ROWS}, got {max_queries!r}.")


def _explained(queries, rng):
    """`Explanation` of the differences, or None without one, and their ordinary causes."""
    found, causes = None, causes_in_calls(queries)
    if causes:
        return None, causes
    if queries.excess > 1.0 and queries.weights_may_be_rounded:
        found = explain_differences(*queries.to_explain(), several=False)
        if _is_rounding(queries, found):
            queries.allow_float32()
            found = None
    if queries.excess > 1.0:
        queries.check_cast()
    if queries.excess <= 1.0:
        return None, []
    if found is None:
        found = explain_differences(*queries.to_explain(), several=False)
    if len(found.named) != 1:
        causes = causes_of(queries, rng)
        if causes and causes[0].explains:
            return None, causes
    if found.kind == "none" and not queries.batch_dependent:
        queries.more(rng)  # quantization changes more weights than the search allows
        found = explain_differences(*queries.to_explain())
    return found, causes


def _is_rounding(queries, found):
    """Whether differences come from float32 weights.

    If one weight or unit explains all of them, it changes within its rounding; else hardly any output agrees.
    """
    changes = _differences(queries.network, found)
    if not changes:
        return not queries.agree_in_part()
    return all(abs(d.found - d.known) <= _ROUNDED * abs(d.known) for d in changes)


def _identical(X):
    """The report on two files with the same model, of whichever operators."""
    return AuditReport(same=True, input=X[0], kind=IDENTICAL, constant_columns=InputBox.of(X).constant)


def _verdict(queries, visible):
    """True, False, or None if agreement has no power: if the outputs of other networks would agree as well."""
    if queries.lacks_softmax:
        return False
    if not np.isfinite(queries.tolerance).any():
        return None
    if queries.excess > 1.0 or queries.tolerance_is_chosen:
        return bool(queries.excess <= 1.0)
    sizes = np.concatenate([v.ravel() for v in visible])
    sizes = sizes[np.isfinite(sizes)]
    detected = np.mean(sizes <= _CHANGE) if len(sizes) else 0.0
    return None if detected < _LEAST_POWER or queries.shares.min() > _LARGE_SHARE else True


def _report(queries, found, causes):
    """The result of the comparison, in the terms of the network as it was given."""
    network, effects = queries.network, queries.effects()
    worst = np.unravel_index(np.argmax(queries.excesses), queries.excesses.shape)
    with np.errstate(divide="ignore"):
        visible = [_VISIBLE_MARGIN / (e * np.abs(a)) for e, a in zip(effects.largest(), effects.layers, strict=True)]
    for sizes, layer in zip(visible, effects.layers, strict=True):
        sizes[layer == 0] = np.nan
    differences = [] if found is None else _differences(network, found)
    same = _verdict(queries, visible)
    return AuditReport(
        same=same,
        differences=differences,
        causes=causes if not differences else [],
        instead=[] if found is None else [_difference(network, name, np.nan) for name in found.also],
        largest=float(queries.gaps[worst]),
        excess=queries.excess,
        input=queries.X[worst[0]],
        kind=queries.kind,
        n_queries=queries.n_queries,
        n_inputs=len(queries.X),
        unseen_units=queries.unseen,
        constant_columns=queries.box.constant,
        visible=visible,
        excesses=queries.excesses,
        relative_tolerance=float(queries.shares.max()),
        batch_dependent=queries.batch_dependent,
        casts_inputs=queries.casts_inputs,
        data_rows=queries.data_rows,
        bits=_bits(effects.layers, visible) if same else None,
    )


def _bits(layers, visible):
    """How many weights other than 0 would have shown a change of their last bit, and of how many; None off float32."""
    if not in_single(layers):
        return None
    values = np.concatenate([layer.ravel() for layer in layers])
    sizes = np.concatenate([v.ravel() for v in visible])[values != 0.0]
    values = np.abs(values[values != 0.0])
    return int(np.sum(sizes <= np.spacing(values.astype(np.float32)) / values)), len(values)


def _differences(network, found):
    if found.kind == "none":
        return []
    if found.kind == "removed":
        layer, _, unit = found.named[0]
        return [Difference(layer, None, unit, np.nan, np.nan, removed=True)]
    return [_difference(network, name, value) for name, value in zip(found.named, found.values, strict=True)]


def _difference(network, name, value):
    layer, row, unit = name
    W, b = network.weights[layer], network.biases[layer]
    if row == len(W):
        return Difference(layer, None, unit, float(b[unit]), float(value))
    return Difference(layer, row, unit, float(W[row, unit]), float(value))
