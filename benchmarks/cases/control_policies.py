"""Control policies trained once by PPO: environments, seeds and weight files."""

from __future__ import annotations

import itertools
from pathlib import Path

from safetensors.torch import load_file
from torch import nn

from seed_ranges import POLICIES

FOLDER = Path(__file__).resolve().parent / "policies"
# Environments by their numbers of inputs, the seed they are trained from and the steps.
TRAINED = (
    ("HalfCheetah-v5", POLICIES[0], 50_000),
    ("Walker2d-v5", POLICIES[1], 50_000),
    ("Hopper-v5", POLICIES[2], 50_000),
    ("Ant-v5", POLICIES[3], 50_000),
    ("Pusher-v5", POLICIES[4], 50_000),
    *(("LunarLander-v3", POLICIES[seed], 30_000) for seed in range(5, 10)),
    ("Acrobot-v1", POLICIES[10], 30_000),
    ("CartPole-v1", POLICIES[11], 30_000),
    ("Pendulum-v1", POLICIES[12], 30_000),
)


def policy_file(environment, seed):
    """Where the weights of one policy are."""
    return FOLDER / f"{environment}_{seed}.safetensors"


def read_policy(path):
    """The torch network in a file of `train_policies.py`, in double precision."""
    parameters = load_file(path)
    shapes = [W.shape for name, W in parameters.items() if name.endswith("weight")]
    layers = [(nn.Linear(inputs, units), nn.Tanh()) for units, inputs in shapes]
    policy = nn.Sequential(*itertools.chain(*layers))[:-1]
    policy.load_state_dict(parameters)
    return policy.double()
