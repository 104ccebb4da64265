"""Recurrent PPO on a memory task: the replay of a rollout equals the rollout bit for bit.

    python examples/recurrent_ppo.py

An episode shows a cue, -1 or 1, at its first step, then noise, and asks for the cue at its last
step. Episodes have random lengths, so a rollout of fixed length contains several, and they end at
different times. The policy steps through the environments one time step at a time, with
``layer(x, state, reset=is_first)``. The update makes the same call on the whole rollout: nothing
crosses the end of an episode, and on a CPU the values and log-probabilities are those of the
rollout, bit for bit. So the first ratio of PPO is exactly 1. (``layer.step`` is faster on one time
step; its sums round differently in the last bit.)
"""

import argparse

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import surnn

ENVIRONMENTS, STEPS, UNITS = 32, 64, 32
LONGEST = 12
DISCOUNT, SMOOTHING, CLIP = 0.95, 0.9, 0.2


class Recall:
    """Many episodes of the task at once. An observation is (cue, noise, is it the last step)."""

    def __init__(self) -> None:
        self.cue = torch.zeros(ENVIRONMENTS)
        self.left = torch.zeros(ENVIRONMENTS, dtype=torch.long)
        self.is_first = torch.ones(ENVIRONMENTS, dtype=torch.bool)
        self._begin(self.is_first)

    def _begin(self, which: Tensor) -> None:
        cue = torch.randint(2, (ENVIRONMENTS,)) * 2.0 - 1
        self.cue = torch.where(which, cue, self.cue)
        length = torch.randint(2, LONGEST + 1, (ENVIRONMENTS,))
        self.left = torch.where(which, length, self.left)
        self.is_first = which

    def observe(self) -> Tensor:
        shown = torch.where(self.is_first, self.cue, 0.0)
        return torch.stack((shown, torch.randn(ENVIRONMENTS) * 0.3, (self.left == 1).float()), -1)

    def act(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Rewards, and which episodes restart with the next observation."""
        asked = self.left == 1
        reward = torch.where(asked, torch.where(action * 2.0 - 1 == self.cue, 1.0, -1.0), 0.0)
        self.left = self.left - 1
        self._begin(asked)
        return reward, asked


class Policy(nn.Module):
    """An SuGRU whose gates see the observation, with an actor and a critic on its output."""

    def __init__(self) -> None:
        super().__init__()
        gate = surnn.InputGate(rate=0.5, mode="hard")
        self.layer = surnn.SuGRU(3, UNITS, heads=4, gate=gate)
        self.readout = nn.Linear(UNITS, 3)

    def read(self, y: Tensor) -> tuple[Categorical, Tensor]:
        # Time step by time step, as in a rollout: a matrix product of another shape may round
        # differently in its last bit.
        out = torch.stack([self.readout(y_t) for y_t in y])
        return Categorical(logits=out[..., :2]), out[..., 2]


def advantages(rewards: Tensor, values: Tensor, ends: Tensor) -> Tensor:
    """Generalised advantage estimates; ``values`` has one time step more."""
    found, ahead = torch.zeros_like(rewards), torch.zeros(ENVIRONMENTS)
    for t in reversed(range(STEPS)):
        goes_on = (~ends[t]).float()
        error = rewards[t] + DISCOUNT * goes_on * values[t + 1] - values[t]
        ahead = error + DISCOUNT * SMOOTHING * goes_on * ahead
        found[t] = ahead
    return found


@torch.no_grad()
def collect(policy: Policy, task: Recall, state: surnn.SuState) -> dict[str, Tensor]:
    """A rollout [STEPS, ENVIRONMENTS], and the state after it."""
    rows: list[tuple[Tensor, ...]] = []
    for _ in range(STEPS):
        reset, x = task.is_first, task.observe()
        y, state = policy.layer(x[None], state, reset=reset[None])
        choice, value = policy.read(y)
        action = choice.sample()
        reward, ended = task.act(action[0])
        rows.append((x, reset, action[0], choice.log_prob(action)[0], value[0], reward, ended))
    names = ("x", "reset", "action", "log_prob", "value", "reward", "ended")
    rollout = dict(zip(names, (torch.stack(v) for v in zip(*rows, strict=True)), strict=True))
    last, _ = policy.layer.step(task.observe(), state, reset=task.is_first)
    values = torch.cat((rollout["value"], policy.read(last[None])[1]))
    rollout["advantage"] = advantages(rollout["reward"], values, rollout["ended"])
    return {**rollout, "cell": state.cell, "t": state.t}


def replay(policy: Policy, rollout: dict[str, Tensor], state: surnn.SuState):
    """Log-probabilities and values of a rollout that started from ``state``, as one sequence."""
    y, _ = policy.layer(rollout["x"], state, reset=rollout["reset"])
    choice, value = policy.read(y)
    return choice.log_prob(rollout["action"]), value


def learn(policy: Policy, optimizer, rollout: dict[str, Tensor], state: surnn.SuState) -> None:
    target = rollout["advantage"] + rollout["value"]
    advantage = rollout["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    for _ in range(4):
        log_prob, value = replay(policy, rollout, state)
        ratio = (log_prob - rollout["log_prob"]).exp()
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
        loss = 0.5 * (value - target).square().mean() - gain
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()


def main(updates: int = 30) -> float:
    """Train; returns the share of right answers in the last rollouts."""
    torch.manual_seed(0)
    policy, task = Policy(), Recall()
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    state, recent = policy.layer.init_state(ENVIRONMENTS), []
    for number in range(1, updates + 1):
        start = state
        rollout = collect(policy, task, start)
        log_prob, value = replay(policy, rollout, start)
        assert torch.equal(log_prob, rollout["log_prob"])
        assert torch.equal(value, rollout["value"])
        learn(policy, optimizer, rollout, start)
        state = surnn.SuState(rollout["cell"], rollout["t"], start.gates)
        answers = rollout["reward"][rollout["ended"]]
        recent = [*recent[-4:], (answers > 0).float().mean().item()]
        if number % 10 == 0:
            rate = policy.layer.update_rate.item()
            print(f"rollout {number}  right {sum(recent) / len(recent):.1%}  updates {rate:.0%}")
    return sum(recent) / len(recent)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--updates", type=int, default=30, help="rollouts to learn from")
    main(parser.parse_args().updates)
