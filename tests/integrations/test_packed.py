"""Layers with packed states: one pass equals a loop with resets, whatever the buffer."""

import pytest
import torch

import surnn
from surnn.integrations.packed import PackedLayer, PackedPair

GATES = {
    "clock": lambda: surnn.Rhythm(rate=0.3),
    "memory": lambda: surnn.SSMGate(rate=0.3, mode="hard"),
    "open": surnn.AlwaysOpen,
}


def states(adapter: torch.nn.Module, batch: int) -> tuple[torch.Tensor, ...]:
    shape = adapter.num_layers, batch, adapter.hidden_size
    return tuple(torch.zeros(shape) for _ in range(adapter.parts))


def given(parts: tuple[torch.Tensor, ...]):
    return parts[0] if len(parts) == 1 else parts


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("cls", [surnn.SuGRU, surnn.SuLSTM])
@pytest.mark.parametrize("kind", [PackedLayer, PackedPair])
def test_a_replay_from_a_buffer_equals_the_rollout(kind, cls, gate):
    torch.manual_seed(0)
    adapter = kind(cls(3, 10, num_layers=2, gate=GATES[gate]()))
    x, done = torch.randn(12, 4, 3), torch.rand(12, 4) < 0.2
    parts, buffer, rollout = states(adapter, 4), [], []
    with torch.no_grad():
        for x_t, done_t in zip(x, done, strict=True):
            parts = tuple(part * ~done_t.view(1, 4, 1) for part in parts)
            buffer.append([part.numpy().copy() for part in parts])
            y_t, new = adapter(x_t[None], given(parts))
            assert y_t.shape == (1, 4, 10)
            parts = (new,) if torch.is_tensor(new) else new
            rollout.append(y_t)
    rollout = torch.cat(rollout)
    assert done[1:].any()
    for row in range(4):
        resets = done[:, row].nonzero().flatten().tolist()
        for start in {0, 7, *resets}:
            end = min((t for t in resets if t > start), default=12)
            kept = tuple(torch.from_numpy(part[:, row : row + 1]) for part in buffer[start])
            replay, _ = adapter(x[start:end, row : row + 1], given(kept))
            torch.testing.assert_close(replay[:, 0], rollout[start:end, row], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [PackedLayer, PackedPair])
def test_masked_time_steps_leave_the_state(kind):
    torch.manual_seed(0)
    adapter = kind(surnn.SuLSTM(3, 10, batch_first=True, gate=surnn.Rhythm(rate=0.5)))
    x, mask = torch.randn(2, 6, 3), torch.arange(6) < torch.tensor([[4], [6]])
    _, padded = adapter(x, mask=mask)
    _, alone = adapter(x[:1, :4])
    for one, other in zip(padded, alone, strict=True):
        torch.testing.assert_close(one[:1] if kind is PackedLayer else one[:, :1], other)


def test_layers_whose_replay_would_differ_are_refused():
    with pytest.raises(ValueError, match="bidirectional"):
        PackedLayer(surnn.SuGRU(3, 8, bidirectional=True))
    with pytest.raises(ValueError, match=r"SSMGate has mode='sampled'.*expected mode='hard'"):
        PackedLayer(surnn.SuGRU(3, 8, gate="ssm"))
    with pytest.raises(TypeError, match=r"one of surnn's layers.*got GRU"):
        PackedLayer(torch.nn.GRU(3, 8))
