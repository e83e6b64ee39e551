"""Which routes to take to a network, in which order, and why."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from skident.linalg import n_free_entries
from skident.network import get_activation
from skident.oracle import NotIdentified, OutOfBudgetError

from .hessians.subspace import n_visible
from .methods.asymptotes import by_profiles, has_profiles
from .methods.clipped_outputs import by_outputs_between
from .methods.discovery import by_discovery
from .methods.hessians import by_hessians
from .methods.near_data import by_function, foresee
from .methods.relu import by_kinks
from .methods.saturating import FirstLayerSearch, by_saturation, by_shown_units
from .methods.second_layer import by_patches, patches_pay, patches_serve

__all__ = ["Plan", "plan_routes"]

_PIECEWISE_LINEAR = ("relu", "leaky_relu", "hard_tanh")
_INVERSES = {"tanh": "np.arctanh", "sigmoid": "scipy.special.logit", "erf": "scipy.special.erfinv"}


@dataclass(frozen=True)
class Plan:
    """The routes to take, in their order, and why these.

    Attributes
    ----------
    routes : list of callable
        See `make_attempts`.
    reason : str
        For the report.
    last_resort : callable or None
        A route for when these explain nothing.
    warning : str
        What will stay open whatever is asked; empty where nothing is known to.
    """

    routes: list
    reason: str
    last_resort: Callable | None = None
    warning: str = ""


def plan_routes(inquiry, strategy, n_attempts):
    """The routes to take.

    Parameters
    ----------
    inquiry : Inquiry
    strategy : {"auto", "saturation", "hessian"}
    n_attempts : int

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        If the strategy cannot work for these widths and activations.
    """
    hidden, last_resort = inquiry.activations[0], None
    if hidden in _PIECEWISE_LINEAR:
        _check_relu(inquiry, strategy)
        routes = [by_kinks]
    elif inquiry.oracle.output_bounds is not None:
        routes = [by_outputs_between]
    elif strategy == "saturation" and not get_activation(hidden).saturating:
        raise NotIdentified(
            "plan",
            "options",
            "strategy='saturation' needs an activation that saturates (tanh, sigmoid, erf), got "
            f"{hidden!r}; use strategy='hessian'.",
        )
    elif strategy == "auto" and has_profiles(inquiry) and not inquiry.pipeline.first:
        routes = _routes_far_out(inquiry, n_attempts)
    elif hidden == "elu":
        raise NotIdentified(
            "plan",
            "options",
            "activation='elu' has no second derivative at 0: its networks are identified with one hidden layer, linear "
            "output and strategy='auto', where answers are exact in double precision and no input_range bounds them. "
            f"Got layer_widths={inquiry.widths}, output_activation={inquiry.activations[1]!r}, strategy={strategy!r}, "
            f"and answers with errors of {inquiry.fresh.noise:.1e}.",
        )
    elif (foreseen := foresee(inquiry)) is not None:
        reason = "input_range keeps questions where neither answers nor Hessians tell most of the weights"
        warning = f"{foreseen}: the function is looked for there, the weights stay open."
        return Plan([functools.partial(by_function, foreseen=foreseen)], reason, warning=warning)
    elif inquiry.discover:
        routes = _routes_of_discovery(inquiry, strategy, n_attempts)
    else:
        layers = FirstLayerSearch()
        routes = _with_patches(inquiry, strategy, _routes_of_widths(inquiry, strategy, n_attempts, layers), layers)
        if any(getattr(route, "func", None) is by_saturation for route in routes):
            last_resort = functools.partial(by_shown_units, layers=layers)
    return Plan(routes, _reason(inquiry, strategy), last_resort)


def _routes_far_out(inquiry, n_attempts):
    """Where units grow linearly: every one by itself far out, else Hessians where there are some and widths given."""
    alone = inquiry.discover or not get_activation(inquiry.activations[0]).smooth
    near = [] if alone else [functools.partial(by_hessians, attempt=k) for k in range(n_attempts)]
    return [functools.partial(by_profiles, alone=alone), *near]


def _routes_of_discovery(inquiry, strategy, n_attempts):
    """Where depth and widths are to be found."""
    hidden = inquiry.activations[0]
    if not get_activation(hidden).saturating or strategy == "hessian":
        raise NotIdentified(
            "plan",
            "options",
            "layer_widths='auto' finds units where a saturating activation (tanh, sigmoid, erf) saturates, and with "
            "one hidden layer and exact answers far out those of softplus, gelu, silu and elu; got "
            f"activation={hidden!r}, strategy={strategy!r}. Give layer_widths.",
        )
    layers = FirstLayerSearch()
    return [functools.partial(by_discovery, layers=layers, attempt=k) for k in range(min(n_attempts, 2))]


def _routes_of_widths(inquiry, strategy, n_attempts, layers):
    """Where the widths are known, or there is one hidden layer."""
    near = [functools.partial(by_hessians, attempt=k) for k in range(n_attempts)]
    far = [functools.partial(by_saturation, layers=layers, attempt=k) for k in range(n_attempts)]
    can_saturate = get_activation(inquiry.activations[0]).saturating and not inquiry.shallow
    if strategy == "saturation" and can_saturate:
        return far
    starts_far = can_saturate and strategy == "auto" and not inquiry.pipeline.first
    fits = inquiry.shallow or n_visible(inquiry.architecture()) <= n_free_entries(inquiry.oracle.n_inputs)
    if inquiry.shallow or (len(inquiry.widths) <= 3 and (fits or not starts_far)):
        return ([far[0], *far[1:2], *near] if starts_far else near)[:n_attempts]
    if starts_far:
        return far
    raise NotIdentified(
        "plan",
        "options",
        f"layer_widths={inquiry.widths}: the Hessian route tells inner layers apart up to three layers; deeper "
        "networks need a saturating activation and strategy='saturation'.",
    )


def _with_patches(inquiry, strategy, routes, layers):
    """The routes and the one on patches: first where nothing else is likely to do, else where the first one fails."""
    if strategy == "hessian" or inquiry.pipeline.first or not patches_serve(inquiry):
        return routes
    on_patches = functools.partial(by_patches, layers=layers)
    if patches_pay(inquiry):
        return [on_patches, *routes]
    return [functools.partial(_by_either, first=routes[0], then=on_patches), *routes[1:]]


def _by_either(inquiry, earlier, *, first, then):
    """One attempt by the first route or, where that does not explain the answers, by another one."""
    found = first(inquiry, earlier)
    if (found is not None and found.error < inquiry.accepted_error) or inquiry.out_of_time:
        return found
    try:
        other = then(inquiry, earlier)
    except OutOfBudgetError:
        if found is None:
            raise
        return found
    tried = [attempt for attempt in (found, other) if attempt is not None]
    return min(tried, key=lambda attempt: attempt.error, default=None)


def _reason(inquiry, strategy):
    """Why the routes are those that they are."""
    name = inquiry.activations[0]
    if inquiry.oracle.output_bounds is not None:
        return f"the outputs are clipped: the {name} network is identified strictly between the plateaus"
    if strategy != "auto":
        return f"strategy={strategy!r} was asked for"
    if name in _PIECEWISE_LINEAR:
        return f"{name} networks bend at kinks only"
    if has_profiles(inquiry) and not inquiry.pipeline.first:
        return f"{name} is linear far out, where every unit of one hidden layer shows by itself"
    if not get_activation(name).saturating:
        return f"{name} does not saturate, so Hessians have to tell its units"
    if inquiry.pipeline.first:
        return "stages were given, or the input range does not reach to where units saturate"
    if inquiry.shallow and not inquiry.discover:
        return f"{name} saturates, and with one hidden layer a fit of scales and shifts is all that is left"
    if not inquiry.discover and patches_serve(inquiry) and patches_pay(inquiry):
        return f"{name} saturates far out, and on patches powers show a second layer that gradients and vertices do not"
    return f"{name} saturates far out"


def _undo_output(hidden, output):
    """What to do where kinks are behind an output activation."""
    inverse = _INVERSES.get(output, "inverse")
    return (
        f"activation={hidden!r}: kinks are looked for behind a linear output, got output_activation={output!r}. Undo "
        f"it first: identify `lambda X: {inverse}(black_box(X))` with output_activation='identity' and an input_range "
        "in which answers keep clear of the output's limits; weights and shifts are the black box's."
    )


def _check_relu(inquiry, strategy):
    """Refuse what kinks cannot identify."""
    name, widths = inquiry.activations[0], inquiry.widths
    if strategy == "saturation":
        raise NotIdentified(
            "plan",
            "options",
            f"strategy='saturation' needs an activation that saturates smoothly, got {name!r}; use strategy='auto'.",
        )
    flat = widths is not None and len(widths) < 2
    if strategy == "hessian" or flat:
        raise NotIdentified(
            "plan",
            "options",
            f"activation={name!r} has no second derivative; its networks are identified by the kinks of their answers, "
            "with hidden layers, a linear output and strategy='auto'. Got "
            f"layer_widths={widths}, output_activation={inquiry.activations[1]!r}, strategy={strategy!r}.",
        )
    if inquiry.activations[1] != "identity":
        raise NotIdentified("plan", "options", _undo_output(name, inquiry.activations[1]))
    if name == "hard_tanh" and widths is not None and len(widths) > 2:
        raise NotIdentified(
            "plan",
            "options",
            f"activation='hard_tanh': only one hidden layer can be identified, got layer_widths={widths}.",
        )
