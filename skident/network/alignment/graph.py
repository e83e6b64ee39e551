"""Trace a module with torch.fx, compare two graphs, and propagate units through the operations of one."""

import copy

import torch
from torch import fx, nn

from .blocks import Symmetry
from .layers import PLAIN, Call
from .operations import FUNCTION_RULES, METHOD_RULES, MODULE_RULES, OF_SEVERAL, WITH_NUMBERS, WITH_SIZES
from .units import UnitRegistry, Units


class _Attribute:
    """The value of a node that fetches a tensor of the model."""

    def __init__(self, name):
        self.name = name


class _Tracer(fx.Tracer):
    """One that knows in which submodule it stopped."""

    def __init__(self):
        super().__init__()
        self.inside = []

    def call_module(self, m, forward, args, kwargs):
        """As torch.fx does, with the path of the submodule on a stack."""
        self.inside.append(self.path_of_module(m))
        value = super().call_module(m, forward, args, kwargs)
        self.inside.pop()
        return value


def traced(model, name):
    """A copy of a module on the CPU in evaluation mode, with its graph; `name` is for messages."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{name} must be a torch.nn.Module, got {type(model).__name__}.")
    for path, tensor in _named_tensors(model):
        if nn.parameter.is_lazy(tensor):
            raise ValueError(f"{name}: {path!r} has no shape yet; call the module once.")
        if tensor.is_complex() or tensor.is_quantized:
            raise ValueError(f"{name}: {path!r} has dtype {tensor.dtype}; only real numbers are supported.")
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name}: {path!r} has entries that are not finite.")
    tracer = _Tracer()
    try:
        model = copy.deepcopy(model).cpu().eval()
        graph = tracer.trace(model)
    except Exception as error:  # any error of the module's own code on proxies
        reason = str(error).strip().splitlines() or [type(error).__name__]
        where = f", in submodule {tracer.inside[-1]!r}" if tracer.inside else ""
        raise ValueError(f"{name} cannot be copied and traced by torch.fx{where}: {reason[0]}") from error
    return fx.GraphModule(model, graph)


def difference_of_graphs(a, b):
    """How two traced modules differ in more than the numbers in their tensors; None if they do not."""
    shapes = [{path: tuple(t.shape) for path, t in _named_tensors(module)} for module in (a, b)]
    for path in [*shapes[0], *shapes[1]]:
        one, other = (shape.get(path, "none") for shape in shapes)
        if one != other:
            return f"the models have different shapes: {path!r} is {one} in model_a, {other} in model_b."
    for one, other in zip(a.graph.nodes, b.graph.nodes):  # of unequal lengths, one's output meets another node
        signatures = _signature(a, one), _signature(b, other)
        if signatures[0] != signatures[1]:
            nodes = f"node {one.name!r}, {signatures[0][0]}, in model_a, {other.name!r}, {signatures[1][0]}, in model_b"
            return f"the models have different graphs: {nodes}."
    return None


def _named_tensors(model):
    return [*model.named_parameters(), *model.named_buffers()]


def _signature(module, node):
    """What a node computes, and from which nodes."""
    what = _title(node)
    if node.op == "call_module":
        layer = module.get_submodule(node.target)
        what = f"{type(layer).__name__}({layer.extra_repr()})"
    return what, node.op, node.target, str((node.args, node.kwargs))


def _title(node):
    return getattr(node.target, "__name__", str(node.target))


def symmetry_of(module):
    """Symmetry of a traced module: units that may be permuted, flipped and rescaled.

    A ValueError names the node if units reach an operation that is not supported.
    """
    walk = _Walk(module)
    for step, node in enumerate(module.graph.nodes):
        try:
            walk.values[node] = walk.value(node, step)
        except ValueError as error:
            what = walk.layer_title(node) if node.op == "call_module" else _title(node)
            raise ValueError(f"units cannot be followed through node {node.name!r} ({what}): {error}") from None
    return walk.symmetry()


class _Walk:
    """The values of all nodes so far: `Units`, tensors of the model, or PLAIN."""

    def __init__(self, module):
        self.module, self.registry, self.values = module, UnitRegistry(), {}
        self._names = {id(t): path for path, t in reversed(_named_tensors(module))}
        self._plain = set()  # tensors used in other ways than as weights

    def layer_title(self, node):
        return type(self.module.get_submodule(node.target)).__name__

    def value(self, node, step):
        """Value of a node: Units, a tensor of the model, or PLAIN."""
        if node.op == "placeholder":
            return PLAIN
        if node.op == "get_attr":
            return _Attribute(self._attribute_name(node.target))
        operands = [self.values[n] for n in node.all_input_nodes]
        units = [v for v in operands if isinstance(v, Units)]
        if node.op == "output":
            for value in units:
                self.registry.pin(value.segments)
            return PLAIN
        module = self.module.get_submodule(node.target) if node.op == "call_module" else None
        rule = self._rule(node, module)
        tensors = self._tensors(node, module, rule)
        if rule is None:
            trains = module is not None and next(module.parameters(), None) is not None
            if units or trains:
                raise ValueError("this operation is not supported.")
            return PLAIN
        if not units and not tensors:
            return PLAIN
        args, kwargs = (fx.node.map_arg(a, self._argument(rule)) for a in (node.args, node.kwargs))
        name = node.target if module is not None else node.name
        call = Call(name, step, tuple(args), dict(kwargs), module, tensors, self.registry)
        weights = sum(isinstance(v, _Attribute) for v in operands) if tensors else 0
        alone = isinstance(call.x, Units) and len(operands) == 1 + weights
        if units and not alone and rule not in OF_SEVERAL | WITH_SIZES:
            raise ValueError("this operation is not supported.")
        result = rule(call)
        self._plain |= {path for path, _, _ in tensors.values()} if result is PLAIN else set()
        return result

    def _attribute_name(self, target):
        owner, _, leaf = target.rpartition(".")
        return self._names.get(id(getattr(self.module.get_submodule(owner), leaf)), target)

    def _argument(self, rule):
        """What a rule gets in place of a node: Units, PLAIN, or a number for a tensor with one entry."""

        def seen(node):
            value = self.values[node]
            is_number = isinstance(value, _Attribute) and self._tensor(value.name).numel() == 1
            return value if isinstance(value, Units) else 1.0 if is_number and rule in WITH_NUMBERS else PLAIN

        return seen

    def _rule(self, node, module):
        if module is not None:
            return MODULE_RULES.get(type(module))
        return (METHOD_RULES if node.op == "call_method" else FUNCTION_RULES).get(node.target)

    def _tensors(self, node, module, rule):
        """Name, shape and whether it is a parameter, of the tensors that a layer's rule may move."""
        found, weights = {}, {}
        if module is not None:
            own = {**module._parameters, **module._buffers}
            found = {role: (self._names[id(t)], t) for role, t in own.items() if t is not None and id(t) in self._names}
        elif rule is FUNCTION_RULES[torch.nn.functional.linear]:
            given = dict(zip(("input", "weight", "bias"), node.args)) | dict(node.kwargs)
            weights = {role: given[role] for role in ("weight", "bias") if isinstance(given.get(role), fx.Node)}
            names = {r: self.values[n].name for r, n in weights.items() if isinstance(self.values[n], _Attribute)}
            found = {role: (name, self._tensor(name)) for role, name in names.items()}
        for n in node.all_input_nodes:
            if isinstance(self.values[n], _Attribute) and n not in weights.values():
                self._plain.add(self.values[n].name)
        return {role: (n, tuple(t.shape), isinstance(t, nn.Parameter)) for role, (n, t) in found.items()}

    def _tensor(self, name):
        owner, _, leaf = name.rpartition(".")
        return getattr(self.module.get_submodule(owner), leaf)

    def symmetry(self) -> Symmetry:
        for name in self._plain & self.registry.tensors.keys():
            tensor = self.registry.tensors[name]
            for axis in tensor.axes.values():
                self.registry.pin((*axis.segments, *axis.second, *tensor.link))
        values = {node.name: value for node, value in self.values.items() if isinstance(value, Units)}
        return self.registry.symmetry(values)
