"""The control policies that `bench_policies.py` identifies: PPO as stable-baselines3 trains it by default.

    pip install -c constraints.txt -e ".[policies]"
    python benchmarks/train_policies.py                              all of them, a minute or two each
    python benchmarks/train_policies.py --environment Hopper-v5 --seed 1 --steps 20000 --folder /tmp
                                                                     another one, somewhere else

Every policy is a tanh network of two hidden layers of 64 units, from observations as they are to the means of the
actions, or to the logits of actions where these are few. Its weights are written as torch has them, in the single
precision in which they were trained: `benchmarks/policies/<environment>_<seed>.safetensors`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from cases.control_policies import FOLDER, TRAINED, policy_file


def train(environment, seed, n_steps):
    """The network from observations to means of actions after so many steps of PPO with its default settings."""
    from stable_baselines3 import PPO  # of the extra `policies`, needed for training alone

    model = PPO("MlpPolicy", environment, seed=seed, device="cpu").learn(n_steps)
    returns = [episode["r"] for episode in model.ep_info_buffer]
    print(f"{environment}, seed {seed}: {n_steps} steps, mean return of the last episodes {np.mean(returns):.0f}")
    return nn.Sequential(*model.policy.mlp_extractor.policy_net, model.policy.action_net)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", default=None, help="this one instead of all")
    parser.add_argument("--seed", type=int, default=0, help="with --environment")
    parser.add_argument("--steps", type=int, default=50_000, help="with --environment")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(exist_ok=True)
    one = [(options.environment, options.seed, options.steps)]
    for environment, seed, n_steps in TRAINED if options.environment is None else one:
        policy = train(environment, seed, n_steps)
        save_file(policy.state_dict(), options.folder / policy_file(environment, seed).name)


if __name__ == "__main__":
    main()
