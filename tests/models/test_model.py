"""Models and baselines: shapes, streams, pooling, and what a length hides."""

import copy
from typing import get_args

import pytest
import torch

from helpers.building import build
from surnn.config import (
    FixedRhythmConfig,
    GateKind,
    InputGateConfig,
    ModelKind,
    RhythmConfig,
    ThresholdConfig,
    gate_config,
)
from surnn.models.model import SequenceModel, make_gate
from surnn.nn.gates import GATES
from surnn.nn.surrogate import Surrogate
from surnn.tasks import Output, Tokens, Values

KINDS = get_args(ModelKind)


def assert_streams(model: SequenceModel, steps: int = 12) -> None:
    """Step by step, the prediction after each step is that of the sequence so far."""
    x = torch.randn(2, steps, 3)
    state = model.init_state(2)
    for t in range(steps):
        y, state = model.step(x[:, t], state)
        torch.testing.assert_close(y, model(x[:, : t + 1]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", ["residual", "feedforward", "stack"])
def test_shapes_and_gradients(kind, block):
    model = build(kind=kind, block=block, output=Output(5, "step"))
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


@pytest.mark.parametrize("norm", ["layer", "batch", "rms"])
def test_padding_is_no_part_of_a_norm(norm):
    """In training, where a batch norm takes its statistics from the batch."""
    model = build(kind="gru", norm=norm, pool="mean").train()
    x, lengths = torch.randint(0, 7, (3, 20)), torch.tensor([10, 3, 9])
    longer = torch.cat((x, torch.zeros(3, 30, dtype=torch.long)), 1)
    torch.testing.assert_close(model(longer, lengths), model(x, lengths))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pool", ["last", "mean"])
@pytest.mark.parametrize("norm", ["layer", "batch", "rms"])
def test_stream_equals_sequence(kind, pool, norm):
    assert_streams(build(inputs=Values(3), kind=kind, pool=pool, norm=norm).eval())


@pytest.mark.parametrize("pool", ["last", "mean"])
@pytest.mark.parametrize(
    "options",
    [
        {"prenorm": False},
        {"glu": "gelu"},
        {"glu": "silu"},
        {"glu": "none"},
        {"block": "feedforward", "feedforward": 24},
        {"block": "feedforward", "prenorm": False},
        {"block": "stack", "layers": 3},
        {"block": "stack", "width": 256, "layers": 2, "widths": (16, 32)},
        {"expand": 2},
        {"expand": 2, "groups": 2},
        {"expand": 2, "block": "feedforward"},
        {"attention_every": 2, "attention_heads": 2},
        {"attention_every": 1, "block": "feedforward", "prenorm": False, "window": 3},
        {"convolution": 4},
        {"convolution": 12, "kind": "lstm", "block": "feedforward"},
        {"convolution": 2, "attention_every": 1, "attention_heads": 2},
    ],
    ids=str,
)
def test_every_block_streams(options, pool):
    assert_streams(build(inputs=Values(3), pool=pool, **options).eval(), steps=12)


@pytest.mark.parametrize("convolution", [1, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_models_are_causal(kind, convolution):
    model = build(kind=kind, output=Output(5, "step"), convolution=convolution).eval()
    x = torch.randint(0, 7, (2, 20))
    y = model(x)
    x[:, 11:] = (x[:, 11:] + 1) % 7
    torch.testing.assert_close(model(x)[:, :11], y[:, :11], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(model(x)[:, 11:], y[:, 11:])


@pytest.mark.parametrize("pool", ["last", "mean"])
def test_pairs_are_compared(pool):
    """[u, v, u - v, u * v] of the two documents' encodings, each pooled over its own length."""
    model = build(output=Output(2, "sequence", pairs=True), pool=pool).eval()
    x, lengths = torch.randint(0, 7, (3, 2, 20)), torch.randint(1, 21, (3, 2))
    alone = [model.encode(x[2, i : i + 1, : lengths[2, i]])[:, 0] for i in (0, 1)]
    u, v = (y[-1] if pool == "last" else y.mean(0) for y in alone)
    expected = model.head(torch.cat((u, v, u - v, u * v)))
    torch.testing.assert_close(model(x, lengths)[2], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="both documents"):
        model.init_state(1)


def test_bidirectional_layers_see_both_ways():
    model = build(bidirectional=True, pool="mean", output=Output(5, "step")).eval()
    x = torch.randint(0, 7, (2, 20))
    y = model(x)
    x[:, 19] = (x[:, 19] + 1) % 7
    assert not torch.allclose(model(x)[:, 0], y[:, 0])


def test_a_tied_head_is_the_embedding():
    model = build(inputs=Tokens(500), output=Output(500, "step"), tied_embedding=True)
    assert model.head.weight is model.encoder.weight
    assert [name for name, _ in model.named_parameters() if "head" in name] == []
    scores = model(torch.randint(0, 500, (2, 20)))
    assert scores.std() < 2  # it begins without an opinion, though an embedding's rows are long
    again = copy.deepcopy(model)
    assert again.head.weight is again.encoder.weight is not model.encoder.weight


# ---------------------------------------------------------------------------- gates


@pytest.mark.parametrize("kind", get_args(GateKind))
def test_every_gate_can_be_configured(kind):
    model = build(gate=gate_config(kind), block="stack")
    model(torch.randint(0, 7, (2, 20))).sum().backward()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("rhythm", {"frequencies": 3, "min_period": 5.0, "max_period": 9.0}),
        ("rhythm", {"train_frequencies": True, "granularity": 8, "always_on": 0.5}),
        ("rhythm", {"rate": 0.3, "target_rate": 0.2, "mode": "soft"}),
        ("warped", {"bins": 3, "per_unit": True}),
        ("spline", {"knots": 7}),
        ("spectral", {"bins": 5}),
        ("input", {"hidden": 4, "source": "input"}),
        ("ssm", {"modes": 2}),
        ("full", {"modes": 2, "conv": 3, "input": False, "frequencies": 5}),
        ("every_n", {"n": 5, "staggered": True}),
        ("cycles", {"min_period": 5.0, "max_period": 9.0}),
        ("threshold", {"level": 0.5}),
        ("fixed_random", {"seed": 3, "rate": 0.2}),
    ],
)
def test_gate_options_reach_the_gate(kind, options):
    gate = make_gate(gate_config(kind, **options), 77)
    assert {name: getattr(gate, name) for name in options} == options


def test_a_gate_without_options_is_that_of_the_library():
    assert make_gate(InputGateConfig(), 77).rate == GATES["input"]().rate
    assert not make_gate(FixedRhythmConfig(), 77).calibrated
    assert make_gate(RhythmConfig(slope=2.0), 77).surrogate == Surrogate("sigmoid", 2.0)


@pytest.mark.parametrize("kind", ["rhythm", "warped", "spline", "spectral", "table", "ssm", "full"])
@pytest.mark.parametrize("block", ["stack", "residual"])
def test_a_clock_is_made_for_the_length_of_the_task(kind, block):
    model = build(gate=gate_config(kind), block=block, steps=77)
    gates = [gate for layer in model.selective_layers() for gate in layer.gates]
    assert [gate.horizon for gate in gates] == [77, 77]
    other = build(gate=gate_config(kind, horizon=30), block=block, steps=77)
    assert other.selective_layers()[0].gates[0].horizon == 30


def test_the_threshold_sees_the_input_of_the_whole_stack():
    """The paper's x > 0: both layers open where the pixel is not black."""
    model = build(inputs=Values(1), gate=ThresholdConfig(), block="stack").eval()
    seen = []
    for gate in model.selective_layers()[0].gates:
        gate.register_forward_hook(lambda module, inputs, output: seen.append(output[0].g))
    x = torch.randn(1, 20, 1)
    model(x)
    assert len(seen) == 2
    assert all(torch.equal(g[:, 0, 0], (x[0, :, 0] > 0).float()) for g in seen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "gru", "bidirectional": True}, "gru has no use for it"),
        ({"kind": "lstm", "heads": 4}, "model.heads .* sugru, .*transformer; lstm"),
        ({"kind": "s4d", "expand": 2}, "s4d has no use for it"),
        ({"kind": "sugru", "chrono": True}, "gru, lstm; sugru has no use"),
        ({"kind": "transformer", "heads": 5}, "5 attention heads do not divide 32"),
        ({"kind": "s4d", "block": "stack", "inputs": Values(3)}, "--model.block residual"),
        ({"block": "stack", "norm": "batch"}, "block residual or feedforward, not stack"),
        ({"kind": "transformer", "glu": "silu"}, "block residual, not feedforward"),
        ({"widths": (8, 8)}, "block stack, not residual"),
        ({"window": 8}, "model.window needs attention"),
        ({"attention_heads": 2}, "set model.attention_every too"),
        ({"attention_every": 3}, "attention_every 3 .* 2 layers"),
        ({"kind": "transformer", "attention_every": 2}, "transformer has no use for it"),
        ({"tied_embedding": True}, "the same vocabulary; leave it out"),
        ({"tied_embedding": True, "inputs": Values(3)}, "the same vocabulary; leave it out"),
        ({"backend": "events", "max_rate": 0.3}, "the triton backend, not events"),
        ({"skip_drive": 8.0}, "model.backend onepass"),
        ({"bidirectional": True}, "--model.pool mean"),
        ({"bidirectional": True, "width": 33, "pool": "mean"}, "an even width"),
        ({"dropout": 1.5}, "a share from 0 to 1, got 1.5"),
        ({"layers": 0}, "model.layers must be at least 1"),
        ({"convolution": 0}, "model.convolution must be at least 1"),
        ({"convolution": 2, "block": "stack"}, "block residual or feedforward, not stack"),
        ({"ungated_layers": 2}, "ungated_layers 2 leaves none of 2 layers"),
        ({"ungated_layers": 1, "kind": "gru"}, "gru has no use for it"),
        ({"half_state": True}, "sugru has no use for it"),
        ({"gate": ThresholdConfig()}, "--model.block stack"),
        ({"gate": RhythmConfig(rate=2.0)}, "'rhythm': rate is a share between 0 and 1, got 2"),
    ],
    ids=str,
)
def test_errors_say_how_to_mend(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_options_of_cells_reach_the_layer():
    layer = build(backend="onepass", skip_drive=9.0).selective_layers()[0]
    assert layer.skip_drive == 9.0
    layer = build(max_rate=0.3, recompute=True).selective_layers()[0]
    assert (layer.max_rate, layer.recompute) == (0.3, True)
    tau = {"tau_m": (5.0, 1.0), "tau_adp": (700.0, 25.0)}
    layer = build(kind="susnn", adaptation_always_decays=True, **tau).selective_layers()[0]
    assert layer.adaptation_always_decays
    assert layer.tau == {"alpha": (5.0, 1.0), "rho": (700.0, 25.0)}
    assert build(kind="susnn", neuron="lif").selective_layers()[0].cell_name == "lif"


@pytest.mark.parametrize("kind", ["rhythm", "input"])
def test_the_first_layers_may_be_open(kind):
    model = build(gate=gate_config(kind, rate=0.2), layers=3, ungated_layers=2, max_rate=0.4)
    layers = model.selective_layers()
    assert [layer.max_rate for layer in layers] == [None, None, 0.4]
    model.eval()(torch.randint(0, 7, (2, 20)))
    rates = [layer.update_rate.item() for layer in layers]
    assert rates[:2] == [1, 1]
    assert 0 < rates[2] < 0.7


def test_states_in_half_precision_reach_the_layer():
    assert build(kind="gru", half_state=True).blocks[0].mixer.half_state
