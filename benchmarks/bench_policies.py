"""Are control policies found from the actions they take?

    python benchmarks/bench_policies.py               about ten minutes on one idle core
    python benchmarks/bench_policies.py --part many   11 to 105 observations: five environments of MuJoCo
    python benchmarks/bench_policies.py --part eight  8 observations: five policies for LunarLander
    python benchmarks/bench_policies.py --part few    3 to 6 observations: Acrobot, CartPole, Pendulum
    python benchmarks/bench_policies.py --quick       one policy, nothing written

The policies are tanh networks of two hidden layers of 64 units, trained once by `train_policies.py`, PPO with the
default settings of stable-baselines3; their weights lie in `benchmarks/policies`. What is asked are function values in
double precision: means of actions, or logits. Widths are told. Errors are relative maxima on 2 000 inputs from N(0, I).
"""

from __future__ import annotations

from parts import policies  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("policies", __doc__)
