"""Activation detection: is the activation of a black box recovered from its outputs?

    python benchmarks/bench_activations.py                   a minute on one idle core
    python benchmarks/bench_activations.py --part hidden     14 activations, one and two hidden layers
    python benchmarks/bench_activations.py --part outputs    linear, tanh, sigmoid and softmax outputs
    python benchmarks/bench_activations.py --part slopes     identified networks of other units, with their slopes
    python benchmarks/bench_activations.py --quick           under a minute, writes no results

Random networks have 3 to 15 inputs, 4 to 19 units per hidden layer and 1 to 3 outputs (2 to 4 with softmax); weights
have variance 1 / n, biases standard deviation 0.5. The detector receives a function only. A detection is right if the
true activation is the only one left, and wrong if another one is.
"""

from __future__ import annotations

from parts import activations  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("activations", __doc__)
