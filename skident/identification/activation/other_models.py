"""Models that are no feedforward networks, named from their outputs: trees, neighbors, kernels, splines, and others."""

from dataclasses import dataclass

import numpy as np

from ..constants import DIRECTIONS, SAME
from ..query_points import query_block
from .growth import NOISE_SIGMAS, polynomial_degree
from .intervals import GROWING
from .jumps import find_jumps, is_piecewise_constant, spacing_of_thresholds

CLEAR = ("identity", "tanh", "erf", "relu", *GROWING)  # that no other kind of model shows
_LABEL_ROWS = 200  # rows of X whose outputs decide whether they are labels (budget)
_LABEL_SHARE = 0.1  # of distinct values among these outputs, of labels at most
_MOST_COLUMNS = 1000  # inputs whose values are counted (budget)
_DISCRETE_SHARE = 0.1  # of distinct values among the samples, of an integer or categorical column at most
_MANY = 0.5  # share of the lines with a jump, from which the outputs jump everywhere
_WIDER = 3.0  # factor by which another input is moved: the spacing of a dynamic quantization grows with it
_GROWN = 1.5  # ratio of the two spacings, of a dynamic quantization
_MOVED = 4.0  # standard deviations to which the other input is moved first
_BATCH_ROWS = 20  # rows that are queried with and without a row far away
_OUTLIER = 100.0  # standard deviations of that row
_BATCH_CHANGE = 1e-3  # relative to the outputs' deviation: summation in another order changes 1e-14, in float32 1e-6
_DEGREES = (1, 2, 3, 4, 5, 6)  # of polynomials
_LINES = 4  # near the center, on which piecewise polynomials are recognized
_POINTS = 257  # per line
_REACH = 1.5  # standard deviations of them: samples of X lie on both sides
_SPLINE_DEGREES = (2, 3)  # of the pieces
_ROUNDINGS = 32.0  # eps of the largest output by which outputs may be off
_ZERO_SHARE = 0.5  # of differences that vanish, of piecewise polynomials
_BETWEEN_SHARE = 0.05  # of differences near the rounding, of piecewise polynomials at most
_CLEAR = 30.0  # times that rounding, beyond which a difference is none
_FAR = (1e3, 1e4, 1e5)  # standard deviations of them
_FAR_HALF = (1e2, 3e2, 1e3)  # `_FAR` for float16, which ends at 65,504
_ON_RAYS = 1e-2  # change along a ray over that between rays, of outputs that are constant along rays
_GROWTH = 10.0  # spread far out over that near the center, of outputs that are linear along rays: 1e3 and more
_FADED = 1e-3  # spread far out over that near the center, of outputs that approach one constant: 1e-5 like 1/r
_WAVES = 0.03  # deviation from lines along rays over the spread near the center, of units with waves: 0.1 to 1
_STEADY = 1.5  # change of the logarithm of that deviation at a tenth of the distance: 0.3 of waves, and 2 of others
_LATER = (1.0, 1e2, 1e4)  # radii over the farthest, between which weights down to 1e-9 bend outputs
_BENDS_LATER = 0.01  # change of a slope there, over the largest
_LATE_SHARE = 0.2  # of the rays, on which units that grow bend: half of them
_ARCS = 12  # short arcs far out, on which bends are counted
_ARC_POINTS = 16  # per arc
_ARC_STEP = 1e-3  # radians between them, for changes: saturated units step at a share of them that grows with the width
_ARC_STEP_BENDS = 1e-4  # `_ARC_STEP` for bends: 1000 units bend one in sixteen; rounding of float32 hides bends on any
_SLOW = 1e-5  # change over such a step, relative to the outputs' spread, that slow saturation explains: 1e-3 / 1e4
_NEARER = 0.1  # radius over the first, at which bends are compared
_LASTING = 0.3  # bends over those there, of normalized layers: 1; of slow tails 0.1
_SPREAD_OUT = 0.5  # share of bent intervals, of outputs that bend everywhere


@dataclass(frozen=True)
class OtherModel:
    """A kind of model that is not identified: one noun, the message for the user, and what it was recognized from."""

    kind: str
    message: str
    evidence: str


def discrete_columns(X):
    """Which of the first 1,000 columns of X (n, D) take few values, as integer and categorical columns do."""
    values = np.array([len(np.unique(column)) for column in X.T[:_MOST_COLUMNS]])
    return values <= max(2, _DISCRETE_SHARE * len(X))


def recognize_labels(oracle, U, outputs):
    """`OtherModel` if the outputs of samples U (n, D) are class labels: few whole numbers in one column; else None.

    `outputs` (k, m_L) are the first ones, unscaled; 200 queries if they are whole numbers.
    """
    if outputs.shape[1] != 1 or oracle.response != "predict" or np.any(outputs != np.round(outputs)):
        return None
    Y = oracle.output_center + oracle.output_scale * oracle(U[:_LABEL_ROWS])
    values = np.unique(Y)
    if np.any(values != np.round(values)) or len(values) > max(2, _LABEL_SHARE * len(Y)):
        return None
    found = ", ".join(f"{value:g}" for value in values[:5])
    return OtherModel(
        "labels",
        f"the outputs look like class labels ({len(values)} distinct whole numbers): pass response_method='labels', or "
        "a callable that returns probabilities or scores.",
        f"{len(values)} values on {len(Y)} samples: {found}",
    )


def recognize_other_model(oracle, U, detected, rng):
    """`OtherModel` that explains outputs which no unit explains; None if it may be a network.

    U (n, D) are standardized samples, `detected` is an `ActivationEvidence`. If its activation is clear, only jumps are
    searched, which an integer column makes: 264 queries. Otherwise some 2,500, and up to 8,000 once jumps are detected.
    """
    if not detected.doubt and detected.name in CLEAR:
        return _jumping(oracle, U, rng)
    return (
        _depends_on_batch(oracle, U)
        or _jumping(oracle, U, rng)
        or _polynomial(oracle, detected, rng)
        or _late_units(oracle, detected, rng)
        or _far_out(oracle, detected, rng)
        or _slow_tails(detected)
    )


def _depends_on_batch(oracle, U):
    """A model whose output for a row depends on the other rows of a call."""
    rows = U[:_BATCH_ROWS]
    outlier = oracle.clip_to_range(_OUTLIER * np.sign(rows[:1] + 0.5))
    alone, together = oracle(rows), oracle(np.vstack([rows, outlier]))[:-1]
    change = np.abs(alone - together).max() / max(np.ptp(alone, axis=0).max(), np.finfo(float).tiny)
    error = np.max(oracle.accuracy.std / np.maximum(oracle.accuracy.output_std, np.finfo(float).tiny))
    if change <= max(_BATCH_CHANGE, 20.0 * error):
        return None
    return OtherModel(
        "batch",
        "the output of a row depends on the other rows of the call: dynamic int8 quantization, or batch normalization "
        "in training mode. Query one row per call, or the model in evaluation mode and before quantization.",
        f"with a row {_OUTLIER:g} standard deviations away, outputs of {len(rows)} others change by {change:.0e}",
    )


def _jumping(oracle, U, rng):
    """A model whose outputs jump: trees, neighbors, quantized or integer inputs."""
    noisy = oracle.accuracy.kind == "noise"  # or piecewise constant outputs
    constant = noisy and is_piecewise_constant(oracle, U, rng)
    jumps = find_jumps(oracle, U, rng, constant)
    if not len(jumps):
        return None
    constant = constant or is_piecewise_constant(oracle, U, rng)
    seen = f"jumps on {len(jumps)} of {jumps.n_lines} lines near the center"
    many = len(jumps) >= _MANY * jumps.n_lines
    discrete = {int(i) for i in np.flatnonzero(discrete_columns(U))}
    if not constant and jumps.aligned and (set(jumps.which) <= discrete or len(jumps.which) == 1):
        names = ", ".join(str(i) for i in jumps.which)
        return OtherModel(
            "integer column",
            f"the outputs jump where input {names} crosses a threshold: an integer or categorical column. Hold it "
            "fixed, and identify one network per level, with a callable of the other inputs.",
            f"{seen}, all at thresholds of input {names}",
        )
    if not many:
        return None
    grid = _grid(oracle, jumps)
    if grid is not None:
        return grid
    if constant:
        return _piecewise_constant(jumps, f"{seen}, constant between them")
    return OtherModel(
        "discontinuous",
        "the outputs jump and vary between the jumps: nearest neighbors weighted by distance, a mixture with a hard "
        "choice, or rounded inputs, and not a network of continuous units.",
        seen,
    )


def _piecewise_constant(jumps, seen):
    """Trees or neighbors, by the places of the jumps."""
    if jumps.aligned:
        return OtherModel(
            "tree ensemble",
            "the outputs are piecewise constant with thresholds of single inputs: a tree ensemble (a decision tree, "
            "forest or boosting) and not a network.",
            f"{seen}, at thresholds of inputs {jumps.which}",
        )
    return OtherModel(
        "nearest neighbors",
        "the outputs are piecewise constant and jump across oblique boundaries: nearest neighbors, labels, or units "
        "that jump, and not a network of continuous units.",
        seen,
    )


def _grid(oracle, jumps):
    """Inputs that are rounded: dynamically quantized, if the spacing follows the largest input; None if not rounded."""
    point = 0.5 * (jumps.before[0] + jumps.behind[0])
    i = jumps.inputs[0][0] if jumps.inputs[0] else 0
    j = (i + 1) % oracle.n_inputs
    near = spacing_of_thresholds(oracle, point, i, (j, _MOVED))
    if near is None:
        return None
    far = spacing_of_thresholds(oracle, point, i, (j, _WIDER * _MOVED))
    seen = f"thresholds of input {i} every {near:.2g} standard deviations"
    if far is not None and far > _GROWN * near:
        return OtherModel(
            "dynamic quantization",
            "the inputs are rounded in steps that grow with the largest input: dynamic int8 quantization. Query the "
            "model before quantization; `skident audit` compares the quantized one with it.",
            f"{seen}, {far:.2g} with input {j} {_WIDER:g} times as large",
        )
    return OtherModel(
        "rounded inputs",
        f"the model rounds its inputs: input {i} in steps of {near * oracle.scale[i]:.2g}. Query it before the "
        "rounding.",
        seen,
    )


def _polynomial(oracle, detected, rng):
    """Polynomials and splines, from differences of outputs on lines near the center."""
    growth = detected.growth.rpartition("r^")[2] if detected.growth.startswith("grows like") else ""
    std = 0.0 if oracle.accuracy.exact else float(np.max(oracle.accuracy.std))
    degree = polynomial_degree(oracle, rng, _DEGREES, std)
    if degree is not None and degree > 1 and growth == str(degree):
        return OtherModel(
            "polynomial",
            f"the outputs are a polynomial of degree {degree} in the inputs: fit it with PolynomialFeatures({degree}) "
            "and LinearRegression.",
            f"grows like r^{degree}; differences of order {degree + 1} vanish",
        )
    if not oracle.accuracy.exact:
        return None
    spline = _piece_degree(oracle, rng)
    if spline is None:
        return None
    return OtherModel(
        "spline",
        f"the outputs are piecewise polynomials of degree {spline}: a spline, and not a network with a supported "
        "activation.",
        f"differences of order {spline + 1} vanish on most of {_LINES} lines near the center",
    )


def _near_lines(oracle, rng):
    """Outputs (lines, points, m_L) on lines near the center, and the rounding of each."""
    start, direction = rng.standard_normal((2, _LINES, 1, oracle.n_inputs))
    t = _REACH * np.linspace(-1.0, 1.0, _POINTS)[None, :, None]
    Y = query_block(oracle, oracle.clip_to_range((0.5 * start + t * direction).reshape(-1, oracle.n_inputs)))
    Y = Y.reshape(_LINES, _POINTS, -1)
    offset = np.abs(oracle.output_center / oracle.output_scale)
    return Y, _ROUNDINGS * np.finfo(float).eps * (np.abs(Y).max(axis=(0, 1)) + offset)


def _piece_degree(oracle, rng):
    """Degree of the pieces of a spline, two or three; None for other outputs."""
    Y, rounding = _near_lines(oracle, rng)
    if np.mean(np.all(np.abs(np.diff(Y, 2, axis=1)) <= 4.0 * rounding, axis=2)) > 1.0 - _ZERO_SHARE:
        return None  # piecewise linear
    for degree in _SPLINE_DEGREES:
        differences, tol = np.abs(np.diff(Y, degree + 1, axis=1)), 2.0 ** (degree + 1) * rounding
        zero, clear = np.all(differences <= tol, axis=2), np.any(differences > _CLEAR * tol, axis=2)
        between = 1.0 - np.mean(zero | clear)
        if np.mean(zero) > _ZERO_SHARE and clear.any() and between < _BETWEEN_SHARE:
            return degree
    return None


_WAVY = OtherModel(
    "periodic units",
    "far out the outputs oscillate about a function that is linear along rays: units with a periodic part, such as "
    "z + sin(z), which are not identified.",
    "outputs on rays",
)


def _far_out(oracle, detected, rng):
    """Local kernels, which are constant far out, and normalized layers, which are constant along rays."""
    E = rng.standard_normal((DIRECTIONS, oracle.n_inputs))
    radii = _FAR_HALF if oracle.precision.kind == "float16" else _FAR
    near = oracle(E)
    Y = query_block(oracle, np.array(radii)[:, None, None] * E)
    error = float(np.max(oracle.accuracy.std)) * 10.0
    slow = detected.growth.startswith("settles like")
    constant, spread_near = Y[-1] if slow else Y.reshape(-1, Y.shape[2]), np.ptp(near, axis=0).max()
    if np.ptp(constant, axis=0).max() <= max((_FADED if slow else SAME) * spread_near, error):
        return _local_kernel(oracle, rng)
    rounding = np.finfo(float).eps * np.abs(Y).max(axis=(0, 1))
    spread = np.maximum(np.maximum(np.ptp(Y[-1], axis=0), rounding), np.finfo(float).tiny)
    moving = np.any(Y != Y[0], axis=0)  # outputs cut at 0 rest along half of the rays
    moves = [np.median((np.abs(Y[k + 1] - Y[k]) / spread)[moving]) if moving.any() else 0.0 for k in (0, 1)]
    size = np.abs(Y[-1]).max() * float(oracle.accuracy.eps) * _ROUNDINGS + error
    on_rays = moves[1] < _ON_RAYS and moves[1] < 0.5 * moves[0] + size / spread.max()
    grows, off = np.ptp(Y[-1], axis=0).max() > _GROWTH * spread_near, _off_lines(Y, radii)
    linear = grows and off < _ON_RAYS * np.abs(Y[1] - Y[0]).max()
    if linear and not on_rays and off > max(_WAVES * spread_near, error):
        nearer = _NEARER * np.array(radii)
        before = _off_lines(query_block(oracle, nearer[:, None, None] * E), nearer)
        return _WAVY if abs(np.log(off / before)) < _STEADY else None
    if not (on_rays or linear) or _bent_share(oracle, radii[2 if on_rays else 1], on_rays, rng) < _SPREAD_OUT:
        return None
    behavior = "constant along rays" if on_rays else "linear along rays"
    return OtherModel(
        "normalized layers",
        f"far out the outputs are {behavior} and curved between them: LayerNorm or another normalization of each row "
        "(a transformer layer), which is not identified.",
        f"outputs up to {radii[-1]:g} standard deviations, and on {_ARCS} short arcs",
    )


def _late_units(oracle, detected, rng):
    """Units that still bend beyond the farthest inputs of other queries: their weights are too small to detect."""
    if oracle.precision.kind == "float16" or not detected.grows_linearly:
        return None
    radii = _FAR[-1] * np.array(_LATER)
    Y = query_block(oracle, radii[:, None, None] * rng.standard_normal((DIRECTIONS, oracle.n_inputs)))
    slopes = np.diff(Y, axis=0) / np.diff(radii)[:, None, None]
    error = _ROUNDINGS * oracle.accuracy.eps * np.abs(Y[:2]).max() + NOISE_SIGMAS * float(np.max(oracle.accuracy.std))
    rounding = error / radii[0]
    changed = np.abs(slopes[1] - slopes[0]) > _BENDS_LATER * np.abs(slopes[0]).max(axis=0) + rounding
    if np.mean(np.any(changed, axis=1)) < _LATE_SHARE:
        return None
    return OtherModel(
        "late units",
        f"the outputs bend beyond {_FAR[-1]:g} standard deviations of X: units with weights below "
        f"{1.0 / _FAR[-1]:g} per standard deviation, which vary far from X. If all units are such, pass samples "
        "of that size, as in fit(1e6 * X).",
        f"slopes on rays, up to {radii[-1]:g} standard deviations",
    )


def _off_lines(Y, radii):
    """Median deviation of outputs Y (3, n, m_L) at three radii from lines along the rays."""
    slopes = (Y[2] - Y[1]) / (radii[2] - radii[1])
    return float(np.median(np.abs(slopes * (radii[1] - radii[0]) - (Y[1] - Y[0]))))


def _slow_tails(detected):
    """Units that approach their limits as powers of the distance do, so that none is constant where another changes."""
    if not detected.growth.startswith("settles like"):
        return None
    return OtherModel(
        "slow tails",
        f"far out the outputs approach constants like {detected.growth.rpartition(' ')[2]} of the distance r: units "
        "with slow tails, such as softsign z / (1 + |z|) or arctan, which are not identified.",
        f"outputs {detected.growth} along rays",
    )


def _local_kernel(oracle, rng):
    """What kind of model has outputs that are constant far out, unless they are piecewise linear near the center."""
    Y, rounding = _near_lines(oracle, rng)
    straight = np.mean(np.all(np.abs(np.diff(Y, 2, axis=1)) <= 4.0 * rounding, axis=2))
    if straight > 1.0 - _ZERO_SHARE:
        return None
    return OtherModel(
        "local kernel",
        "the outputs are one constant far out in all directions: a local kernel (support vectors or a Gaussian process "
        "with an RBF kernel), or units that all saturate on one side.",
        f"{DIRECTIONS} directions",
    )


def _bent_share(oracle, radius, on_rays, rng):
    """Share of intervals on short arcs far out on which outputs that are constant on rays change, or others bend."""
    a, b = rng.standard_normal((2, _ARCS, 1, oracle.n_inputs))
    order, step = (1, _ARC_STEP) if on_rays else (2, _ARC_STEP_BENDS)
    angle = step * np.arange(_ARC_POINTS)[None, :, None]
    chords = a + angle * b  # piecewise linear outputs are straight on them
    Y = query_block(oracle, radius * chords)
    # Errors of rounded products grow with the inputs, also where the outputs' format does not show it.
    rounding = _ROUNDINGS * oracle.accuracy.eps * np.abs(Y).max() + 10.0 * radius * float(np.max(oracle.accuracy.std))
    if on_rays:  # units that saturate slowly, as arctan, change by such a step over the radius
        rounding = max(rounding, _SLOW * float(np.ptp(Y)))
    changes = np.abs(np.diff(Y, order, axis=1))
    bent = changes > 2.0**order * rounding
    if not on_rays:  # bends of slow tails fade with the radius
        bent &= changes > _LASTING * np.abs(np.diff(query_block(oracle, _NEARER * radius * chords), order, axis=1))
    return float(np.mean(np.any(bent, axis=2)))
