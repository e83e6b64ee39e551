"""Identification from far away: the first layer where it saturates, then what follows it."""

from __future__ import annotations

import functools

import numpy as np

from skident.fitting.pruning import prune_to
from skident.fitting.redundancy import redundant_units

from .inquiry import finish, where_units_move
from .saturation.circles import NotSaturatingError
from .saturation.first_layer import find_first_layer
from .saturation.layers_behind import network_from_interior, network_from_stem, network_from_vertices, smallest_behind
from .saturation.lengths_from_tails import lengths_from_tails
from .saturation.shifts import find_first_shifts

__all__ = ["by_discovery", "by_saturation"]

_FEW_OUTPUTS = 3  # below, vertices alone leave too many local minima
_POLISHABLE = 1e-4  # misfit that an imperfect first layer may leave, and the polish mends
_EXACT = 1e-7  # error below which no deeper network is looked for
_EXPLAINED = 1e-3  # error above which a network of unknown widths is no answer at all
_SHARP, _REPEATS = 2e-8, 2  # residual of shifts from gradients that is as good as exact, and tries to get there
_FEW_UNITS = 12  # of a first layer: so few have too few vertices


def by_saturation(job, X, earlier, *, attempt=0):
    """First layer from far away, the rest behind it, then the polish; None where that cannot work."""
    rough = attempt == 0 and _many_outputs(job)  # where vertices and the polish need no more
    first = _first_layer(job, job.widths[0], precise=not rough, again=attempt == 2)
    if first is None or len(first.biases) < job.widths[0]:
        return None
    if len(first.biases) > job.widths[0]:
        found = len(first.biases)
        raise ValueError(
            f"layer_widths says {job.widths[0]} first-layer units, but {found} different ones were found where the "
            f"black box saturates; try layer_widths={(found, *job.widths[1:])}. If it clips its inputs, the "
            "clipping shows as units: stay near the data with "
            "extractor=EntangledWeightExtractor(first_layer='hessian')."
        )
    way, first, roughness = _way_behind(job, first, attempt)
    with job.log.stage(f"rest of the network ({way})", job.oracle) as entry:
        network, misfit = _WAYS[way](
            job.oracle,
            first,
            job.widths,
            *job.names,
            job.rng,
            tol=max(job.fitted, roughness),
            budget=job.budget(_n_parameters(job.widths)),
            callback=entry["progress"],
        )
        entry["residual"] = misfit
    stage = "vertices" if misfit > max(1e-3, 10.0 * job.fitted) else "polish"
    return finish(job, network, misfit, stage, f"saturation, {way}")


_WAYS = {"vertices": network_from_vertices, "interior": network_from_interior, "stem": network_from_stem}


def _first_layer(job, n_units, *, precise=True, again=False):
    """The first layer from far away, searched once, or again where it is too rough; None where nothing saturates."""
    if again or job.first is None or (precise and not job.precise):
        try:
            with job.log.stage("first layer (saturation)", job.oracle, n_units) as entry:
                job.first, job.precise = None, precise
                job.first = find_first_layer(
                    job.oracle,
                    activation=job.names[0],
                    n_units=n_units,
                    rng=job.rng,
                    noise=job.sigma,
                    precise=precise,
                    callback=entry["progress"],
                )
                entry.update(job.first.queries)
        except NotSaturatingError:
            return None
    return job.first


def _many_outputs(job):
    """Whether vertices leave few local minima."""
    return job.widths[-1] >= _FEW_OUTPUTS or len(job.widths) == 2


def _way_behind(job, first, attempt):
    """How to look at what follows the first layer, that layer as exact as this needs, and the misfit its errors leave.

    Vertices need no more than directions. They suffice where several outputs leave few local minima; with one or two,
    or after a failure, the first layer is made exact so that the rest can be asked anywhere. Where it cannot be,
    everything is fitted at once.
    """
    if attempt in (0, 2) and _many_outputs(job):
        return "vertices", first, 0.0
    exact, n_next, roughness = _exact_shifts(job, first, job.widths[1])
    if n_next is not None:
        return "interior", exact, roughness
    few_units = job.widths[0] <= _FEW_UNITS
    return ("stem" if few_units or attempt % 2 else "vertices"), first, 0.0


def _exact_shifts(job, first, n_next):
    """First layer with shifts from gradients, second width, and the misfit that their errors may leave."""
    with job.log.stage("first-layer shifts (gradients)", job.oracle) as entry:
        search = functools.partial(
            find_first_shifts, job.oracle, activation=job.names[0], rng=job.rng, n_next=n_next, noise=job.noise
        )
        exact, n_next, residual = search(first)
        if n_next is None and job.sigma is None and job.widths_allow_shifts(first):
            # Where what follows is steep, lengths read off the shape of a step are wrong.
            exact, n_next, residual = search(lengths_from_tails(job.oracle, first, job.names[0], job.rng))
        for _ in range(_REPEATS):
            if n_next is None or residual < _SHARP:
                break
            again = search(exact)  # other points; sometimes a unit hardly shows in the null space of some
            exact, n_next, residual = again if again[2] < residual else (exact, n_next, residual)
        entry["residual"] = residual if np.isfinite(residual) else None
    # Shifts are good to some 1e-8 at best, and an exact rest leaves no less.
    return exact, n_next, max(residual, 1e-6) if n_next is not None else 0.0


def _n_parameters(widths):
    return sum((a + 1) * c for a, c in zip(widths[:-1], widths[1:], strict=True))


def by_discovery(job, X, earlier, *, attempt=0):
    """The smallest network that explains the answers, widths and depth unknown; None where nothing saturates.

    Raises
    ------
    ValueError
        If no network within `max_neurons` hidden units explains the answers.
    """
    first = _first_layer(job, None, again=attempt > 0)
    if first is None:
        return None
    m_1, m_L = len(first.biases), job.oracle.n_outputs
    best = None
    for network, misfit, route in _candidates(job, first, m_1, m_L) if m_1 <= job.max_neurons else ():
        trial = _minimal(job, network, misfit, route)
        if best is None or trial.error < best.error:
            best = trial
        if trial.error <= max(job.enough, _EXACT):
            break
    if best is not None and best.error <= max(job.enough, _EXPLAINED):
        return best
    seen = f"{m_1} units in the first layer alone" if m_1 > job.max_neurons else f"{m_1} units in the first layer"
    stopped = f" The search was stopped by max_seconds={job.max_seconds}." if job.late else ""
    raise ValueError(
        f"layer_widths='auto': no network with at most max_neurons={job.max_neurons} hidden units in one to three "
        f"hidden layers was found that explains the answers ({seen}). Check the activations, raise max_neurons or "
        f"n_starts, or give layer_widths.{stopped}"
    )


def _candidates(job, first, m_1, m_L):
    """Networks that may explain the answers, with misfit and route, one hidden layer more at a time."""
    with job.log.stage("one hidden layer (vertices)", job.oracle) as entry:
        network, misfit = network_from_vertices(
            job.oracle,
            first,
            (m_1, m_L),
            *job.names,
            job.rng,
            tol=job.fitted,
            budget=job.budget(m_1 * m_L),
            callback=entry["progress"],
        )
        entry["residual"] = misfit
    if misfit <= job.fitted:
        yield network, misfit, "saturation, vertices"
    exact, m_2, roughness = _exact_shifts(job, first, None)
    way = "interior" if m_2 is not None else "stem" if m_1 <= _FEW_UNITS else "vertices"
    first = exact if m_2 is not None else first
    if m_2 is not None:
        with job.log.stage("two hidden layers (interior)", job.oracle) as entry:
            network, misfit = network_from_interior(
                job.oracle,
                first,
                (m_1, m_2, m_L),
                *job.names,
                job.rng,
                tol=max(job.fitted, roughness),
                budget=job.budget(60),
                callback=entry["progress"],
            )
            entry["residual"] = misfit
        if misfit <= max(job.fitted, roughness, _POLISHABLE) and m_1 + m_2 <= job.max_neurons:
            yield network, misfit, "saturation, interior"
    # Behind a second layer of known width, or with one of unknown width.
    for n_hidden in (1, 2) if m_2 is None else (2,):
        if job.late:
            break
        with job.log.stage(f"{n_hidden + 1} hidden layers ({way})", job.oracle) as entry:
            network, misfit = smallest_behind(
                job.oracle,
                first,
                way,
                n_hidden,
                m_L,
                *job.names,
                job.rng,
                n_next=m_2,
                max_neurons=job.max_neurons - m_1,
                tol=max(job.fitted, roughness),
                budget=job.budget(30),
                callback=entry["progress"],
            )
            entry["residual"] = misfit
        if network is not None:
            yield network, misfit, f"saturation, {way}"


def _minimal(job, network, misfit, route):
    """Polish, prune what turns out superfluous then, and polish again."""
    trial = finish(job, network, misfit, "polish", route)
    superfluous = redundant_units(trial.network, where_units_move(trial.network))
    if not any(superfluous) or trial.error > max(job.tol, 10.0 * job.noise):
        return trial
    widths = tuple(m - r for m, r in zip(network.layer_widths, (*superfluous, 0), strict=True))
    U = where_units_move(trial.network)
    network, misfit = prune_to(trial.network, U, trial.network(U), widths, tol=job.fitted)
    smaller = finish(job, network, misfit, "polish", route)
    return smaller if smaller.error <= max(job.tol, 3.0 * trial.error) else trial
