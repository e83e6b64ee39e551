"""A depth-2 ReLU network from samples: tensors, polish, number of units, signs, in this order."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from skident.budget.constants import DENSE_PARAMETERS, FEW_ROUNDS, FINE_FTOL
from skident.optim import best_of

from .penalized_fit import is_affordable, penalized_fit
from .ridges import (
    COLLINEAR_ROUNDING,
    Regression,
    RidgeFit,
    RidgeModel,
    fit_ridges,
    is_exact,
    jacobian_blocks,
    linear_model,
    regress_on_ridges,
    squared_errors,
)
from .sample import along_a_line
from .tensor_stage import TensorStage, correct, tensor_stage
from .unit_count import (
    add_missing_units,
    criterion,
    determined_units,
    escape,
    further_ridge_pays,
    select_size,
    unit_penalty,
)
from .unit_signs import SignedFit, as_relu, resolve_signs, sign_values
from .wide_fit import wide_candidate

_WORKING_ROWS = 2**17  # up to which candidates are compared; more rows enter where one of them is left
TENSOR_UNITS = 20  # up to which tensors are the cheaper start
_TENSOR_RANK = 10  # of T_2 where units are to be counted: with as many units as features it shows half
_UNITS_PER_RANK = 4  # units of a wide fit per rank of T_2, which shows a third to a half of them
_SAME = 5e-3  # relative difference of residual sums below which two fits are one
_ENOUGH_ROWS = 10  # a parameter, from which on a prior on the weights changes little
_HEAVY_TAILS = 3.0  # excess kurtosis of a column with heavy tails: that of the Laplace distribution
_HEAVY_FACTOR = 10  # factor of the samples that tensors need then (tuned on relu/inputs)
_DETERMINED = 0.5  # margin from which a sign of an exact fit is determined: it is 0 or, to rounding, 1
_ROWS_PER_SIDE = 8  # times the inputs + 1, rows on each side of a unit that enter the Gauss-Newton matrix
_OWN = 1e-3  # share of a row that is left to the other rows: below, its leave-one-out residual has lost 3 digits


@dataclass(frozen=True)
class Search:
    """What is searched for, and by what means.

    Attributes
    ----------
    max_units : int
        Bound on units, also while searching.
    n_units : int or None
        None searches for the number with the smallest `criterion`, from the rank of T_2 on.
    n_candidates : int
        Starts of the fit of the tensors.
    polish : bool
        False stops after the regression on the units of the tensor stage.
    noise_variance : float or None
        Of the noise, in variances of y, if known: where a fit reaches it, no more units are tried.
    alpha : float or None
        Penalty on squared weights; None chooses it where rows are few, 0 for none.
    most_units : int or None
        Bound up to which the search continues if the number of units reaches `max_units`; None for no more.
    """

    max_units: int
    n_units: int | None = None
    n_candidates: int = 16
    polish: bool = True
    noise_variance: float | None = None
    alpha: float | None = None
    most_units: int | None = None

    def is_enough(self, sample, rss):
        """Whether residuals are rounding, or no more than the known noise."""
        if is_exact(sample, rss):
            return True
        # Four standard errors of a mean square of Gaussian noise.
        bound = (self.noise_variance or 0.0) * (1.0 + 4.0 * np.sqrt(2.0 / sample.effective_rows))
        return rss <= bound * sample.total


@dataclass(frozen=True)
class LearnedReLU:
    """What was learned.

    Attributes
    ----------
    signed : SignedFit
    tensor_model : RidgeModel
        Before the polish.
    stage : TensorStage
    candidate_losses : ndarray
        Mean squared residuals, in variances of y, of the polished candidates, the best one first.
    settled : bool
        False where a further unit would still pay.
    exact : bool
        Whether residuals are rounding, and the rows determine the units with their signs.
    missing : str
        Why the rows do not determine the units though residuals are rounding; else empty.
    n_flippable : int
        How many units have undetermined signs, if nothing else is missing: the function is exact.
    """

    signed: SignedFit
    tensor_model: RidgeModel
    stage: TensorStage
    candidate_losses: np.ndarray
    settled: bool
    exact: bool
    missing: str = ""
    n_flippable: int = 0


def judged(sample, signed, tensor_model, stage, losses, settled, rng):
    """`LearnedReLU` of a finished fit, with what can be said about its exactness."""
    meets = is_exact(sample, signed.fit.rss)
    missing = missing_evidence(sample, signed.fit.model, rng) if meets else ""
    meets = meets and not missing
    n_flippable = int(np.sum(signed.margins < _DETERMINED)) if meets else 0
    return LearnedReLU(signed, tensor_model, stage, losses, settled, meets and not n_flippable, missing, n_flippable)


def _silent(message):
    pass


def learn_relu_network(sample, search, *, rng, say=_silent):
    """Learn ``sum_i a_i relu(w_i . z + b_i) + u . z + c`` from a sample.

    Minimizes the weighted sum of squared residuals, from the units that the tensors of the sample show.

    Samples of more than 131 072 rows are represented by so many of them until one candidate is left.
    """
    work = sample.draw(_WORKING_ROWS, rng)
    stage = _find_starts(work, search, rng, say)
    tensor = _regress_on_tensors(sample, work, stage)
    if not search.polish:
        return _unpolished(sample, work, tensor.model, stage, rng)
    fit, losses = _polish_candidates(work, stage, tensor, rng, say)
    fit, settled = _settle_size(work, fit, search, stage, rng, say)
    if _takes_prior(work, fit, search):
        fit, settled = (
            _penalized(work, fit, search, rng),
            settled or (search.n_units is None and search.most_units is not None),
        )
        say(f"penalty {fit.alpha:.2g}: {fit.model.n_units} units, {fit.rss / work.total:.3g} of the variance")
    elif work is not sample and fit.model.n_units:
        fit = fit_ridges(sample, fit.model, ftol=1e-8, rng=rng)
    signed = resolve_signs(sample, fit, rng)
    return judged(sample, signed, tensor.model, stage, losses, settled, rng)


# -- starts ----------------------------------------------------------------------------------------------------------


def _find_starts(sample, search, rng, say):
    """The tensor stage; beyond 30 units the count of T_2 and a wide fit, if they were not excluded."""
    if search.polish and (search.n_units or search.max_units) > TENSOR_UNITS:
        stage = tensor_stage(sample, 0)
        if search.n_units or stage.rank > _TENSOR_RANK:
            candidate = _wide_start(sample, search, stage, rng)
            say(f"wide fit: {candidate.model.n_units} units, {candidate.rss / sample.total:.3g} of the variance left")
            return replace(stage, candidates=[candidate])
    return _find_tensors(sample, search, rng, say)


def _wide_start(sample, search, stage, rng):
    """Units of a wide fit, whose penalty is in proportion to what the tensors' units leave unexplained, if any are."""
    noise = {}
    if stage.candidates:
        noise = {"noise": float(np.sqrt(min(one.rss for one in stage.candidates) / sample.total))}
    if search.n_units:
        return wide_candidate(sample, search.n_units, rng, **noise)
    most = min(search.max_units, _UNITS_PER_RANK * stage.rank)
    return wide_candidate(sample, most, rng, unit_price=unit_penalty(sample), **noise)


def _tensors(sample, search, n_units, rng, model=None):
    options = {"max_units": search.max_units, "n_candidates": search.n_candidates}
    return tensor_stage(sample, n_units, model=model, rng=rng, **options)


def _find_tensors(sample, search, rng, say):
    """The tensor stage; where units are to be counted, again as long as a better control variate shows more of them."""
    stage = _tensors(sample, search, search.n_units, rng)
    say(f"tensors: {_count(stage)}")
    if search.n_units is not None:
        return stage
    for _ in range(FEW_ROUNDS):
        if not stage.candidates or is_exact(sample, stage.candidates[0].rss):
            break
        best = stage.candidates[0]
        again = _tensors(sample, search, None, rng, best.model)
        if not again.candidates or again.candidates[0].rss >= best.rss or again.rank <= best.model.n_units:
            # Fewer eigenvalues are beyond the noise with a good control variate than without: not less is known.
            return TensorStage(stage.candidates, again.spectrum, again.noise, again.rank)
        stage = again
        say(f"tensors, again with these units as control variate: {_count(stage)}")
    return stage


def _count(stage):
    if not stage.candidates:
        return f"no unit shows (eigenvalues of T_2 up to {np.abs(stage.spectrum[0]):.2g}, noise {stage.noise:.2g})"
    best = stage.candidates[0]
    return f"{best.model.n_units} units, rank of T_2 {stage.rank}"


def _regress_on_tensors(sample, work, stage):
    """The regression on the best candidate's units, or on none; with the moments of all rows where some were drawn."""
    if not stage.candidates:
        return _regression_of(work, linear_model(work))
    best = stage.candidates[0]
    if work is sample:
        return best
    U, b, _ = best.model.units()
    return correct(sample, regress_on_ridges(sample, U, b), max_iter=2)


def _regression_of(sample, model):
    rss, _ = sample.reduce(squared_errors, model)
    return Regression(model, float(rss), np.empty(0))


def _linear_fit(sample):
    linear = _regression_of(sample, linear_model(sample))
    return RidgeFit(linear.model, linear.rss, 0, "target")


def _unpolished(sample, work, model, stage, rng):
    """The regression on the units of the tensor stage, with the signs that leave little of its linear part."""
    rss = _regression_of(sample, model).rss
    margins = np.minimum(np.abs(sign_values(model)), 1.0)
    signed = SignedFit(RidgeFit(as_relu(model), rss, 0, "max_iter"), margins)
    losses = np.sort([c.rss for c in stage.candidates]) / work.total
    return judged(sample, signed, model, stage, losses, True, rng)


# -- polish ----------------------------------------------------------------------------------------------------------


def _best_candidate(sample, stage, rng, say):
    """The best of rough fits from all candidates, and where each of them ended."""

    def polished(candidate):
        fit = fit_ridges(sample, candidate.model, max_iter=30, ftol=FINE_FTOL, rough=True, rng=rng)
        say(f"polish: mean squared residual {fit.rss / sample.total:.3g} of the variance, {fit.n_iter} steps")
        return fit

    fits = (polished(candidate) for candidate in stage.candidates)
    return best_of(fits, lambda f: f.rss, enough=lambda costs: is_exact(sample, costs[-1]))


def _polish_candidates(sample, stage, tensor, rng, say):
    """The best candidate, polished to the end, and the losses of all of them, ascending, in variances of y."""
    if not stage.candidates:
        return _linear_fit(sample), np.array([tensor.rss]) / sample.total
    fit, costs = _best_candidate(sample, stage, rng, say)
    costs = np.sort(costs)
    if not is_exact(sample, fit.rss):
        fit = fit_ridges(sample, fit.model, rng=rng)
        costs[0] = fit.rss
    return fit, np.sort(costs) / sample.total


# -- number of units -------------------------------------------------------------------------------------------------


def _settle_size(sample, fit, search, stage, rng, say):
    """The fit of the number of units wanted, or of the best one; and whether no further unit would pay."""
    if search.n_units is not None:
        return _fixed_size(sample, fit, search, rng, say)
    fit = _found_size(sample, fit, search, rng, say)
    if search.most_units is not None and _wants_more(sample, fit, search):
        say(f"all {fit.model.n_units} units that T_2 can count are in use: further ones are tried")
        search = replace(search, max_units=search.most_units, most_units=None)
        fit = _found_size(sample, _wider_start(sample, fit, search, stage, rng, say), search, rng, say)
    return fit, not (_wants_more(sample, fit, search) and further_ridge_pays(sample, fit, rng))


def _wants_more(sample, fit, search):
    """Whether the bound on units is reached and the fit not good enough."""
    return 0 < search.max_units <= fit.model.n_units and not search.is_enough(sample, fit.rss)


def _wider_start(sample, fit, search, stage, rng, say):
    """The fit itself, or one from a wide fit: that is the cheaper start where there are many more units."""
    if not stage.rank or not further_ridge_pays(sample, fit, rng):
        return fit
    candidate = _wide_start(sample, search, stage, rng)
    other = fit_ridges(sample, candidate.model, rng=rng)
    say(f"wide fit: {other.model.n_units} units, {other.rss / sample.total:.3g} of the variance left")
    return other if criterion(sample, other) < criterion(sample, fit) else fit


def _fixed_size(sample, fit, search, rng, say):
    """The best fit of so many units, by adding some and taking them away; and whether no further one would pay."""
    max_units = min(search.n_units + max(3, search.n_units // 3), max(1, determined_units(sample)))
    if search.n_units > TENSOR_UNITS and not further_ridge_pays(sample, fit, rng):
        return fit, True
    for patience in range(1, FEW_ROUNDS + 1):
        if search.is_enough(sample, fit.rss):
            return fit, True
        better, found_more = escape(
            sample, fit, rng, max_units=max_units, patience=patience, callback=_teller(sample, say)
        )
        if not found_more:
            return fit, True
        if better.rss < (1.0 - _SAME) * fit.rss:
            fit = fit_ridges(sample, better.model, rng=rng)
    return _from_wide_fit(sample, fit, search, rng, say)


def _from_wide_fit(sample, fit, search, rng, say):
    """The given fit, which has spare units, or that from a wide one where it is better; and whether it has not."""
    if search.n_units > TENSOR_UNITS or search.is_enough(sample, fit.rss):
        return fit, search.is_enough(sample, fit.rss)
    other = fit_ridges(sample, wide_candidate(sample, search.n_units, rng).model, rng=rng)
    say(f"wide fit, polished: mean squared residual {other.rss / sample.total:.3g} of the variance")
    if other.rss > (1.0 - _SAME) * fit.rss:
        return fit, False
    return other, search.is_enough(sample, other.rss) or not further_ridge_pays(sample, other, rng)


def _found_size(sample, fit, search, rng, say):
    """The fit of the best size by the information criterion."""
    # Where a fit is good enough, fewer units may do as well.
    enough = search.is_enough(sample, fit.rss)
    if fit.model.n_units > TENSOR_UNITS and not further_ridge_pays(sample, fit, rng):
        enough = True
    max_units = fit.model.n_units if enough else search.max_units
    fit = select_size(sample, fit, rng, max_units=max_units, callback=_teller(sample, say))
    if 0 < fit.model.n_units <= TENSOR_UNITS and not enough:
        fit = add_missing_units(sample, fit, rng, max_units=max_units, callback=_teller(sample, say))
    return fit_ridges(sample, fit.model, rng=rng) if fit.model.n_units else fit


def _takes_prior(sample, fit, search):
    """Whether a prior on the weights is given, or pays: rows are few, or a linear function meets all of them."""
    if search.alpha is not None:
        return search.alpha > 0
    if not fit.model.n_units and sample.n_rows <= sample.dim + 1:
        return True
    if search.is_enough(sample, fit.rss):
        return False
    # Rows far out, of columns with heavy tails, decide on a unit by themselves: it takes more of them to be sure.
    rows = _ENOUGH_ROWS * (_HEAVY_FACTOR if sample.kurtosis.max() > _HEAVY_TAILS else 1)
    return is_affordable(sample) or sample.effective_rows < rows * fit.model.n_parameters


def _penalized(sample, fit, search, rng):
    most = search.max_units if search.most_units is None else None  # of a given order
    return penalized_fit(sample, fit.model, rng, most_units=most, n_units=search.n_units, alpha=search.alpha)


def _teller(sample, say):
    def tell(fit):
        say(f"{fit.model.n_units} units: mean squared residual {fit.rss / sample.total:.3g} of the variance")

    return tell


def missing_evidence(sample, model, rng):
    """Why rows that a model meets do not determine it, if so.

    Equal rows count once. Up to ``8 (k + 1)`` rows on each side of every unit enter, ``O(m k P^2)``: fewer rows can
    only lower the rank and raise leverages, and rows beyond them are predicted by these.
    """
    Z, _, w = sample.draw(_WORKING_ROWS, rng).arrays(np.float64)
    Z = Z[w > 0]
    Z = Z[np.unique(along_a_line(Z), return_index=True)[1]]
    t = Z @ model.V + model.beta
    needed = Z.shape[1] + 2
    for unit, column in enumerate(t.T):
        active = int(np.sum(column > 0))
        if min(active, len(Z) - active) < needed:
            side, count = ("active", active) if active < needed else ("inactive", len(Z) - active)
            return f"unit {unit} is {side} on {count} of {len(Z)} rows, {needed} are needed"
    if model.n_parameters > DENSE_PARAMETERS:
        return f"{model.n_parameters} parameters are too many to check what the rows determine ({DENSE_PARAMETERS})"
    rows = _rows_of_units(t, _ROWS_PER_SIDE * (Z.shape[1] + 1))
    return _missing_rank(Z[rows], model)


def _rows_of_units(t, n_rows):
    """Indices of up to so many rows on each side of every unit, spread over all of them."""
    chosen = []
    for column in t.T:
        for side in (np.flatnonzero(column > 0), np.flatnonzero(column <= 0)):
            chosen.append(side[np.linspace(0, len(side) - 1, min(n_rows, len(side))).astype(int)])
    return np.unique(np.concatenate(chosen)) if chosen else np.arange(len(t))


def _missing_rank(Z, model):
    gram = sum(J.T @ J for J in jacobian_blocks(Z, model))
    scale = np.sqrt(np.diag(gram))
    gram = gram / np.outer(scale, scale)
    values = np.linalg.eigvalsh(gram)
    open_parameters = int(np.sum(values < COLLINEAR_ROUNDING * values[-1]))
    if open_parameters:
        return f"the rows leave {open_parameters} of {model.n_parameters} parameters open"
    root = np.linalg.cholesky(gram)
    alone = 0
    for J in jacobian_blocks(Z, model):
        leverage = np.sum(solve_triangular(root, (J / scale).T, lower=True, check_finite=False) ** 2, axis=0)
        alone += int(np.sum(leverage > 1.0 - _OWN))
    return f"{alone} of {len(Z)} rows are met by parameters that no other row determines" if alone else ""
