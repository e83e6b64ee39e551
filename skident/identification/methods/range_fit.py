"""Smooth networks from outputs near the data alone, within an input range or between clips: the smallest fit."""

from dataclasses import replace

import numpy as np

from skident.fitting.random_starts import fit_smallest_network
from skident.oracle import NotIdentified

from ..constants import SPREADS
from .discovery import minimal_attempt

_FIRST_STARTS = 24  # of narrow fits: a tenth of a second each, a hundredth of those of twice the width (budget)
# Hidden units that make curved outputs where nothing saturates, those tried first that are most common.
_CURVED = ("tanh", "gelu", "softplus", "silu")
# Hidden layers, and hidden units at most: fits of two layers may end in local minima, and have other starts then; wide
# ones of one layer take minutes, and come last. More layers have too many local minima.
_PASSES = ((1, 16), (2, np.inf), (2, np.inf), (1, np.inf))
_MOST_CLIPPED = 20  # hidden units at most behind clips: larger networks take minutes and mostly fail (honesty/clipped)


class RangeFit:
    """The smallest network that fits outputs near the data, by wide fits from random starts, and pruning."""

    name = "fit near the data"

    def refuses(self, problem):
        """See `Method`."""
        return None

    def run(self, problem, step, state):
        """See `Method`; `NotIdentified` if no network with up to two hidden layers explains the outputs."""
        best, clipped = None, problem.oracle.output_bounds is not None
        limit = min(problem.max_neurons(), _MOST_CLIPPED if clipped and problem.widths is None else np.inf)
        guessed = problem.discover and problem.detected is not None and not clipped
        names = _CURVED if guessed else problem.activations[:1]
        left = dict.fromkeys(names, np.inf)  # residuals by activation
        for n_hidden, most in _PASSES if problem.discover else _PASSES[-1:]:
            for name in names:
                posed = replace(problem, activations=(name, problem.activations[1]))
                network, residual = _smallest(posed, n_hidden, min(most, limit))
                if network is not None:
                    found = minimal_attempt(posed, network, residual, self.name)
                    best = found if best is None or found.error < best.error else best
                left[name] = min(left[name], residual)
                if problem.out_of_search_time or (best is not None and best.error < problem.accepted_error):
                    return best if best is not None else self._refused(left, clipped)
            names = names[:1]  # larger networks of other activations take minutes
        return best if best is not None else self._refused(left, clipped)

    def _refused(self, left, clipped):
        names, least = " or ".join(left), min(left.values())
        raise NotIdentified(
            "range",
            "units",
            f"{'no network fits the outputs between the plateaus' if clipped else 'no network fits the outputs'} "
            f"(activation {names}, relative residual {least:.1e}): give activation, layer_widths"
            f"{'' if clipped else ', widen input_range'}, or raise max_seconds.",
        )


METHOD = RangeFit()


def _smallest(problem, n_hidden, max_neurons):
    """The smallest network of `n_hidden` hidden layers, or of given widths, that explains samples; and its residual."""
    oracle, rng = problem.oracle, problem.rng
    architecture = problem.architecture(problem.widths or (*[1] * n_hidden, oracle.n_outputs))
    parts = []

    def draw(n):
        def around(n, factor):  # never farther out
            return rng.choice(SPREADS, (n, 1)) * rng.standard_normal((n, oracle.n_inputs))

        missing = n - sum(len(U) for U, _ in parts)
        if missing > 0:
            parts.append(oracle.query_precise(around, missing))
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    with problem.log.stage(f"fit of {n_hidden} hidden layer(s)", oracle, unit="starts") as entry:
        limits = problem.search(architecture.n_parameters(oracle.n_inputs), problem.fit_tol, entry["progress"])
        network, residual = fit_smallest_network(
            draw,
            oracle.n_inputs,
            architecture,
            rng,
            exact=() if problem.widths is None else range(len(problem.widths) - 1),
            max_neurons=max_neurons,
            limits=replace(limits, n_first=_FIRST_STARTS),
        )
        entry["residual"] = residual
    return network, residual
