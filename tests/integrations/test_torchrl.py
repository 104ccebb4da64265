"""torchrl's modules with surnn's layers: primers, collectors, resets, replay."""

import importlib

import pytest
import torch

import surnn

pytest.importorskip("torchrl", reason="torchrl is not installed: pip install 'surnn[rl]'")
pytestmark = pytest.mark.filterwarnings("ignore")

GATES = {
    "clock": lambda: surnn.Rhythm(rate=0.3),
    "memory": lambda: surnn.SSMGate(rate=0.6, mode="hard"),
}
ENDS = 5, 8  # time steps of an episode, in turn


def build(kind: str, gate: str, layers: int = 1):
    module = importlib.import_module("surnn.integrations.torchrl")
    torch.manual_seed(0)
    cls = module.SuGRUModule if kind == "gru" else module.SuLSTMModule
    return cls(3, 8, layers, gate=GATES[gate](), in_key="observation", out_key="features")


def make_env(steps: int = 3):
    """A counter of 3 features whose episodes have 5 and 8 time steps, in turn."""
    from tensordict import TensorDict  # noqa: PLC0415
    from torchrl.data import Bounded, Composite, Unbounded  # noqa: PLC0415
    from torchrl.envs import EnvBase, InitTracker, TransformedEnv  # noqa: PLC0415

    class Episodes(EnvBase):
        def __init__(self) -> None:
            super().__init__(batch_size=torch.Size([]))
            self.observation_spec = Composite(observation=Unbounded((steps,)))
            self.action_spec = Bounded(-1, 1, (8,))
            self.reward_spec = Unbounded((1,))
            self.episode, self.t, self.random = -1, 0, torch.Generator().manual_seed(0)

        def _reset(self, tensordict, **_):
            self.episode, self.t = self.episode + 1, 0
            return TensorDict({"observation": self._look()}, [])

        def _step(self, tensordict):
            self.t += 1
            end = torch.tensor([self.t >= ENDS[self.episode % 2]])
            values = {"observation": self._look(), "reward": torch.zeros(1), "done": end}
            return TensorDict(values, [])

        def _look(self):
            return torch.randn(steps, generator=self.random)

        def _set_seed(self, seed):
            self.random.manual_seed(seed or 0)

    return TransformedEnv(Episodes(), InitTracker())


def roll_out(module, frames: int = 40):
    """Data of a collector, with resets inside them."""
    from tensordict.nn import TensorDictModule, TensorDictSequential  # noqa: PLC0415
    from torchrl.collectors import Collector  # noqa: PLC0415

    env = make_env()
    env.append_transform(module.make_tensordict_primer())
    act = TensorDictModule(torch.tanh, in_keys=["features"], out_keys=["action"])
    policy = TensorDictSequential(module, act)
    collector = Collector(
        env, policy, frames_per_batch=frames // 2, total_frames=frames, device="cpu"
    )
    data = [batch.clone() for batch in collector]
    collector.shutdown()
    return data


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_replay_equals_the_rollout(kind, gate, layers):
    from torchrl.modules import set_recurrent_mode  # noqa: PLC0415

    module = build(kind, gate, layers)
    first, second = roll_out(module)
    assert second["is_init"].sum() >= 2
    assert not second["is_init"][0].any()  # it starts in the middle of an episode
    for data in (first, second):
        with set_recurrent_mode(True):
            replay = module(data.clone())
        found, expected = replay["features"], data["features"]
        assert expected.abs().max() > 0.01
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        found.sum().backward()
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    assert gradients
    assert all(g.isfinite().all() for g in gradients)


def test_a_layer_of_its_own_is_taken_and_the_others_are_refused():
    module = importlib.import_module("surnn.integrations.torchrl")
    layer = surnn.SuRNN(3, 8, batch_first=True)
    taken = module.SuGRUModule(gru=layer, in_key="observation", out_key="features")
    assert taken.gru.layer is layer
    with pytest.raises(ValueError, match="batch_first=True"):
        module.SuGRUModule(gru=surnn.SuRNN(3, 8), in_key="a", out_key="b")
    with pytest.raises(ValueError, match="leave out all others"):
        module.SuGRUModule(gru=layer, gate="rhythm", in_key="a", out_key="b")
    with pytest.raises(ValueError, match="give input_size and hidden_size"):
        module.SuLSTMModule(in_key="a", out_key="b")
    with pytest.raises(TypeError, match=r"leave out make_cudnn_based\(\)"):
        taken.make_cudnn_based()
