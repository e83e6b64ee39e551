"""Rules of layers with weights: which units they write and read, along which axes of which tensors.

A rule is a function ``rule(call)`` that returns the value of a node and adds tensors to the call's registry. A
`ValueError` says why units cannot be followed through the node.
"""

from dataclasses import dataclass, replace

from torch import nn

from .blocks import extents
from .units import Axis, Tensor, Units

PLAIN = None  # the value of what has no units: inputs, and what is computed from them alone


@dataclass(frozen=True)
class Call:
    """A node with everything that its rule needs.

    `name` is the submodule's or the node's, `step` its place in the graph. `args` and `kwargs` have values in place of
    nodes. `tensors` maps the module's own names to (name in the model, shape, whether it is a parameter).
    """

    name: str
    step: int
    args: tuple
    kwargs: dict
    module: object
    tensors: dict
    registry: object

    @property
    def x(self):
        """The first argument."""
        return self.args[0] if self.args else self.kwargs.get("input", PLAIN)

    def argument(self, position, name, default=None):
        """An argument by position or by name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    def add(self, role, axes, **options):
        """Add the units of one of the module's tensors, if it has that one; `options` are those of `Tensor`."""
        entry = self.tensors.get(role)
        if entry is not None:
            name, shape, trained = entry
            for number, axis in axes.items():
                extents(axis.segments, shape[number])
            self.registry.add_tensor(name, Tensor(shape, axes, trained, self.step, **options))

    def units_of(self, role, axis):
        """The units along an axis of a tensor that another node has added already, else None."""
        entry = self.tensors.get(role)
        known = self.registry.tensors.get(entry[0]) if entry else None
        return known.axes[axis].segments[0] if known and axis in known.axes else None


def _dense(call, output_axis, input_axis, units):
    """A layer that mixes channels: new units along one axis of its weights, its inputs' along the other."""
    if "weight" not in call.tensors:
        raise ValueError("its weight is not a parameter.")
    shape = call.tensors["weight"][1]
    out = call.units_of("weight", output_axis) or call.registry.new_units(call.name, shape[output_axis])
    axes = {output_axis: Axis((out,), 1)}
    if call.x is not PLAIN:
        axes[input_axis] = Axis(call.x.segments, -1)
    call.add("weight", axes)
    call.add("bias", {0: Axis((out,), 1)})
    return replace(units, segments=(out,))


def _linear(call):
    if call.x is not PLAIN and call.x.axis != -1 and call.x.ndim != 2:
        raise ValueError("it does not run along the channels.")
    return _dense(call, 0, 1, Units((), -1, None if call.x is PLAIN else call.x.ndim))


def _convolution(call):
    module, x = call.module, call.x
    ndim = len(module.kernel_size) + 2
    if x is not PLAIN and (x.axis != 1 or x.ndim != ndim):
        raise ValueError("it does not run along the channels.")
    units = Units((), 1, ndim)
    if module.groups == 1:
        return _dense(call, *((1, 0) if module.transposed else (0, 1)), units)
    if module.groups != module.in_channels or module.in_channels != module.out_channels:
        raise ValueError(f"groups={module.groups}: of grouped convolutions only depthwise ones are supported.")
    return PLAIN if x is PLAIN else _depthwise(call, x)


def _depthwise(call, x):
    """Every channel on its own: the same space, a new factor."""
    sizes = [s.size for s in x.segments]
    if None in sizes or sum(sizes) != call.module.in_channels:
        raise ValueError(f"its {call.module.in_channels} channels are not the {sizes} units in front of it.")
    out = call.registry.with_new_factors(call.name, x.segments)
    call.add("weight", {0: Axis(out, 1, second=x.segments)})
    call.add("bias", {0: Axis(out, 1)})
    return replace(x, segments=out)


def _embedding(call):
    fits = call.x is PLAIN and call.module.max_norm is None
    return _dense(call, 1, 0, Units((), -1)) if fits else _unsupported(call)


def _norm_with(scale, signs, along_channels):
    """A rule for norm layers: whether they undo scales and signs, and when they run along the channels."""

    def rule(call):
        x, module = call.x, call.module
        if x is PLAIN:
            return PLAIN
        if not along_channels(module, x):
            raise ValueError("it does not run along the channels.")
        affine, tracked = "weight" in call.tensors, "running_var" in call.tensors
        out = call.registry.with_new_factors(call.name, x.segments) if affine else x.segments
        call.registry.restrict(x.segments, sign=signs, scale=scale and tracked and affine)
        inputs, outputs = Axis(x.segments, 1), Axis(out, 1)
        link = {}
        if affine and signs:
            variance = call.tensors["running_var"][0] if tracked else None
            link = {"link": x.segments, "variance": variance, "eps": module.eps or 0.0}
        call.add("running_mean", {0: inputs})
        call.add("running_var", {0: replace(inputs, power=2)})
        call.add("weight", {0: outputs}, **link)
        call.add("bias", {0: outputs})
        return replace(x, segments=out, ndim=_norm_ndim(module, x))

    return rule


def _norm_ndim(module, x):
    """Number of axes, which batch norm determines if it was unknown."""
    return 2 if isinstance(module, nn.BatchNorm1d) and x.axis == -1 else x.ndim


def _batch_along(module, x):
    return x.axis == 1 or (isinstance(module, nn.BatchNorm1d) and x.ndim in (None, 2))


def _instance_along(module, x):
    return x.axis == 1


def _layer_along(module, x):
    n = len(module.normalized_shape)
    return n == 1 if x.axis == -1 else x.ndim == n + 1


def _group_along(module, x):
    if module.num_groups != 1:
        raise ValueError(f"num_groups={module.num_groups}: only one group over all channels is supported.")
    return x.axis == 1 or x.ndim == 2


def _prelu(call):
    if call.x is not PLAIN:
        call.registry.restrict(call.x.segments, sign=False)
        if call.module.num_parameters > 1:
            call.add("weight", {0: Axis(call.x.segments, 0)})
    return call.x


def _unsupported(call):
    raise ValueError("this operation is not supported.")


BATCH_NORM = _norm_with(scale=True, signs=True, along_channels=_batch_along)
INSTANCE_NORM = _norm_with(scale=False, signs=True, along_channels=_instance_along)
RMS_NORM = _norm_with(scale=False, signs=True, along_channels=_layer_along)
LAYER_NORM = _norm_with(scale=False, signs=False, along_channels=_layer_along)
GROUP_NORM = _norm_with(scale=False, signs=False, along_channels=_group_along)

LAYER_RULES = {
    nn.Linear: _linear,
    **{getattr(nn, f"{kind}{k}d"): _convolution for kind in ("Conv", "ConvTranspose") for k in (1, 2, 3)},
    nn.Embedding: _embedding,
    **{getattr(nn, f"BatchNorm{k}d"): BATCH_NORM for k in (1, 2, 3)},
    **{getattr(nn, f"InstanceNorm{k}d"): INSTANCE_NORM for k in (1, 2, 3)},
    nn.LayerNorm: LAYER_NORM,
    nn.RMSNorm: RMS_NORM,
    nn.GroupNorm: GROUP_NORM,
    nn.PReLU: _prelu,
}
