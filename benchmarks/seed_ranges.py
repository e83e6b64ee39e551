"""Ranges of the seeds of the benchmarks; no default was tuned on them, and no test uses them.

`tests/test_seeds.py` checks that they are disjoint from each other and from the seeds of the tests.
"""

# What is measured: networks, data, and the states of the estimators.
TABLE_2 = range(5000, 5100)
TRANSITION = range(5100, 5200)
FIGURE_9 = range(5200, 5299)
TARGETS_WARM_UP = range(5299, 5300)  # a first call whose time does not count
TARGETS = range(5300, 5400)
POWER_METHOD = range(5400, 5500)
IDENTIFICATION = range(5500, 5600)
COMPRESSION = range(5600, 5700)
UNKNOWN_WIDTHS = range(8600, 8700)  # diabetes with unknown widths, in the README's table of costs
ORDINARY = range(8700, 8800)
HIERARCHICAL = range(9000, 9100)
RELU = range(9100, 9200)
SADDLE = range(9400, 9900)  # restarts of a loop at 100 t + r beyond the first
LANDSCAPE_TARGETS = range(95_000, 96_000)  # a hundred a target
LANDSCAPE_FIGURES = range(96_000, 97_000)
LANDSCAPE_RATE = range(97_000, 98_000)
LANDSCAPE_COMPARISON = range(98_000, 99_000)
BUDGETS = range(130_100, 130_110)
RELU_NETWORKS = range(130_000, 130_100)
ACTIVATIONS = range(131_000, 132_000)  # three hundred a part
AUDIT = range(160_000, 170_000)  # a thousand a case
POLICIES = range(130_200, 130_300)  # PPO, trained once: their weights are shipped
PASSIVE = range(170_000, 171_000)  # rows at seed + 500
PATCHES = range(140_000, 140_100)  # and rows of X at seed + 1
THREE_LAYERS = range(175_000, 176_000)  # and rows of X at seed + 500
FEW_INPUTS = range(174_000, 175_000)  # two hidden layers behind 2 to 4 inputs, and rows of X at seed + 100
LANDSCAPE_PROOFS = range(120_000, 130_000)  # collinear cases from the first, well-conditioned ones from the middle
POLISH = range(178_000, 178_100)
ALIGNMENT = range(150_000, 150_200)
RELU_LARGE = range(171_000, 171_500)
RELU_INPUTS = range(171_500, 172_000)
TABLES = range(172_000, 173_000)  # tables from the first, orders from the hundredth
# Better models and weights from the first, sparse axes and rare classes from the 500th.
TABLE_ESTIMATORS = range(3_110_000, 3_111_000)
SADDLE_FEATURES = range(173_000, 174_000)
PAPER_FIGURES = range(176_000, 177_000)
ONNX = range(177_000, 178_000)  # a hundred a source
HONESTY_CLIPPED = range(180_000, 180_500)
HONESTY_EXACT = range(180_500, 183_000)  # 500 per estimator: identifier, ReLU, passive, hierarchical, compressor
HONESTY_GLOBAL = range(183_000, 185_000)
HONESTY_COVERAGE = range(185_000, 186_000)
HONESTY_BUDGETS = range(186_000, 186_500)
HONESTY_MEMORY = range(186_500, 187_000)
HONESTY_REPRODUCERS = range(187_000, 188_000)
PRECISION = range(1_900_000, 1_901_000)  # a hundred a part, twenty a row; coarse outputs from the 600th
EXACT_BITS = range(
    2_000_000, 2_001_000
)  # twenty a row; weights off the grid from the 300th, float32 outputs from the 500th
SCALE = range(2_050_000, 2_051_000)  # twenty a row
SCALE_CURVE = range(2_051_000, 2_051_200)  # the same, by depth
REAL_MODELS = range(2_100_000, 2_101_000)  # networks from the first, other models from the 500th
SADDLE_BOUNDS = range(2_500_000, 2_500_100)  # one a problem
LABELS = range(2_150_000, 2_151_000)  # twenty a row; models that are refused from the 500th
LANDSCAPE_LOSSES = range(2_400_000, 2_401_000)
LANDSCAPE_ONE_SIGN = range(2_402_000, 2_404_000)  # a thousand a row
HIERARCHICAL_WIDTHS = range(2_450_000, 2_451_000)  # twenty a row; without noise from the 500th
HIERARCHICAL_SIGNED = range(2_451_000, 2_452_000)  # a hundred a row; samples beside them at seed + 500
RELU_NOISE = range(3_100_000, 3_100_300)  # twenty a row
RELU_MISSING_UNIT = range(3_101_000, 3_102_000)  # fits that lack none, then a hundred a size
PASSIVE_GIVEN = range(3_102_000, 3_103_000)  # twenty a row; rows at seed + 500
EVERYDAY = range(2_200_000, 2_220_000)  # a thousand a part
COMPARED = range(4_000_000, 4_010_000)  # a hundred a row
ABLATION = range(4_100_000, 4_130_000)  # five hundred a row
RELU_FIDELITY = range(3_103_000, 3_104_000)  # signs from the first, tensors from the 500th, networks from the 800th
UNNAMED = range(3_104_000, 3_105_000)  # ten a row; validation samples at seed + 200
HONESTY_ROWS = range(1_180_000, 1_188_000)  # samples drawn beside them: seed + 1 000 000

# Held-out samples and starts, drawn from a seed plus an offset.
IDENTIFICATION_ROWS = range(15_500, 15_600)  # seed + 10 000
IDENTIFICATION_STARTS = range(5_500_000, 5_600_000)  # 1000 seed + start
HIERARCHICAL_ROWS = range(109_000, 109_100)  # seed + 100 000
RELU_ROWS = range(1_009_100, 1_009_200)  # seed + 1 000 000
RELU_LARGE_ROWS = range(1_171_000, 1_171_500)  # seed + 1 000 000

RANGES = {name: value for name, value in globals().items() if isinstance(value, range)}
