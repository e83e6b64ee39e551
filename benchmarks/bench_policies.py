"""Control policies: are they recovered from the actions they take?

    python benchmarks/bench_policies.py               about ten minutes on one idle core
    python benchmarks/bench_policies.py --part many   11 to 105 observations: five environments of MuJoCo
    python benchmarks/bench_policies.py --part eight  8 observations: five policies for LunarLander
    python benchmarks/bench_policies.py --part few    3 to 6 observations: Acrobot, CartPole, Pendulum
    python benchmarks/bench_policies.py --quick       one policy, writes no results

The policies are tanh networks with two hidden layers of 64 units. `train_policies.py` trained them once by PPO with the
default settings of stable-baselines3; their weights are in `benchmarks/cases/policies`. The identifier knows the widths
and queries function values in double precision: means of actions, or logits. Errors are relative maxima on 2,000 inputs
from N(0, I).
"""

from __future__ import annotations

from parts import policies  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("policies", __doc__)
