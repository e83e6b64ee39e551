"""The span of the first layer's weights: outputs do not depend on inputs orthogonal to it."""

from dataclasses import dataclass, replace

import numpy as np

from skident.budget.constants import EPS, ROUNDS, TINY
from skident.fitting.design import design_points
from skident.fitting.errors_of_fit import FitSample
from skident.linalg import lapack, svd
from skident.network import get_activation
from skident.oracle import OutOfBudgetError

from ..attempt import relative_to_deviation
from ..piecewise.several_outputs.shared_jacobians import Space, jacobians_at

_RADII = (1.0, 10.0, 3.0, 100.0, 30.0)  # standard deviations of random points: units that rest near the center act far
_CLEARLY = 10.0  # errors from which a difference of outputs is none
_NARROW = 0.4  # dimension over that of the inputs up to which gradients cost less than they save
_NARROW_DEEP = 0.85  # `_NARROW` of several hidden layers
_SHARP = 1e-2  # error of a direction from which it is none: outputs would decide nothing about those outside of it
_MANY_INPUTS = 50  # from which it saves more than its checks cost
_MANY_INPUTS_DEEP = 10  # `_MANY_INPUTS` of several hidden layers
_CHECKS = 100  # points whose outputs must be those of their projections: a unit active at 5 % of them is not missed
_LIMIT = 1e3  # standard deviations at which bends are those of units without biases
_NEAR_LIMIT = 0.2  # difference of bends from these, over their size, up to which most boundaries are met at a distance
_POOL = 60  # points for one of which the derivatives by the first layer are independent (no queries)
_MORE_POINTS = 1.2  # outputs per direction over units of the first layer, at most (budget)
_DETERMINED = 1e-2  # smallest singular value, columns scaled to norm 1, of points that determine all units
_OUTSIDE = 1e3  # step outside of the span, in units of the inputs: units hardly change, rounding is divided by it
_CONVERGED = 1e-13  # error of outputs over their deviation that is rounding


@dataclass(frozen=True)
class FirstLayerSpan:
    """The problem in coordinates of an orthonormal `basis` (D, r) of the span of the first layer's weights.

    Their unit is a distance that is large beside the biases: boundaries may lie far outside of samples of many inputs.

    It is exactly a network with first weights ``basis^T W``, however accurate the basis is; `invert` corrects what it
    leaves outside. About ``r / m_L`` gradients with D + 1 queries each, and ``1.2 m_1 / m_L`` with D afterwards.
    """

    basis: np.ndarray
    unit: float = 1.0

    def __str__(self):
        return f"span of the first layer ({self.basis.shape[1]} of {len(self.basis)} inputs)"

    @classmethod
    def accepts(cls, problem, deep=False):
        """The span of a model with exact outputs that may be queried anywhere, if it is narrow.

        `deep`: several hidden layers are known to exist, whose search costs more.
        """
        oracle, options = problem.oracle, problem.options
        many, narrow = (_MANY_INPUTS_DEEP, _NARROW_DEEP) if deep else (_MANY_INPUTS, _NARROW)
        given = problem.pipeline.first or options.strategy != "auto" or problem.prediction is not None
        limited = oracle.n_inputs < many or oracle.input_range is not None or oracle.output_bounds is not None
        limited |= problem.activations[1] != "identity"
        limited |= get_activation(problem.activations[0]).saturating  # steps on large circles show their units for less
        if given or limited or not oracle.accuracy.exact or oracle.precision.is_coarse_binary:
            return None
        with problem.log.stage("span of the first layer (gradients)", oracle):
            unit = _unit(oracle, problem.rng)
            basis = _Span(oracle, problem.rng, not get_activation(problem.activations[0]).curved).basis(unit, narrow)
            return None if basis is None else cls(basis, unit)

    def apply(self, problem):
        """The problem in coordinates of the basis."""
        oracle, held_out = problem.oracle.within(self.unit * self.basis), problem.held_out
        inputs = held_out.inputs[::2] @ self.basis / self.unit
        inputs[len(inputs) // 2 :] = problem.rng.standard_normal(inputs[len(inputs) // 2 :].shape)
        outputs, bounds = oracle.query(inputs)
        held_out = replace(held_out, inputs=inputs, outputs=outputs, bounds=bounds)
        X = problem.oracle.from_inputs(problem.X) @ self.basis / self.unit
        return replace(problem, oracle=oracle, X=X, held_out=held_out)

    def invert(self, problem, attempt):
        """The attempt in all inputs, corrected outside of the span."""
        oracle, B = problem.oracle, self.basis
        network = attempt.network.with_parameters(
            [B @ attempt.network.weights[0] / self.unit, *attempt.network.weights[1:]], attempt.network.biases
        )
        if attempt.error < problem.accepted_error:
            try:
                with problem.log.stage("weights outside of the span", oracle):
                    exact = problem.options.weight_dtype is not None
                    accepted = 0.0 if exact else max(_CLEARLY * attempt.error, problem.accepted_error / _CLEARLY**2)
                    network = lifted(oracle, network, B, problem.rng, problem.held_out.outputs, accepted)
            except OutOfBudgetError as error:
                oracle.exhausted = str(error)
        error = problem.held_out.error_of(network)
        sample = attempt.sample
        sample = None if sample is None else FitSample(self.unit * sample.inputs @ B.T, sample.outputs, sample.std)
        return replace(attempt, network=network, error=error, sample=sample, extractor=None, completion=None)


def _unit(oracle, rng):
    """The least of some distances at which outputs bend almost as in the limit, where biases do not matter."""
    E = rng.standard_normal((_CHECKS // 10, oracle.n_inputs))
    center, radii, bends = oracle(0.0 * E[:1]), [], []
    for radius in (*np.sort(_RADII), _LIMIT):
        (Y, error), (opposite, e) = oracle.query(radius * E), oracle.query(-radius * E)
        if np.isfinite([error, e]).all():  # logits may be lost
            radii.append(radius)
            bends.append((Y + opposite - 2.0 * center) / radius)
    near = [np.linalg.norm(bend - bends[-1]) <= _NEAR_LIMIT * np.linalg.norm(bends[-1]) for bend in bends]
    return float(min(radii[near.index(True)], max(_RADII))) if radii else 1.0


class _Span:
    """Gradients collected so far: an orthonormal basis Q (D, r) with the errors (r,) of its directions."""

    def __init__(self, oracle, rng, piecewise):
        D = oracle.n_inputs
        self.oracle, self.rng, self.piecewise = oracle, rng, piecewise
        self.Q, self.errors, self.rows, self.size = np.empty((D, 0)), [], [], 0.0

    def basis(self, radius=1.0, narrow=_NARROW):
        """The basis once a Jacobian adds less than one before and outputs need no more; None if it is not narrow.

        Random points are at a `radius` where units act; those that act elsewhere are at points where it fails.
        """
        D, most_added, points = self.oracle.n_inputs, 1, ()
        most = max(narrow, 1.0 - 1.0 / self.oracle.n_outputs) * D
        while self.Q.shape[1] <= most:
            random = radius * self.rng.standard_normal(D)
            added = next((n for n in map(self._extended, points or (random,)) if n), 0)
            if len(points) and not added:
                return None
            if added >= most_added:
                most_added, points = added, ()
            elif not (points := self._where_it_fails()):
                break
        narrow = 0 < (r := self.Q.shape[1]) <= most
        return svd(np.array(self.rows), full_matrices=False)[2][:r].T if narrow else None

    def _extended(self, point):
        """Include the gradients of all outputs at a point; how many have parts outside of the span."""
        before = self.Q.shape[1]
        for gradient, error in zip(*_gradients(self.oracle, point, self.rng, self.piecewise), strict=True):
            inside = self.Q.T @ gradient
            outside = gradient - self.Q @ inside
            outside -= self.Q @ (self.Q.T @ outside)
            self.rows.append(gradient / error)
            error = np.hypot(error, np.linalg.norm(inside * self.errors))
            self.size = max(self.size, np.linalg.norm(gradient))
            if error < _SHARP * (new := np.linalg.norm(outside)):
                self.Q = np.column_stack([self.Q, outside / new])
                self.errors.append(error / new)
        return self.Q.shape[1] - before

    def _where_it_fails(self):
        """Two points with one projection and other outputs: a missing unit acts at one; none if no random ones have."""
        Q, error = self.Q, _CLEARLY * self.size * max(self.errors, default=0.0)
        U = np.resize(_RADII, (_CHECKS, 1)) * self.rng.standard_normal((_CHECKS, len(Q)))
        low, high = U @ Q @ Q.T, U
        (f_low, lost), (f_high, e) = _outputs(self.oracle, low), _outputs(self.oracle, high)
        lengths = np.linalg.norm(U, axis=1)
        gap = np.abs(f_high - f_low).max(axis=1) / (error * lengths + _CLEARLY * (e + lost))
        worst = int(np.argmax(gap))
        return () if gap[worst] <= 1.0 else (high[worst], low[worst])


def _outputs(oracle, U):
    """Outputs Y (n, m_L) at points U (n, D), and bounds of their errors (n,), which grow with the distance."""
    Y, error = oracle.query(U)
    farther = 1.0 + np.linalg.norm(U, axis=1) / np.sqrt(U.shape[1])
    return Y, error + np.maximum(np.max(oracle.accuracy.std), EPS) * np.maximum(farther, np.abs(Y).max(axis=1))


def _gradients(oracle, point, rng, piecewise):
    """Gradients (m_L, D) of the outputs at a point, and their errors (m_L,); none where logits are lost.

    Forward differences of the longest step on which the outputs are straight; central ones if they are curved.
    """
    D, (_, (error,)) = len(point), _outputs(oracle, point[None])
    if not np.isfinite(error):
        return (), ()
    if piecewise:
        space = Space(oracle, D, np.maximum(oracle.accuracy.std, EPS), np.sqrt(D))
        (J,) = jacobians_at(space, point[None], np.array([np.linalg.norm(point) / np.sqrt(D)]), rng)
        if J.confirmed:
            return J.value, np.full(len(J.value), np.sqrt(D) * J.error)
    step = EPS ** (1.0 / 3.0)
    ahead = oracle(np.concatenate([point + step * np.eye(D), point - step * np.eye(D)]))
    G = (ahead[:D] - ahead[D:]).T / (2.0 * step)
    return G, np.sqrt(D) * error / step + step**2 * np.linalg.norm(G, axis=1)


def lifted(oracle, network, basis, rng, outputs, accepted=0.0):
    """The network with first weights ``W + N E``, N an orthonormal basis of what is orthogonal to `basis`.

    From a point c, a step s along a column of N changes the pre-activations by s times a row of E: the outputs change
    by their derivatives by the first layer times that, up to a part of about ``s |E|``: a chord method, whose rounds
    end if further outputs are explained to rounding, or to an `accepted` error over the deviation of `outputs`.
    """
    D, others = len(basis), lapack.null_space(basis.T).T
    points, B = _points_where_all_units_act(oracle, network, basis, rng)
    far = oracle.query(points + _OUTSIDE * others[0])[1]
    step = _OUTSIDE if np.isfinite(far).all() else 1.0  # logits may be lost
    U, Y = oracle.query_precise(
        lambda n, factor: factor * (np.resize(points, (n, D)) + rng.standard_normal((n, D)) @ others.T @ others), _POOL
    )
    errors = []
    for _ in range(ROUNDS + 1):
        errors.append(relative_to_deviation(network(U) - Y, outputs))
        if errors[-1] < max(_CONVERGED, accepted) or len(errors) > ROUNDS:
            break
        if errors[-1] > 0.5 * min(errors[:-1], default=np.inf):
            break
        best, left = network, []
        for c in points:
            moved = np.vstack([c, c + step * others])
            change = oracle(moved) - network(moved)
            left.append((change[1:] - change[0]).T)
        E = lapack.lstsq(B, np.concatenate(left), rcond=None)[0] @ others / step
        network = network.with_parameters([network.weights[0] + E.T, *network.weights[1:]], network.biases)
    return network if errors[-1] <= min(errors) else best


def _points_where_all_units_act(oracle, network, basis, rng):
    """The fewest points (n, D) of a pool in the span that determine all first units, and derivatives (n m_L, m_1).

    A unit that acts on no output at any of them, because units behind it are off, keeps the error of its weights. Each
    point is the one whose derivatives are farthest from the span of those before, or act on what is determined least.
    """
    W, b, m = network.weights[0], network.biases[0], len(network.biases[0])
    pool = np.concatenate([design_points(basis.T @ W, b, _POOL + m, s, rng) for s in _RADII[:3]]) @ basis.T
    if oracle.restricted:
        kept = np.isfinite(oracle.query(pool)[1])
        pool = pool[kept] if kept.any() else pool
    behind = network.with_parameters([np.eye(m), *network.weights[1:]], [np.zeros(m), *network.biases[1:]])
    B = behind.jacobian(pool @ W + b)  # (n, m_L, m_1)
    sizes = np.linalg.norm(B, axis=(0, 1))
    scaled = left = B / np.where(sizes > 0.0, sizes, 1.0)
    chosen, p = [], B.shape[1]
    for _ in range(int(np.ceil(_MORE_POINTS * m / p)) + 1):
        chosen.append(int(np.argmax(np.linalg.norm(left, axis=(1, 2)))))
        if len(chosen) * p < m:
            Q = lapack.orth(left[chosen[-1]].T)
            left = left - left @ Q @ Q.T
            continue
        rows = scaled[chosen].reshape(-1, m)
        unit = rows / np.maximum(np.linalg.norm(rows, axis=0), TINY)
        values, V = lapack.eigh(unit.T @ unit)
        if values[0] > _DETERMINED**2:
            break
        left = (scaled @ V[:, 0])[:, :, None]
    return pool[chosen], B[chosen].reshape(-1, m)
