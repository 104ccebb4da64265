"""RecurrentPPO on a memory task: SuLSTM, SuGRU and nn.LSTM side by side.

    python benchmarks/recurrent_ppo.py [--steps 30000] [--delay 8] [--seeds 3]

The first observation shows one of four cues; after ``delay`` blank time steps the action must name
it. Chance is 0.25, and a policy without memory stays there. Prints the mean reward of the episodes
of each tenth of training, mean over seeds. Needs ``pip install 'surnn[rl]'``.
"""

import argparse
import time

import gymnasium
import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

import surnn
from surnn.integrations.sb3 import MlpPolicy

CUES = 4


class Cue(gymnasium.Env):
    """One cue at the start, a question at the end."""

    observation_space = gymnasium.spaces.Box(0, 1, (CUES + 1,), np.float32)
    action_space = gymnasium.spaces.Discrete(CUES)

    def __init__(self, delay: int) -> None:
        self.delay = delay

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.cue = 0, int(self.np_random.integers(CUES))
        return self._look(), {}

    def step(self, action):
        end = self.t == self.delay
        reward = float(end and action == self.cue)
        self.t += 1
        return self._look(), reward, end, False, {}

    def _look(self):
        seen = np.zeros(CUES + 1, np.float32)
        if self.t == 0:
            seen[self.cue] = 1
        seen[CUES] = self.t == self.delay
        return seen


class Rewards(BaseCallback):
    """Reward at the end of each episode, with its time step."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        for done, reward in zip(self.locals["dones"], self.locals["rewards"], strict=True):
            if done:
                self.ends.append((self.num_timesteps, float(reward)))
        return True


def learn(kind: str, options: argparse.Namespace, seed: int) -> list[float]:
    """Mean reward in each tenth of training."""
    policy: dict = {"lstm_hidden_size": 32, "net_arch": []}
    name: type | str = MlpPolicy
    gate = surnn.Rhythm(rate=options.rate, horizon=options.delay + 1)
    if kind == "nn.LSTM":
        name = "MlpLstmPolicy"
    else:
        policy |= {"layer": getattr(surnn, kind), "lstm_kwargs": {"gate": gate}}
    model = RecurrentPPO(
        name, DummyVecEnv([lambda: Cue(options.delay)] * 8), policy_kwargs=policy, n_steps=64,
        batch_size=128, n_epochs=6, learning_rate=3e-3, gamma=0.95, ent_coef=0.01, seed=seed,
        device="cpu",
    )  # fmt: skip
    rewards = Rewards()
    model.learn(options.steps, callback=rewards)
    tenth = model.num_timesteps / 10
    parts: list[list[float]] = [[] for _ in range(10)]
    for step, reward in rewards.ends:
        parts[min(9, int((step - 1) / tenth))].append(reward)
    return [float(np.mean(part)) for part in parts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--delay", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", default=["nn.LSTM", "SuLSTM", "SuGRU"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for kind in options.kinds:
        begin = time.perf_counter()
        curves = [learn(kind, options, seed) for seed in range(options.seeds)]
        took = (time.perf_counter() - begin) / options.seeds
        means = "  ".join(f"{value:.2f}" for value in np.mean(curves, 0))
        print(f"{kind:8}  {means}  ({took:.0f} s a run)", flush=True)


if __name__ == "__main__":
    main()
