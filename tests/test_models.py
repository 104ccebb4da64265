"""Models and baselines: shapes, streams, pooling, and what a length hides."""

from dataclasses import replace
from typing import get_args

import pytest
import torch

from surnn.config import GateConfig, GateKind, ModelConfig, ModelKind
from surnn.models import SequenceModel, make_gate
from surnn.tasks import Output, Tokens, Values

KINDS = get_args(ModelKind)
STREAMING = [kind for kind in KINDS if kind != "transformer"]
SMALL = ModelConfig(width=32, heads=4)


def build(given=Tokens(7), wanted=Output(5, "sequence"), steps=20, gate=GateConfig(rate=0.5), **kw):  # noqa: B008
    torch.manual_seed(0)
    return SequenceModel(replace(SMALL, **kw), gate, given, wanted, steps)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", ["residual", "stack"])
def test_shapes_and_gradients(kind, block):
    model = build(kind=kind, block=block, wanted=Output(5, "step"))
    y = model(torch.randint(0, 7, (3, 20)))
    assert y.shape == (3, 20, 5)
    y.square().sum().backward()
    gates = {id(p) for p in model.gate_parameters()}
    assert all(p.grad is not None for p in model.parameters() if id(p) not in gates)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pool", ["last", "mean"])
def test_padding_changes_nothing(kind, pool):
    model = build(kind=kind, pool=pool).eval()
    x, lengths = torch.randint(0, 7, (3, 20)), torch.tensor([20, 3, 9])
    y = model(x, lengths)
    x[1, 3:] = 0
    torch.testing.assert_close(model(x, lengths), y)
    torch.testing.assert_close(model(x[1:2, :3]), y[1:2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_padding_is_no_part_of_a_norm(norm):
    """In training, where a batch norm takes its statistics from the batch."""
    model = build(kind="gru", norm=norm, pool="mean").train()
    x, lengths = torch.randint(0, 7, (3, 20)), torch.tensor([10, 3, 9])
    longer = torch.cat((x, torch.zeros(3, 30, dtype=torch.long)), 1)
    torch.testing.assert_close(model(longer, lengths), model(x, lengths))


@pytest.mark.parametrize("kind", STREAMING)
@pytest.mark.parametrize("pool", ["last", "mean"])
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_stream_equals_sequence(kind, pool, norm):
    model = build(given=Values(3), kind=kind, pool=pool, norm=norm).eval()
    x = torch.randn(2, 12, 3)
    state = model.init_state(2)
    for t in range(12):
        y, state = model.step(x[:, t], state)
        torch.testing.assert_close(y, model(x[:, : t + 1]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_causal(kind):
    model = build(kind=kind, wanted=Output(5, "step")).eval()
    x = torch.randint(0, 7, (2, 20))
    y = model(x)
    x[:, 11:] = (x[:, 11:] + 1) % 7
    torch.testing.assert_close(model(x)[:, :11], y[:, :11], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(model(x)[:, 11:], y[:, 11:])


def test_attention_does_not_stream():
    with pytest.raises(TypeError, match="needs the whole sequence"):
        build(kind="transformer").init_state(1)


def test_pairs_are_compared():
    model = build(wanted=Output(2, "sequence", pairs=True))
    x, lengths = torch.randint(0, 7, (3, 2, 20)), torch.randint(1, 21, (3, 2))
    assert model(x, lengths).shape == (3, 2)


@pytest.mark.parametrize("kind", get_args(GateKind))
def test_every_gate_can_be_configured(kind):
    build(gate=GateConfig(kind=kind))(torch.randint(0, 7, (2, 20))).sum().backward()


def test_gate_options_reach_the_gate():
    gate = make_gate(GateConfig(rate=0.3, target_rate=0.2, always_on=0.5, mode="soft"), 77)
    assert (gate.rate, gate.target_rate, gate.always_on, gate.mode) == (0.3, 0.2, 0.5, "soft")
    assert gate.horizon == 77


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "gru", "bidirectional": True}, "gru is causal"),
        ({"kind": "transformer", "heads": 5}, "5 attention heads do not divide 32"),
        ({"kind": "s4d", "block": "stack", "given": Values(3)}, "use block='residual'"),
    ],
)
def test_errors_say_how_to_mend(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)
