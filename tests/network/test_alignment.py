import copy
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skident.network import ModuleAlignment, align_modules
from skident.network.alignment.blocks import extents
from skident.network.alignment.graph import symmetry_of, traced
from skident.network.alignment.matching import best_signs, signs_of
from skident.network.alignment.symmetry import fitted_factors, moved_arrays, standard_factors
from skident.network.alignment.units import Segment
from tests.network.module_cases import CASES, ResNet, inputs, mlp, random_module

# -- module alignment --------------------------------------------------------------------------------------------------


def largest_difference(module, other):
    """Of any parameter or running statistic."""
    pairs = zip(module.state_dict().values(), other.state_dict().values(), strict=True)
    return max((p.double() - q.double()).abs().max().item() for p, q in pairs)


def distance(module, other):
    return sum(((p - q) ** 2).sum().item() for p, q in zip(module.parameters(), other.parameters())) ** 0.5


def change_of_function(module, other, X):
    with torch.no_grad():
        return (module(X) - other(X)).abs().max().item()


# -- any module --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_function_is_kept(case):
    a, b = random_module(case, 1), random_module(case, 2)
    before = [copy.deepcopy(module.state_dict()) for module in (a, b)]
    alignment = align_modules(a, b, random_state=0)
    assert isinstance(alignment, ModuleAlignment)
    assert change_of_function(alignment.module, b, inputs(case, 3)) <= 1e-12
    assert alignment.distance < alignment.distance_before
    assert alignment.distance == pytest.approx(distance(a, alignment.module))
    assert alignment.distance_before == pytest.approx(distance(a, b))
    assert all(torch.equal(v, m.state_dict()[k]) for m, old in zip((a, b), before) for k, v in old.items())


@pytest.mark.parametrize("by_answers", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_symmetry_is_undone(case, by_answers):
    """What matches a module to an unrelated one is a symmetry of it."""
    a, unrelated = random_module(case, 4), random_module(case, 5)
    b = align_modules(unrelated, a, random_state=1).module
    assert largest_difference(a, b) > 0.1
    alignment = align_modules(a, b, inputs(case, 6, n=30) if by_answers else None, random_state=2)
    assert largest_difference(a, alignment.module) < 1e-9
    assert alignment.distance < 1e-9 < alignment.distance_before


@pytest.mark.parametrize("eps", [1e-30, 1e-5])
@pytest.mark.parametrize("case", ["residual relu", "residual tanh", "separable tanh", "batch norm behind linear"])
def test_function_is_kept_in_training_mode(case, eps):
    """But for what batch norm adds to variances."""
    a, b = random_module(case, 7), random_module(case, 8)
    for layer in (*a.modules(), *b.modules()):
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            layer.eps = eps
    b.train()
    alignment = align_modules(a, b, random_state=0)
    assert alignment.module.training and not a.training
    change = change_of_function(alignment.module, b, inputs(case, 9, n=20))
    assert change < (1e-12 if eps < 1e-20 else 1e-2)


def test_single_precision_stays_single():
    a, b = (random_module("residual relu", seed).float() for seed in (10, 11))
    alignment = align_modules(a, b, random_state=0)
    assert {p.dtype for p in alignment.module.parameters()} == {torch.float32}
    assert change_of_function(alignment.module, b, inputs("residual relu", 12).float()) < 1e-5
    again = align_modules(b, alignment.module)
    assert largest_difference(again.module, b) < 1e-5


# -- symmetries planted by hand ----------------------------------------------------------------------------------------


def disguised_mlp(module, rng):
    """Linear layers of a Sequential permuted, and flipped behind Tanh or rescaled behind ReLU; orders and factors."""
    module = copy.deepcopy(module)
    orders, factors = [], []
    for k in range(0, len(module) - 2, 2):
        m = module[k].out_features
        orders.append(torch.from_numpy(rng.permutation(m)))
        odd = isinstance(module[k + 1], nn.Tanh)
        factors.append(torch.from_numpy(rng.choice([-1.0, 1.0], m) if odd else np.exp(rng.normal(size=m))))
        with torch.no_grad():
            module[k].weight[:] = module[k].weight[orders[-1]] * factors[-1][:, None]
            module[k].bias[:] = module[k].bias[orders[-1]] * factors[-1]
            module[k + 2].weight[:] = module[k + 2].weight[:, orders[-1]] / factors[-1]
    return module, orders, factors


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_planted_symmetries_of_a_perceptron(activation, rng):
    for seed in range(10):
        a = random_module(lambda: mlp(activation, (6, 20, 20, 20, 20, 4)), seed)
        b, orders, factors = disguised_mlp(a, rng)
        alignment = align_modules(a, b)
        assert largest_difference(alignment.module, a) < 1e-12
        for name, order, factor in zip(("0", "2", "4", "6"), orders, factors):
            np.testing.assert_array_equal(alignment.permutations[name], torch.argsort(order))
            found = (alignment.signs if activation is nn.Tanh else alignment.scales)[name]
            np.testing.assert_allclose(found, 1.0 / factor[torch.argsort(order)], rtol=1e-12)


def disguised_resnet(module, rng):
    """A residual net with its stream and the insides of its blocks permuted, rescaled and, in front of batch norm,
    flipped.
    """
    module = copy.deepcopy(module)

    def move(reader_of, conv, norm, order, scale):
        """The outputs of a convolution with batch norm, its inputs by (order, scale) of the stream in front."""
        c = torch.from_numpy(rng.choice([-1.0, 1.0], len(order)) * np.exp(0.5 * rng.normal(size=len(order))))
        old, new = norm.running_var.clone(), c**2 * norm.running_var[order]
        conv.weight[:] = conv.weight[order] * c[:, None, None, None]
        if reader_of is not None:
            conv.weight[:] = conv.weight[:, reader_of[0]] / reader_of[1][:, None, None]
        norm.running_mean[:], norm.running_var[:] = norm.running_mean[order] * c, new
        correction = torch.sqrt((new + norm.eps) / (old[order] + norm.eps)) / c
        norm.weight[:], norm.bias[:] = norm.weight[order] * scale * correction, norm.bias[order] * scale

    def some(m):
        return torch.from_numpy(rng.permutation(m)), torch.from_numpy(np.exp(rng.normal(size=m)))

    with torch.no_grad():
        stream = some(len(module.conv.weight))
        move(None, module.conv, module.norm, *stream)
        for block in module.blocks:
            before = stream
            if len(block.shortcut):
                stream = some(len(block.conv2.weight))
                move(before, block.shortcut[0], block.shortcut[1], *stream)
            inner = some(len(block.conv1.weight))
            move(before, block.conv1, block.norm1, *inner)
            move(inner, block.conv2, block.norm2, *stream)
        module.head.weight[:] = module.head.weight[:, stream[0]] / stream[1]
    return module


def test_planted_symmetries_of_a_residual_network(rng):
    """Found every time, where descent from the order as it is stays in local minima."""
    for seed in range(10):
        a = random_module(lambda: ResNet((10, 12), n_blocks=3), seed)
        b = disguised_resnet(a, rng)
        X = inputs("residual relu", seed)
        assert change_of_function(b, a, X) < 1e-12
        alignment = align_modules(a, b, n_starts=1)
        assert largest_difference(alignment.module, a) < 1e-10
        assert change_of_function(alignment.module, a, X) < 1e-12


@pytest.mark.parametrize("size", [0.03, 0.3])
def test_planted_symmetries_under_noise(size, rng):
    """Parameters that differ besides: no further away than the planted symmetry is."""
    for seed in range(5):
        a = random_module(lambda: ResNet((10, 12), n_blocks=2), seed)
        changed = copy.deepcopy(a)
        with torch.no_grad():
            for p in changed.parameters():
                p += size * p.std() * torch.from_numpy(rng.normal(size=p.shape))
        alignment = align_modules(a, disguised_resnet(changed, rng), random_state=seed)
        assert alignment.distance <= distance(a, changed)


def test_dead_units_are_matched_by_their_weights(rng):
    a = random_module(lambda: mlp(nn.ReLU, (4, 8, 3)), 0)
    with torch.no_grad():
        a[0].bias[:3] = -100.0
    b = disguised_mlp(a, rng)[0]
    X = rng.normal(size=(50, 4))
    assert (a[1](a[0](torch.from_numpy(X)))[:, :3] == 0).all()
    assert largest_difference(align_modules(a, b, X).module, a) < 1e-10


@pytest.mark.parametrize("by_answers", [False, True])
def test_channels_that_decayed_to_nothing(by_answers):
    a, b = (random_module("residual relu", seed).float() for seed in (21, 22))
    X = inputs("residual relu", 23, n=20).float()
    with torch.no_grad():
        for layer, norm in ((b.blocks[0].conv1, b.blocks[0].norm1), (b.conv, b.norm)):
            layer.weight[2] = 1e-30
            norm.running_var[2] = 0.0
    alignment = align_modules(a, b, X if by_answers else None, random_state=0)
    assert all(torch.isfinite(value).all() for value in alignment.module.state_dict().values())
    assert change_of_function(alignment.module, b, X) < 1e-4


def test_a_module_and_itself():
    a = random_module("residual tanh", 13)
    alignment = align_modules(a, a)
    assert alignment.distance == alignment.distance_before == 0.0
    assert all((order == np.arange(len(order))).all() for order in alignment.permutations.values())
    assert all((c == 1.0).all() for c in (*alignment.signs.values(), *alignment.scales.values()))
    assert alignment.permutations.keys() == {
        "conv", "blocks.0.conv1", "blocks.1.conv1", "blocks.2.conv1", "blocks.2.conv2", "blocks.3.conv1",
    }  # fmt: skip
    assert alignment.signs["norm"].shape == alignment.scales["blocks.1.conv2"].shape == (6,)
    assert "norm" not in alignment.scales and "head" not in alignment.permutations


# -- against all there are ---------------------------------------------------------------------------------------------


class Stream(nn.Module):
    """Three units in a stream, two beside it."""

    def __init__(self):
        super().__init__()
        self.into, self.up, self.down, self.out = (nn.Linear(n, m) for n, m in ((3, 3), (3, 2), (2, 3), (3, 2)))

    def forward(self, x):
        x = torch.tanh(self.into(x))
        return self.out(x + torch.tanh(self.down(torch.tanh(self.up(x)))))


def signed_orders(m):
    """All signed permutation matrices (m, m)."""
    for order, signs in itertools.product(itertools.permutations(range(m)), itertools.product((1.0, -1.0), repeat=m)):
        yield np.eye(m)[list(order)] * np.array(signs)[:, None]


def reference_distance(a, b):
    """The least distance of b's weights from a's, over all symmetries of `Stream`."""
    (W, w, U, u, V, v, R, r), (W2, w2, U2, u2, V2, v2, R2, r2) = (
        [p.detach().numpy() for p in module.parameters()] for module in (a, b)
    )
    inner = list(signed_orders(2))
    best = np.inf
    for P in signed_orders(3):
        fixed = ((W - P @ W2) ** 2).sum() + ((w - P @ w2) ** 2).sum() + ((R - R2 @ P.T) ** 2).sum()
        fixed += ((v - P @ v2) ** 2).sum() + ((r - r2) ** 2).sum()
        for Q in inner:
            moves = ((U - Q @ U2 @ P.T) ** 2).sum() + ((u - Q @ u2) ** 2).sum() + ((V - P @ V2 @ Q.T) ** 2).sum()
            best = min(best, fixed + moves)
    return np.sqrt(best)


def test_the_least_distance_is_found_where_all_symmetries_can_be_tried():
    found = 0
    for seed in range(20, 40):
        a, b = random_module(Stream, seed), random_module(Stream, seed + 100)
        least, ours = reference_distance(a, b), align_modules(a, b, n_starts=20, random_state=0).distance
        assert ours >= least - 1e-12
        found += ours <= least + 1e-12
    assert found >= 18


def test_outputs_are_matched_as_well_as_any_order_can(rng):
    X = rng.normal(size=(60, 5))
    a, b = (random_module(lambda: mlp(nn.GELU, (5, 5, 2)), seed) for seed in (14, 15))
    alignment = align_modules(a, b, X)
    before, behind = ([layer(torch.from_numpy(X)) for layer in (m[0], m[:2])] for m in (a, b))
    correlations = sum(np.corrcoef(p.detach().numpy().T, q.detach().numpy().T)[:5, 5:] for p, q in zip(before, behind))
    best = max(itertools.permutations(range(5)), key=lambda order: correlations[range(5), order].sum())
    np.testing.assert_array_equal(alignment.permutations["0"], best)
    assert change_of_function(alignment.module, b, torch.from_numpy(X)) < 1e-12


def test_more_starts_come_closer_and_repeat_themselves():
    a, b = random_module("residual tanh", 16), random_module("residual tanh", 17)
    distances = [align_modules(a, b, n_starts=n, random_state=3).distance for n in (1, 12, 12)]
    assert distances[1] == distances[2] <= distances[0]


def test_the_random_streams_stay_where_they_are():
    a, b = random_module("residual relu", 18), random_module("residual relu", 19)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    align_modules(a, b, n_starts=7, random_state=0)
    assert torch.equal(torch.get_rng_state(), states[0]) and (np.random.get_state()[1] == states[1]).all()


# -- refused -----------------------------------------------------------------------------------------------------------


class Applied(nn.Module):
    """Two layers and any function between them."""

    def __init__(self, function, first=None, last=None):
        super().__init__()
        self.first, self.function, self.last = first or nn.Linear(5, 6), function, last or nn.Linear(6, 3)

    def forward(self, x):
        return self.last(self.function(self.first(x)))


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attend = nn.Linear(5, 6), nn.MultiheadAttention(6, 2)

    def forward(self, x):
        x = self.embed(x)
        return self.attend(x, x, x)[0]


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, dtype=torch.complex64))


def padded_channels(x):
    return F.pad(x, (0, 0, 0, 0, 2, 2))


CONV = nn.Conv2d(2, 6, 3)
REFUSED = {
    "control flow": (lambda: Applied(lambda x: x if x.sum() > 0 else -x), "cannot be copied and traced by torch.fx"),
    "attention": (Attentive, r"node 'attend' \(MultiheadAttention\): this operation is not supported"),
    "recurrent": (lambda: nn.Sequential(nn.Linear(5, 6), nn.LSTM(6, 4)), r"node '_1' \(LSTM\)"),
    "grouped": (lambda: nn.Sequential(nn.Conv2d(2, 6, 1), nn.Conv2d(6, 6, 1, groups=2)), "groups=2: of grouped conv"),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(2, 6, 1), nn.GroupNorm(3, 6)), "num_groups=3"),
    "matmul": (lambda: Applied(lambda x: x @ x.transpose(-1, -2)), "transpose.*|matmul"),
    "attribute": (lambda: Applied(lambda x: x.T), r"node 'getattr_1' \(getattr\): this operation"),
    "mean of units": (lambda: Applied(lambda x: x.mean(1, keepdim=True)), "only means and sums over the axes after"),
    "rows concatenated": (lambda: Applied(lambda x: torch.cat([x, x], 0)), "dim=0: only concatenation"),
    "odd view": (lambda: Applied(lambda x: x.view(-1, 3, 2)), "of reshapings only"),
    "power of a tensor": (lambda: Applied(lambda x: x**x), "only powers that are numbers"),
    "division": (lambda: Applied(lambda x: x / (1 + x * x)), "only division by a number"),
    "limits of their own": (lambda: Applied(lambda x: torch.clamp(x, max=torch.arange(6))), r"node 'clamp' .*not supp"),
    "padded channels": (lambda: Applied(padded_channels, CONV, nn.Conv2d(10, 3, 1)), "only zeros around the axes"),
    "some channels": (lambda: Applied(lambda x: x[:, :3], CONV, nn.Conv2d(3, 3, 1)), "only slices along the axes"),
    "unlike sums": (lambda: Applied(lambda x: torch.cat([x, x], -1) + x), r"\[6, 6\] and \[6\] channels meet there"),
    "along columns": (lambda: Applied(lambda x: x, CONV, nn.Linear(6, 3)), r"node 'last' \(Linear\): it does not run"),
    "wrong inputs": (lambda: Applied(lambda x: x, None, nn.Linear(7, 3)), "its 7 inputs cannot be divided"),
    "derived weight": (lambda: Applied(lambda x: F.linear(x, CONV.weight.t())), "traced|not a parameter"),
    "parametrised": (
        lambda: nn.Sequential(nn.Linear(5, 6), nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))),
        r"ParametrizedLinear\): this operation is not supported",
    ),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(6), nn.ReLU()), "'0.weight' has no shape yet; call the module once"),
    "complex": (lambda: Complex(), "'weight' has dtype torch.complex64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused(name):
    build, message = REFUSED[name]
    a = build()
    with pytest.raises(ValueError, match=message):
        align_modules(a, copy.deepcopy(a))


def test_models_that_differ_are_refused():
    a = mlp(nn.ReLU)
    with pytest.raises(TypeError, match=r"model_b must be a torch.nn.Module, got OrderedDict"):
        align_modules(a, a.state_dict())
    with pytest.raises(ValueError, match=r"different shapes: '0.weight' is \(7, 5\) in model_a, \(8, 5\) in model_b"):
        align_modules(a, mlp(nn.ReLU, (5, 8, 6, 3)))
    with pytest.raises(ValueError, match=r"different shapes: '6.weight' is none in model_a, \(2, 3\) in model_b"):
        align_modules(a, mlp(nn.ReLU, (5, 7, 6, 3, 2)))
    with pytest.raises(ValueError, match=r"different graphs: node '_1', ReLU\(\), in model_a, '_1', Tanh\(\), in"):
        align_modules(a, mlp(nn.Tanh))
    with pytest.raises(ValueError, match=r"node 'output', output, in model_a, '_5', ReLU\(\), in"):
        align_modules(a, nn.Sequential(*a, nn.ReLU()))
    broken = copy.deepcopy(a)
    with torch.no_grad():
        broken[2].bias[1] = torch.nan
    with pytest.raises(ValueError, match="model_b: '2.bias' has entries that are not finite"):
        align_modules(a, broken)


def test_inputs_that_do_not_fit_are_refused(rng):
    a, b = mlp(nn.ReLU), mlp(nn.ReLU)
    before = copy.deepcopy(b.state_dict())
    with pytest.raises(ValueError, match="X does not go through model_a, at node '_0': mat1 and mat2"):
        align_modules(a, b, rng.normal(size=(10, 4)))
    with pytest.raises(ValueError, match="X has no rows"):
        align_modules(a, b, np.zeros((0, 5)))
    with pytest.raises(ValueError, match="model_a returns outputs on X that are not finite"):
        align_modules(a, b, np.full((3, 5), np.nan))
    with pytest.raises(ValueError, match="n_starts must be an integer >= 1, got 0"):
        align_modules(a, b, n_starts=0)
    assert all(torch.equal(value, before[name]) for name, value in b.state_dict().items())


# -- alignment parts ---------------------------------------------------------------------------------------------------


CHARACTERS = {
    "no sign": [()],
    "one": [(), (0,)],
    "one in front of another": [(0,), (0, 1), (1,)],
    "several in front of one": [(0,), (0, 1), (1,), (0, 2), (2,), (0, 3), ()],
    "a chain": [(0,), (0, 1), (1, 2), (2, 3), (3,)],
    "a triangle": [(0, 1), (1, 2), (0, 2), (1,)],
    "two alone": [(0,), (1,)],
}


@pytest.mark.parametrize("name", CHARACTERS)
def test_signs_are_the_best_of_all(name, rng):
    similarities = {frozenset(s): rng.normal(size=(4, 3)) for s in CHARACTERS[name]}
    flips = sorted(set().union(*similarities))
    score, signs = best_signs(similarities, flips)
    trials = [dict(zip(flips, s)) for s in itertools.product((1.0, -1.0), repeat=len(flips))]
    expected = np.max([sum(G * signs_of(s, trial) for s, G in similarities.items()) for trial in trials], axis=0)
    np.testing.assert_allclose(score, expected, atol=1e-12)
    np.testing.assert_allclose(sum(G * signs_of(s, signs) for s, G in similarities.items()), expected, atol=1e-12)
    assert all(np.isin(signs[f], (1.0, -1.0)).all() for f in flips)


def test_many_signs_that_hang_together_are_improved_in_turn(rng):
    pairs = itertools.combinations(range(7), 2)
    similarities = {frozenset(pair): rng.normal(size=(2, 2)) for pair in pairs}
    score, signs = best_signs(similarities, list(range(7)))
    np.testing.assert_allclose(score, sum(G * signs_of(s, signs) for s, G in similarities.items()))
    assert (score > sum(similarities.values())).all()


def arrays_of(module):
    return {name: tensor.numpy() for name, tensor in module.state_dict().items() if tensor.is_floating_point()}


@pytest.mark.parametrize("case", ["residual relu", "separable tanh", "concatenation", "views"])
def test_standard_form_does_not_depend_on_scales_and_order(case, rng):
    module = random_module(case, 30)
    symmetry, arrays = symmetry_of(traced(module, "module")), arrays_of(module)
    orders = [rng.permutation(m) for m in symmetry.sizes]
    scales = [
        np.exp(rng.normal(size=symmetry.sizes[f.space])) if f.scale else np.ones(symmetry.sizes[f.space])
        for f in symmetry.factors
    ]
    moved = moved_arrays(symmetry, arrays, orders, scales)
    plain, other = standard_factors(symmetry, arrays), standard_factors(symmetry, moved)
    for factor, one, two, scale in zip(symmetry.factors, plain, other, scales):
        np.testing.assert_allclose(two * scale, one[orders[factor.space]], rtol=1e-10)
        assert (one > 0.0).all()
    standard = moved_arrays(symmetry, arrays, [None] * len(orders), plain)
    again = moved_arrays(symmetry, moved, [np.argsort(order) for order in orders], [
        two[np.argsort(orders[f.space])] for f, two in zip(symmetry.factors, other)
    ])  # fmt: skip
    assert all(np.allclose(standard[name], again[name], rtol=1e-9, atol=1e-12) for name in standard)


def test_fitted_scales_are_where_the_distance_is_least(rng):
    a, b = random_module("mlp ReLU", 31), random_module("mlp ReLU", 32)
    symmetry = symmetry_of(traced(a, "a"))
    A, B = arrays_of(a), arrays_of(b)
    orders = [np.arange(m) for m in symmetry.sizes]

    def distance(factors):
        moved = moved_arrays(symmetry, B, orders, factors)
        return sum(((A[name] - moved[name]) ** 2).sum() for name in A)

    ones = [np.ones(m) for m in symmetry.sizes]
    fitted = fitted_factors(symmetry, A, B, orders, ones)
    assert distance(fitted) < distance(ones)
    for _ in range(20):
        near = [c * np.exp(0.02 * rng.normal(size=c.shape)) for c in fitted]
        assert distance(near) > distance(fitted) - 1e-6


def test_blocks_are_read_and_written_in_place():
    module = random_module("views", 33)
    symmetry, arrays = symmetry_of(traced(module, "module")), arrays_of(module)
    for block in symmetry.blocks:
        array = arrays[block.tensor].copy()
        values = block.read(array)
        assert values.shape[: len(block.spaces)] == tuple(symmetry.sizes[space] for space in block.spaces)
        block.write(array, 2.0 * values)
        block.write(array, 0.5 * block.read(array))
        np.testing.assert_array_equal(array, arrays[block.tensor])


def test_extents_of_segments():
    two, three, unknown, flat = Segment(0, 0, 2), Segment(1, 1, 3), Segment(), Segment(0, 0, 2, flattened=True)
    assert extents([two, three], 5) == [(0, 2, 1), (2, 3, 1)]
    assert extents([two, unknown, three], 9) == [(0, 2, 1), (2, 4, 1), (6, 3, 1)]
    assert extents([flat], 8) == [(0, 2, 4)]
    assert extents([three, flat], 11) == [(0, 3, 1), (3, 2, 4)]
    for segments, total in (([two], 3), ([flat], 7), ([unknown, unknown], 4), ([flat, unknown], 9)):
        with pytest.raises(ValueError, match="inputs cannot be divided among units"):
            extents(segments, total)


def test_tracing_leaves_the_module_alone():
    module = random_module("residual relu", 34).train()
    copy = traced(module, "module")
    assert module.training and not copy.training
    assert copy.conv.weight is not module.conv.weight and torch.equal(copy.conv.weight, module.conv.weight)


# -- unequal widths and depths -----------------------------------------------------------------------------------------


def perceptron(*widths, activation=nn.ReLU, seed=0):
    torch.manual_seed(seed)
    layers = [part for pair in zip(widths, widths[1:]) for part in (nn.Linear(*pair), activation())]
    return nn.Sequential(*layers[:-1]).double()


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_unequal_widths(activation):
    """Seven of ten units, in another order and, of tanh, with other signs; the module keeps its function."""
    large, small = perceptron(5, 10, 8, 2, activation=activation), perceptron(5, 7, 8, 2, activation=activation)
    kept, X = torch.randperm(10)[:7], torch.randn(400, 5)
    signs = torch.tensor([1.0, -1, 1, 1, -1, -1, 1] if activation is nn.Tanh else [1.0] * 7)
    with torch.no_grad():
        small[0].weight[:] = signs[:, None] * large[0].weight[kept]
        small[0].bias[:] = signs * large[0].bias[kept]
    alignment = align_modules(large, small, X)
    partners = alignment.permutations["0"]
    np.testing.assert_array_equal(partners[kept], np.arange(7))
    np.testing.assert_array_equal(alignment.signs["0"][kept], signs)
    assert np.sum(partners < 0) == 3 and alignment.residuals["0"][kept].max() < 1e-6
    assert np.all(alignment.residuals["0"][partners < 0] == 1.0) and np.isnan(alignment.distance)
    assert (alignment.module(X.double()) - small(X.double())).abs().max() < 1e-12
    assert "10        7" in str(alignment).splitlines()[1]


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_a_dropped_layer(dropped):
    """The layers that are left are those of the same outputs; after the dropped one, outputs are others."""
    widths = [5, 9, 8, 7, 2]
    large, small = perceptron(*widths), perceptron(*widths[: dropped + 1], *widths[dropped + 2 :])
    with torch.no_grad():
        for k in range(dropped):
            small[2 * k].load_state_dict(large[2 * k].state_dict())
    alignment = align_modules(large, small, torch.randn(400, 5))
    names = [str(2 * k) for k in range(dropped)]
    assert [alignment.layers[name] for name in names] == names
    assert list(alignment.layers.values()).count(None) == 1 and str(alignment).count("dropped") == 1
    assert all(alignment.residuals[name].max() < 1e-6 for name in names)


def test_other_graphs_need_inputs():
    with pytest.raises(ValueError, match="different shapes: '0.weight' .* Give X to match their units by outputs"):
        align_modules(perceptron(5, 4, 2), perceptron(5, 3, 2))
