"""RecurrentPPO of sb3-contrib with surnn's layers: replay, resets, learning, files."""

import importlib

import numpy as np
import pytest
import torch

import surnn

sb3_contrib = pytest.importorskip(
    "sb3_contrib", reason="sb3-contrib is not installed: pip install 'surnn[rl]'"
)
pytestmark = pytest.mark.filterwarnings("ignore")

LAYERS = {
    "lstm": {},
    "gru": {"layer": surnn.SuGRU, "n_lstm_layers": 2},
    "memory": {"layer": surnn.SuGRU, "lstm_kwargs": {"gate": surnn.SSMGate(mode="hard")}},
    "shared": {"shared_lstm": True, "enable_critic_lstm": False},
}


def make_env(delay: int = 3):
    """A cue at the first time step; the action at the last one must repeat it."""
    import gymnasium  # noqa: PLC0415

    class Cue(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.t, self.cue = 0, int(self.np_random.integers(2))
            return self._look(), {}

        def _look(self):
            seen = np.zeros(3, np.float32)
            if self.t == 0:
                seen[self.cue] = 1
            seen[2] = self.t == delay
            return seen

        def step(self, action):
            end = self.t == delay
            reward = float(end and action == self.cue)
            self.t += 1
            return self._look(), reward, end, False, {}

    return Cue()


def build(kind: str, **options):
    policies = importlib.import_module("surnn.integrations.sb3")
    policy = {
        "lstm_hidden_size": 12, "net_arch": [], "lstm_kwargs": {"gate": surnn.Rhythm(rate=0.5)},
        **LAYERS[kind],
    }  # fmt: skip
    options = {"n_steps": 14, "batch_size": 10, "n_epochs": 1, "seed": 0, **options}
    env = importlib.import_module("stable_baselines3.common.vec_env").DummyVecEnv([make_env] * 3)
    return sb3_contrib.RecurrentPPO(
        policies.MlpPolicy, env, policy_kwargs=policy, device="cpu", **options
    )


@pytest.mark.parametrize("kind", LAYERS)
def test_a_replay_equals_the_rollout(kind, monkeypatch):
    model = build(kind)
    checked = []

    def compare(self):
        for data in self.rollout_buffer.get(self.batch_size):
            inside = data.mask > 0
            values, log_prob, _ = self.policy.evaluate_actions(
                data.observations, data.actions.long().flatten(), data.lstm_states,
                data.episode_starts,
            )  # fmt: skip
            for found, expected in (
                (values.flatten(), data.old_values),
                (log_prob, data.old_log_prob),
            ):
                torch.testing.assert_close(found[inside], expected[inside], rtol=0, atol=1e-6)
            checked.append(int(data.episode_starts.sum()))

    monkeypatch.setattr(type(model), "train", compare)
    model.learn(2 * 14 * 3)
    assert len(checked) >= 8
    assert sum(checked) > 8  # episodes begin inside the rollouts
    assert model.policy.lstm_actor.layer.gates[0].width == 12


def test_prediction_carries_the_state_and_starts_again():
    model = build("gru")
    observation = np.random.default_rng(0).normal(size=(6, 3, 3)).astype(np.float32)
    layer, state = model.policy.lstm_actor.layer, None
    for t, frame in enumerate(observation):
        start = np.full(3, t == 4)
        _, state = model.predict(frame, state=state, episode_start=start, deterministic=True)
    packed = torch.from_numpy(np.concatenate(state, -1))[..., : layer.packed_shape()[2]]
    _, expected = layer(torch.from_numpy(observation[4:]), layer.init_state(3))
    torch.testing.assert_close(packed, expected.pack(), rtol=0, atol=1e-6)


def test_it_learns_a_cue_and_is_saved(tmp_path):
    torch.set_num_threads(1)
    model = build(
        "lstm", n_steps=64, batch_size=64, n_epochs=8, learning_rate=5e-3, gamma=0.9, ent_coef=0.01
    )
    model.learn(64 * 3 * 14)
    rewards = [episode["r"] for episode in model.ep_info_buffer] or _play(model)
    assert np.mean(rewards) > 0.9
    model.save(tmp_path / "model")
    again = sb3_contrib.RecurrentPPO.load(tmp_path / "model", device="cpu")
    for one, other in zip(again.policy.parameters(), model.policy.parameters(), strict=True):
        assert torch.equal(one, other)


def _play(model, episodes: int = 40) -> list[float]:
    env, rewards = make_env(), []
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        state, end, reward = None, False, 0.0
        while not end:
            action, state = model.predict(observation, state=state, deterministic=True)
            observation, reward, end, _, _ = env.step(int(action))
        rewards.append(reward)
    return rewards


def test_time_is_first(monkeypatch):
    monkeypatch.setitem(LAYERS, "other", {"lstm_kwargs": {"batch_first": True}})
    with pytest.raises(ValueError, match="leave out batch_first"):
        build("other")
