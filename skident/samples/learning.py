"""A depth-2 ReLU network from samples: tensors, polish, number of units, signs, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .ridge_count import cross_validated_size, escape, is_exact, remove_ridge, select_size, squared_errors
from .ridge_sides import SignedFit, as_relu, resolve_signs, sign_values
from .ridges import Regression, RidgeFit, RidgeModel, fit_ridges, regress_on_ridges
from .tensor_stage import TensorStage, correct, linear_model, tensor_stage

__all__ = ["LearnedReLU", "learn_relu_network"]

_WORKING_ROWS = 2**17  # up to which candidates are compared; more rows enter where one of them is left
_RESTARTS = 3  # of the tensor stage while the rank of T_2 grows
_ROUGHLY = 1e-4  # relative decrease at which a fit that is only compared stops
_SAME = 5e-3  # relative difference of residual sums below which two fits are one
_ENOUGH_ROWS = 10  # a parameter, from which on the criterion needs no second opinion
_HEAVY_TAILS, _HEAVY_FACTOR = 3.0, 10  # excess kurtosis of a column, and how many times more rows it takes then
_ROUNDS = 3  # of adding and taking away ridges


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
        Whether residuals are rounding.
    """

    signed: SignedFit
    tensor_model: RidgeModel
    stage: TensorStage
    candidate_losses: np.ndarray
    settled: bool
    exact: bool


def _silent(message):
    pass


def _tensor_start(sample, n_units, max_units, options, rng, log):
    """The tensor stage; where units are to be counted, again as long as a better control variate shows more of them."""
    stage = tensor_stage(sample, n_units, max_units=max_units, rng=rng, **options)
    log(f"tensors: {_count(stage)}")
    if options["control_variate"] != "network" or n_units is not None:
        return stage
    for _ in range(_RESTARTS):
        if not stage.candidates or is_exact(sample, stage.candidates[0].rss):
            break
        best = stage.candidates[0]
        again = tensor_stage(sample, None, max_units=max_units, model=best.model, rng=rng, **options)
        if not again.candidates or again.candidates[0].rss >= best.rss or again.rank <= best.model.n_units:
            # Fewer eigenvalues are beyond the noise with a good control variate than without: not less is known.
            return TensorStage(stage.candidates, again.spectrum, again.noise, again.rank)
        stage = again
        log(f"tensors, again with these units as control variate: {_count(stage)}")
    return stage


def _count(stage):
    if not stage.candidates:
        return f"no unit shows (eigenvalues of T_2 up to {np.abs(stage.spectrum[0]):.2g}, noise {stage.noise:.2g})"
    best = stage.candidates[0]
    return f"{best.model.n_units} units, rank of T_2 {stage.rank}"


def _compare_candidates(sample, stage, rng, log):
    """Rough fits of the candidates, the best one first."""
    fits = []
    for candidate in stage.candidates:
        fits.append(fit_ridges(sample, candidate.model, max_iter=30, ftol=_ROUGHLY, rough=True, rng=rng))
        log(f"polish: mean squared residual {fits[-1].rss / sample.total:.3g} of the variance, {fits[-1].n_iter} steps")
        if is_exact(sample, fits[-1].rss):
            break
    return sorted(fits, key=lambda f: f.rss)


def _fixed_size(sample, fit, rng, max_units, enough, log):
    """The best fit of so many units, by adding some and taking them away; and whether no further one would pay."""
    for patience in range(1, _ROUNDS + 1):
        if enough(fit.rss):
            return fit, True
        better, found_more = escape(
            sample, fit, rng, max_units=max_units, patience=patience, callback=_teller(sample, log)
        )
        if not found_more:
            return fit, True
        if better.rss < (1.0 - _SAME) * fit.rss:
            fit = fit_ridges(sample, better.model, rng=rng)
    return fit, enough(fit.rss)


def _found_size(sample, fit, rng, max_units, enough, options, log):
    """The fit of the best size: by the information criterion, and where rows are few by cross-validation too."""
    if enough(fit.rss):
        max_units = fit.model.n_units  # fewer may do as well
    fit = select_size(sample, fit, rng, max_units=max_units, callback=_teller(sample, log))
    m = fit.model.n_units
    # Rows far out, of columns with heavy tails, decide on a unit by themselves: it takes more of them to be sure.
    rows = _ENOUGH_ROWS * (_HEAVY_FACTOR if sample.kurtosis.max() > _HEAVY_TAILS else 1)
    if m and sample.effective_rows < rows * fit.model.n_parameters:

        def learn(part, size):
            stage = tensor_stage(part, size, rng=rng, **options)
            start = _compare_candidates(part, stage, rng, _silent)[0]
            return escape(part, start, rng, max_units=min(size + 2, _most_units(part)))[0]

        m = cross_validated_size(sample, m, learn, rng)
        log(f"cross-validation of {fit.model.n_units} units and fewer: {m}")
        while fit.model.n_units > m:
            fit = remove_ridge(sample, fit, rng)
    return fit_ridges(sample, fit.model, rng=rng) if m else fit


def _teller(sample, log):
    def tell(fit):
        log(f"{fit.model.n_units} units: mean squared residual {fit.rss / sample.total:.3g} of the variance")

    return tell


def learn_relu_network(
    sample,
    *,
    n_units=None,
    max_units,
    n_candidates=16,
    control_variate="network",
    polish=True,
    noise_variance=None,
    rng,
    log=_silent,
):
    """Learn ``sum_i a_i relu(w_i . z + b_i) + u . z + c`` from a sample.

    Parameters
    ----------
    sample : Sample
    n_units : int, default=None
        None looks for the number with the smallest Bayesian information criterion, from the rank of T_2 on.
    max_units : int
        Bound on units, also while searching.
    n_candidates : int, default=16
        Starts of the fit of the tensors.
    control_variate : {"network", "quadratic", "linear", None}, default="network"
    polish : bool, default=True
        False stops after the regression on the units of the tensor stage.
    noise_variance : float, default=None
        Of the noise, in variances of y, if known: where a fit reaches it, no more units are tried.
    rng : numpy.random.RandomState
    log : callable, default does nothing
        ``log(message)`` after every step.

    Returns
    -------
    LearnedReLU

    Notes
    -----
    Samples of more than 131 072 rows are represented by so many of them until one candidate is left.
    """
    work = sample.draw(_WORKING_ROWS, rng)
    options = {"n_candidates": n_candidates, "control_variate": control_variate}
    stage = _tensor_start(work, n_units, max_units, options, rng, log)
    tensor = stage.candidates[0] if stage.candidates else _regression_of(work, linear_model(work))
    if tensor.model.n_units and work is not sample and control_variate == "network":
        tensor = correct(sample, regress_on_ridges(sample, *tensor.model.units()[:2]), max_iter=2)
    if not polish:
        losses = np.array([c.rss for c in stage.candidates]) / work.total
        return _unpolished(sample, tensor.model, stage, losses)

    def enough(rss):
        bound = 0.0 if noise_variance is None else noise_variance * (1.0 + 4.0 * np.sqrt(2.0 / work.effective_rows))
        return is_exact(work, rss) or rss <= bound * work.total

    fits = _compare_candidates(work, stage, rng, log)
    if fits and not is_exact(work, fits[0].rss):
        fits[0] = fit_ridges(work, fits[0].model, rng=rng)
    fits = fits or [RidgeFit(tensor.model, tensor.rss, 0, "target")]
    losses = np.array([f.rss for f in fits]) / work.total
    if n_units is None:
        fit, settled = _found_size(work, fits[0], rng, max_units, enough, options, log), True
    else:
        reach = n_units + max(3, n_units // 3)
        fit, settled = _fixed_size(work, fits[0], rng, min(reach, _most_units(work)), enough, log)
    if work is not sample and fit.model.n_units:
        fit = fit_ridges(sample, fit.model, ftol=1e-8, rng=rng)
    return _finished(sample, fit, tensor.model, stage, losses, settled, rng)


def _most_units(sample):
    k = sample.dim
    return max(1, int((sample.n_rows - k - 1) // (k + 1)))


def _regression_of(sample, model):
    rss, _ = sample.reduce(squared_errors, model)
    return Regression(model, float(rss), np.empty(0))


def _unpolished(sample, model, stage, losses):
    """The regression on the units of the tensor stage, with the signs that leave little of its linear part."""
    rss = _regression_of(sample, model).rss
    margins = np.minimum(np.abs(sign_values(model)), 1.0)
    signed = SignedFit(RidgeFit(as_relu(model), rss, 0, "max_iter"), margins)
    return LearnedReLU(signed, model, stage, np.sort(losses), True, is_exact(sample, rss))


def _finished(sample, fit, tensor_model, stage, losses, settled, rng):
    signed = resolve_signs(sample, fit, rng)
    return LearnedReLU(signed, tensor_model, stage, np.sort(losses), settled, is_exact(sample, signed.fit.rss))
