"""Which activation does a black box have, told from its answers alone?

    python benchmarks/bench_activations.py                   a minute on one idle core
    python benchmarks/bench_activations.py --part hidden     14 activations, one and two hidden layers
    python benchmarks/bench_activations.py --part outputs    linear, tanh, sigmoid and softmax outputs
    python benchmarks/bench_activations.py --part slopes     networks of other units identified, with their slopes
    python benchmarks/bench_activations.py --quick           under a minute, nothing written

Random networks of 3 to 15 inputs, 4 to 19 units a hidden layer and 1 to 3 outputs (2 to 4 of softmax), weights with
variance 1 / n, shifts with standard deviation 0.5. Only a function is handed over. Right is the activation that it has
without a doubt, wrong is another one without a doubt.
"""

from __future__ import annotations

from parts import activations  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("activations", __doc__)
