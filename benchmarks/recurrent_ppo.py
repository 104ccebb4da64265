"""RecurrentPPO on a memory task: SuLSTM, SuGRU and nn.LSTM side by side.

    python benchmarks/recurrent_ppo.py --out results/recurrent_ppo   # also JSON and a figure there

The first observation shows one of four cues; after ``delay`` blank time steps the action must name
it. Chance is 0.25, and a policy without memory stays there. Each kind of layer runs with each
learning rate and seed. The numbers are the mean rewards of the episodes of each twentieth of
training. Needs ``pip install 'surnn[rl]' matplotlib``.
"""

import argparse
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from common import write_result
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

import surnn
from surnn.integrations.sb3 import MlpPolicy

CUES = 4
PARTS = 20
"""Points of a curve."""


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


def learn(kind: str, options: argparse.Namespace, rate: float, seed: int) -> dict[str, Any]:
    """One run: its curve, and its parameters."""
    policy: dict = {"lstm_hidden_size": 32, "net_arch": []}
    name: type | str = MlpPolicy
    gate = surnn.Rhythm(rate=options.rate, horizon=options.delay + 1)
    if kind == "nn.LSTM":
        name = "MlpLstmPolicy"
    else:
        policy |= {"layer": getattr(surnn, kind), "lstm_kwargs": {"gate": gate}}
    model = RecurrentPPO(
        name, DummyVecEnv([lambda: Cue(options.delay)] * 8), policy_kwargs=policy, n_steps=64,
        batch_size=128, n_epochs=6, learning_rate=rate, gamma=0.95, ent_coef=0.01, seed=seed,
        device="cpu",
    )  # fmt: skip
    rewards, begin = Rewards(), time.process_time()
    model.learn(options.steps, callback=rewards)
    took, part = time.process_time() - begin, model.num_timesteps / PARTS
    parts: list[list[float]] = [[] for _ in range(PARTS)]
    for step, reward in rewards.ends:
        parts[min(PARTS - 1, int((step - 1) / part))].append(reward)
    return {
        "kind": kind, "learning_rate": rate, "seed": seed,
        "parameters": sum(p.numel() for p in model.policy.parameters()),
        "steps": model.num_timesteps, "cpu_seconds": took,
        "rewards": [float(np.mean(part)) for part in parts],
    }  # fmt: skip


def best_runs(runs: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """A kind's runs with the learning rate whose curves are highest in the mean."""
    by_rate: dict[float, list[dict[str, Any]]] = {}
    for run in runs:
        if run["kind"] == kind:
            by_rate.setdefault(run["learning_rate"], []).append(run)
    return max(by_rate.values(), key=lambda group: np.mean([run["rewards"] for run in group]))


def draw(result: dict[str, Any], path: Path) -> None:
    """Curves over environment steps: the mean of the seeds, and their range."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 (optional)

    figure, axes = plt.subplots(figsize=(6, 3.4))
    for kind in dict.fromkeys(run["kind"] for run in result["runs"]):
        group = best_runs(result["runs"], kind)
        curves = np.array([run["rewards"] for run in group])
        steps = group[0]["steps"] * (np.arange(PARTS) + 0.5) / PARTS
        label = f"{kind}, learning rate {group[0]['learning_rate']:g}"
        (line,) = axes.plot(steps, curves.mean(0), label=label)
        axes.fill_between(steps, curves.min(0), curves.max(0), color=line.get_color(), alpha=0.15)
    axes.axhline(1 / CUES, color="gray", linestyle=":", label="chance")
    axes.set(xlabel="environment steps", ylabel="mean reward of an episode", ylim=(0, 1.02))
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=32_000)
    parser.add_argument("--delay", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.5, help="update rate of the gates")
    parser.add_argument("--learning-rates", type=float, nargs="*", default=[3e-3, 1e-2])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", default=["nn.LSTM", "SuLSTM", "SuGRU"])
    parser.add_argument("--out", type=Path, help="a folder for result.json and curves.png")
    options = parser.parse_args()
    torch.set_num_threads(1)
    packages = ("torch", "stable-baselines3", "sb3-contrib")
    result: dict[str, Any] = {
        "steps": options.steps, "delay": options.delay, "rate": options.rate, "cues": CUES,
        "versions": {name: version(name) for name in packages}, "runs": [],
    }  # fmt: skip
    for seed in range(options.seeds):
        for rate in options.learning_rates:
            for kind in options.kinds:
                run = learn(kind, options, rate, seed)
                result["runs"].append(run)
                curve = "  ".join(f"{value:.2f}" for value in run["rewards"][1::2])
                print(
                    f"{kind:8} {rate:<6g} {seed}  {curve}  ({run['cpu_seconds']:.0f} s)", flush=True
                )
        if options.out:  # after each seed
            write_result(options.out / "result.json", result)
            draw(result, options.out / "curves.png")


if __name__ == "__main__":
    main()
