"""Models and baselines: shapes, streams, pooling, and what a length hides."""

import copy
from dataclasses import fields, replace
from typing import get_args

import pytest
import torch
from torch.nn import functional

from surnn.blocks import Convolution, Dropout, Skip, gated, mixed
from surnn.config import GateConfig, GateKind, ModelConfig, ModelKind, RunConfig, TrainConfig
from surnn.gates import GATES
from surnn.models import SequenceModel, gate_options, make_gate
from surnn.surrogate import Surrogate
from surnn.tasks import Output, Tokens, Values
from surnn.tasks.copying import Copying
from surnn.tasks.mackey_glass import MackeyGlass
from surnn.tasks.text_file import TextFile

KINDS = get_args(ModelKind)
SMALL = ModelConfig(width=32)


def build(given=Tokens(7), wanted=Output(5, "sequence"), steps=20, gate=GateConfig(rate=0.5), **kw):  # noqa: B008
    torch.manual_seed(0)
    return SequenceModel(replace(SMALL, **kw), gate, given, wanted, steps)


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
    assert_streams(build(given=Values(3), kind=kind, pool=pool, norm=norm).eval())


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
        {"convolution": 9, "kind": "lstm", "block": "feedforward"},
        {"convolution": 2, "attention_every": 1, "attention_heads": 2},
    ],
    ids=str,
)
def test_every_block_streams(options, pool):
    assert_streams(build(given=Values(3), pool=pool, **options).eval(), steps=6)


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_causal(kind):
    model = build(kind=kind, wanted=Output(5, "step")).eval()
    x = torch.randint(0, 7, (2, 20))
    y = model(x)
    x[:, 11:] = (x[:, 11:] + 1) % 7
    torch.testing.assert_close(model(x)[:, :11], y[:, :11], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(model(x)[:, 11:], y[:, 11:])


@pytest.mark.parametrize("pool", ["last", "mean"])
def test_pairs_are_compared(pool):
    """[u, v, u - v, u * v] of the two documents' encodings, each pooled over its own length."""
    model = build(wanted=Output(2, "sequence", pairs=True), pool=pool).eval()
    x, lengths = torch.randint(0, 7, (3, 2, 20)), torch.randint(1, 21, (3, 2))
    alone = [model.encode(x[2, i : i + 1, : lengths[2, i]])[:, 0] for i in (0, 1)]
    u, v = (y[-1] if pool == "last" else y.mean(0) for y in alone)
    expected = model.head(torch.cat((u, v, u - v, u * v)))
    torch.testing.assert_close(model(x, lengths)[2], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="both documents"):
        model.init_state(1)


def test_bidirectional_layers_see_both_ways():
    model = build(bidirectional=True, pool="mean", wanted=Output(5, "step")).eval()
    x = torch.randint(0, 7, (2, 20))
    y = model(x)
    x[:, 19] = (x[:, 19] + 1) % 7
    assert not torch.allclose(model(x)[:, 0], y[:, 0])


@pytest.mark.parametrize("prenorm", [True, False])
def test_blocks_are_their_equations(prenorm):
    x = torch.randn(5, 2, 32)
    residual = build(prenorm=prenorm)
    block = residual.blocks[0]
    y, _ = mixed(block.mixer, block.norm(x) if prenorm else x)
    total = x + functional.glu(block.out(functional.gelu(y)), -1)
    torch.testing.assert_close(block(x), total if prenorm else block.norm(total))
    assert (residual.norm is not None) == prenorm

    block = build(block="feedforward", prenorm=prenorm).blocks[0]
    first, second = block.norm, block.second_norm
    total = x + mixed(block.mixer, first(x) if prenorm else x)[0]
    total = total if prenorm else first(total)
    y = second(total) if prenorm else total
    total = total + block.narrow(functional.gelu(block.widen(y)))
    torch.testing.assert_close(block(x), total if prenorm else second(total))


def test_a_convolution_is_a_sum_of_steps():
    """Feature by feature; padding is no part of what it keeps."""
    block, x = Convolution(5, 3), torch.randn(6, 2, 5)
    taps = torch.cat((block.taps, torch.ones(1, 5))).t().unsqueeze(1)
    padded = functional.pad(x.permute(1, 2, 0), (2, 0))
    sums = functional.conv1d(padded, taps, groups=5).permute(2, 0, 1)
    torch.testing.assert_close(block(x), sums)

    state = block.init_state(2)
    y, after = block(x, torch.tensor([6, 1]), state)
    torch.testing.assert_close(y, sums)
    assert torch.equal(after[0], x[4:, 0])
    assert torch.equal(after[1], torch.stack((torch.zeros(5), x[0, 1])))
    y, after = block(x[:1], None, state)
    y, after = block(x[1:5], None, after)
    assert after.untyped_storage().nbytes() == 4 * after.numel()  # it keeps no other steps
    torch.testing.assert_close(y, sums[1:5])
    y, after = block.step(x[5], after)
    torch.testing.assert_close(y, sums[5])
    assert torch.equal(after, x[4:].transpose(0, 1))


def test_a_convolution_of_half_precision_keeps_what_its_state_is_in():
    """As under autocast: x in bfloat16, the state and the weights in float32."""
    block, x = Convolution(5, 4), torch.randn(6, 2, 5).bfloat16()
    whole, state = block(x), block.init_state(2)
    assert whole.dtype == torch.bfloat16
    for begin, end in ((0, 2), (2, 6)):
        y, state = block(x[begin:end], None, state)
        assert torch.equal(y, whole[begin:end])
        assert state.dtype == torch.float32
    assert torch.equal(block(x, torch.tensor([6, 6]), block.init_state(2))[1], state)


@pytest.mark.parametrize("taps", [2, 4, 33])
def test_convolutions_begin_small(taps):
    x = y = torch.randn(200, 2, 50)
    for _ in range(14):
        y = Convolution(50, taps)(y)
    assert torch.corrcoef(torch.stack((x.flatten(), y.flatten())))[0, 1] > 0.3
    assert y.std() < 4


@pytest.mark.parametrize(
    ("how", "function"),
    [("sigmoid", torch.sigmoid), ("gelu", functional.gelu), ("silu", functional.silu)],
)
def test_glu_variants(how, function):
    y = torch.randn(3, 8)
    torch.testing.assert_close(gated(y, how), y[:, :4] * function(y[:, 4:]))
    assert gated(y, "none") is y


def test_tied_dropout_drops_a_feature_at_all_steps():
    x = Dropout(0.5, tied=True)(torch.ones(10, 4, 8))
    assert (x == x[:1]).all()
    assert 0 < (x == 0).float().mean() < 1
    assert not (x[:, 0] == x[:, 1]).all()  # each sequence has its own
    free = Dropout(0.5, tied=False)(torch.ones(10, 4, 8))
    assert not (free == free[:1]).all()


def test_drop_path_leaves_some_sequences_as_they_were():
    block = build(drop_path=0.5, layers=2, norm="rms").blocks[1]
    x = torch.randn(5, 64, 32)
    skipped = (block(x) == x).all(2)
    assert (skipped == skipped[:1]).all()  # at all steps or none
    assert 0.2 < skipped.float().mean() < 0.8
    assert not (block.eval()(x) == x).all(2).any()


def test_what_drop_path_keeps_is_as_large_as_all_of_it():
    skip = Skip(0.25).double()
    assert skip.kept.dtype == torch.float32
    y = skip(torch.ones(3, 4000, 2))
    assert y.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert y.mean().item() == pytest.approx(1, abs=0.1)
    assert (Skip(1.0)(torch.ones(3, 4, 2)) == 0).all()
    assert repr(skip.to("meta")) == "Skip(0.25)"
    assert skip.to_empty(device="cpu").kept == 0.75


@pytest.mark.parametrize("given", [Tokens(7), Values(3)], ids=["tokens", "values"])
def test_input_dropout_hides_whole_steps_in_training(given):
    model = build(given, input_dropout=0.25)
    x = torch.randint(1, 7, (8, 50)) if isinstance(given, Tokens) else torch.randn(8, 50, 3)
    whole, seen = model.eval()._read(x), model.train()._read(x)
    hidden = (seen == 0).all(2)
    assert 0.15 < hidden.float().mean() < 0.35
    torch.testing.assert_close(seen[~hidden], whole[~hidden] / 0.75)
    assert (model.eval()._read(x) == whole).all()
    assert not torch.equal(model.train()(x), model(x))  # what is hidden makes a difference
    assert torch.equal(model.eval()(x), model(x))


def test_input_dropout_hides_steps_of_streams_too():
    model = build(wanted=Output(5, "step"), input_dropout=0.5)
    x, state = torch.randint(1, 7, (2, 30)), model.init_state(2)
    assert not torch.equal(model.train()(x, state=state)[0], model(x, state=state)[0])
    assert torch.equal(model.eval()(x, state=state)[0], model(x, state=state)[0])


def test_a_tied_head_is_the_embedding():
    model = build(given=Tokens(500), wanted=Output(500, "step"), tied_embedding=True)
    assert model.head.weight is model.encoder.weight
    assert [name for name, _ in model.named_parameters() if "head" in name] == []
    scores = model(torch.randint(0, 500, (2, 20)))
    assert scores.std() < 2  # it begins without an opinion, though an embedding's rows are long
    again = copy.deepcopy(model)
    assert again.head.weight is again.encoder.weight is not model.encoder.weight


# ---------------------------------------------------------------------------- gates


@pytest.mark.parametrize("kind", get_args(GateKind))
def test_every_gate_can_be_configured(kind):
    model = build(gate=GateConfig(kind=kind), block="stack")
    model(torch.randint(0, 7, (2, 20))).sum().backward()


def test_every_option_of_every_gate_is_a_field():
    """And every field is an option of some gate, or a part of its surrogate."""
    known = set().union(*(gate_options(kind) for kind in GATES.values())) | {"slope", "kind"}
    assert {f.name for f in fields(GateConfig)} == known


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
        ("every_n", {"n": 5, "staggered": True}),
        ("cycles", {"min_period": 5.0, "max_period": 9.0}),
        ("threshold", {"level": 0.5}),
        ("fixed_random", {"seed": 3, "rate": 0.2}),
    ],
)
def test_gate_options_reach_the_gate(kind, options):
    gate = make_gate(GateConfig(kind, **options), 77)
    assert {name: getattr(gate, name) for name in options} == options


def test_a_gate_without_options_is_that_of_the_library():
    assert make_gate(GateConfig("input"), 77).rate == GATES["input"]().rate
    assert not make_gate(GateConfig("fixed_rhythm"), 77).calibrated
    assert make_gate(GateConfig(slope=2.0), 77).surrogate == Surrogate("sigmoid", 2.0)


@pytest.mark.parametrize("kind", ["rhythm", "warped", "spline", "spectral", "table", "ssm"])
@pytest.mark.parametrize("block", ["stack", "residual"])
def test_a_clock_is_made_for_the_length_of_the_task(kind, block):
    model = build(gate=GateConfig(kind), block=block, steps=77)
    gates = [gate for layer in model.selective_layers() for gate in layer.gates]
    assert [gate.horizon for gate in gates] == [77, 77]
    other = build(gate=GateConfig(kind, horizon=30), block=block, steps=77)
    assert other.selective_layers()[0].gates[0].horizon == 30


def test_the_threshold_sees_the_input_of_the_whole_stack():
    """The paper's x > 0: both layers open where the pixel is not black."""
    model = build(given=Values(1), gate=GateConfig("threshold"), block="stack").eval()
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
        ({"kind": "lstm", "heads": 4}, "model.heads is of sugru, .*transformer; lstm"),
        ({"kind": "s4d", "expand": 2}, "s4d has no use for it"),
        ({"kind": "sugru", "chrono": True}, "of gru, lstm; sugru has no use"),
        ({"kind": "transformer", "heads": 5}, "5 attention heads do not divide 32"),
        ({"kind": "s4d", "block": "stack", "given": Values(3)}, "--model.block residual"),
        ({"block": "stack", "norm": "batch"}, "of block residual or feedforward, not stack"),
        ({"kind": "transformer", "glu": "silu"}, "of block residual, not feedforward"),
        ({"widths": (8, 8)}, "of block stack, not residual"),
        ({"window": 8}, "model.window is of attention"),
        ({"attention_heads": 2}, "set model.attention_every too"),
        ({"attention_every": 3}, "3 of 2 layers would be no attention at all"),
        ({"kind": "transformer", "attention_every": 2}, "transformer has no use for it"),
        ({"tied_embedding": True}, "the same vocabulary; leave it out"),
        ({"tied_embedding": True, "given": Values(3)}, "the same vocabulary; leave it out"),
        ({"backend": "events", "max_rate": 0.3}, "of the triton backend, not events"),
        ({"skip_drive": 8.0}, "of model.backend onepass"),
        ({"bidirectional": True}, "--model.pool mean"),
        ({"bidirectional": True, "width": 33, "pool": "mean"}, "has no half"),
        ({"dropout": 1.5}, "a share from 0 to 1, got 1.5"),
        ({"layers": 0}, "model.layers must be at least 1"),
        ({"convolution": 0}, "model.convolution must be at least 1"),
        ({"convolution": 2, "block": "stack"}, "of block residual or feedforward, not stack"),
        ({"open_layers": 2}, "leaves none of 2 layers to be gated, got 2"),
        ({"open_layers": 1, "kind": "gru"}, "gru has no use for it"),
        ({"half_state": True}, "sugru has no use for it"),
        ({"gate": GateConfig("threshold")}, "--model.block stack"),
        ({"gate": GateConfig("rhythm", n=3)}, "'rhythm' has no option n; it has always_on"),
        ({"gate": GateConfig("every_n", rate=0.2)}, "EveryN .* takes no 'rate'"),
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
    layer = build(kind="susnn", adaptation_goes_on=True, **tau).selective_layers()[0]
    assert layer.adaptation_goes_on
    assert layer.tau == {"alpha": (5.0, 1.0), "rho": (700.0, 25.0)}
    assert build(kind="susnn", neuron="lif").selective_layers()[0].cell_name == "lif"


@pytest.mark.parametrize("kind", ["rhythm", "input"])
def test_the_first_layers_may_be_open(kind):
    model = build(gate=GateConfig(kind, rate=0.2), layers=3, open_layers=2, max_rate=0.4)
    layers = model.selective_layers()
    assert [layer.max_rate for layer in layers] == [None, None, 0.4]
    model.eval()(torch.randint(0, 7, (2, 20)))
    rates = [layer.update_rate.item() for layer in layers]
    assert rates[:2] == [1, 1]
    assert 0 < rates[2] < 0.7


# ---------------------------------------------------------------------------- configurations


def run_of(gate=GateConfig(), train=TrainConfig(), **model) -> RunConfig:  # noqa: B008
    return RunConfig(Copying(), ModelConfig(**model), gate, train)


@pytest.mark.parametrize(
    ("gate", "train", "kind", "message"),
    [
        ({"target_rate": 0.1}, {}, "sugru", "train.rate_penalty: set both"),
        ({}, {"rate_penalty": 0.1}, "sugru", "gate.target_rate: set both"),
        ({}, {"rate_penalty": 0.1}, "gru", "gru has no gates and no use for train.rate_penalty"),
        ({"rate": 0.1}, {}, "gru", "no use for gate.rate"),
        ({"kind": "input"}, {}, "s4d", "no use for gate.kind"),
        ({}, {"anneal": (0.5, 0.7)}, "sugru", "gate.mode to sampled"),
        ({"kind": "open"}, {"gate_learning_rate": 1e-3}, "sugru", "the gate is not learned"),
        ({"frozen": True, "target_rate": 0.1}, {"rate_penalty": 1.0}, "sugru", "not learned"),
        ({}, {"anneal": (0.7, 0.5)}, "sugru", "two shares"),
        ({}, {"learning_rate": 0.0}, "sugru", "must be more than 0"),
    ],
)
def test_options_that_would_do_nothing_are_refused(gate, train, kind, message):
    with pytest.raises(ValueError, match=message):
        run_of(GateConfig(**gate), TrainConfig(**train), kind=kind)


@pytest.mark.parametrize(
    ("model", "gate", "message"),
    [
        ({"kind": "gru", "half_state": True}, {}, "of train.precision bfloat16: set both"),
        ({"max_rate": 0.5}, {"kind": "open"}, "leave out model.open_layers and model.max_rate"),
        ({"open_layers": 1}, {"kind": "open"}, "leave out model.open_layers and model.max_rate"),
    ],
)
def test_options_of_models_that_would_do_nothing_are_refused(model, gate, message):
    with pytest.raises(ValueError, match=message):
        run_of(GateConfig(**gate), **model)


@pytest.mark.parametrize("task", [TextFile(), MackeyGlass()], ids=["text", "series"])
def test_who_predicts_what_comes_must_not_read_backwards(task):
    with pytest.raises(ValueError, match=r"predicts what comes next, and model.bidirectional"):
        RunConfig(task, ModelConfig(bidirectional=True))


def test_states_in_half_precision_reach_the_layer():
    assert build(kind="gru", half_state=True).blocks[0].mixer.half_state


def test_beside_keeps_what_the_other_kind_can_use():
    gate = GateConfig("input", target_rate=0.1)
    train = TrainConfig(rate_penalty=1.0, anneal=(0.5, 0.7), batch=7)
    ours = run_of(gate, train, heads=2, expand=4, dropout=0.3)
    gru = ours.beside("gru", chrono=True)
    assert gru.model == ModelConfig("gru", dropout=0.3, chrono=True)
    assert gru.gate == GateConfig()
    assert gru.train == TrainConfig(batch=7)
    lstm = ours.beside("sulstm")
    assert (lstm.model.heads, lstm.gate, lstm.train) == (2, gate, train)
