"""Exported steps against the model's own: onnxruntime within rounding, torch.export exactly."""

import copy
import re

import onnx
import onnxruntime
import pytest
import torch

import surnn
from helpers.paths import ROOT
from surnn.config import FullGateConfig, ModelConfig, RhythmConfig
from surnn.deploy.export import check, to_onnx, to_pt2
from surnn.deploy.export.check import Agreement, compare, onnx_step, pt2_step, summarize
from surnn.deploy.export.graph import program_of
from surnn.deploy.export.step import streaming_step
from surnn.errors import MissingExtra
from surnn.models.model import SequenceModel
from surnn.tasks.base import Output, Tokens, Values

STEPS = 200
LATE = 10**9


def model_of(given=Values(3), wanted=Output(4, "sequence"), gate=RhythmConfig(rate=0.3), **options):  # noqa: B008
    options = {"width": 16, "layers": 2, **options}
    if "widths" in options:
        del options["width"], options["layers"]
    model = SequenceModel(ModelConfig(**options), gate, given, wanted, 50)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model.eval()


def stack_of(layer, *gates, units=8, **options):
    return layer(3, units, len(gates), gate=gates, **options).eval()


def off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference, as a share of 1 + |value|."""
    return ((found - wanted).abs() / (1 + wanted.abs())).nan_to_num(0.0).max().item()


@torch.no_grad()
def follow(model, run, batch: int, start: int = 0, steps: int = STEPS):
    """A stream of the model by its own step, and of a file that is fed its own state back."""
    step, own = streaming_step(model), model.init_state(batch)
    fed = step.init_state(batch)
    if start:
        fed["t"] += start
        own = own._replace(t=own.t + start)
    for _ in range(steps):
        x = step.random_input(batch)
        wanted, own = model.step(x, own)
        found, fed = run(x, fed)
        yield found, wanted, fed, own


# ---------------------------------------------------------------------------- all there is

PLAIN = RhythmConfig()
MODELS = {
    "gru": lambda: surnn.SuGRU(3, 12, heads=3, expand=2, groups=3, bias=False),
    "gates of the input": lambda: stack_of(
        surnn.SuRNN,
        surnn.InputGate(hidden=5, always_on=0.3),
        surnn.SSMGate(source="input", modes=4),
        surnn.FullGate(source="input", modes=4, conv=2),
        surnn.FullGate(modes=4, hidden=6),
        surnn.Threshold(0.5),
        surnn.Rhythm(mode="soft"),
        nonlinearity="relu",
    ),
    "residual, tokens, mean, alif": lambda: model_of(
        Tokens(7), kind="susnn", adaptation_always_decays=True, heads=2, pool="mean", layers=1
    ),
    "feed-forward, each step, lif": lambda: model_of(
        wanted=Output(4, "step"),
        kind="susnn",
        neuron="lif",
        block="feedforward",
        norm="rms",
        layers=1,
    ),
    "nn.GRU, norm after": lambda: model_of(
        kind="gru", gate=PLAIN, norm="batch", prenorm=False, glu="silu", layers=1
    ),
    "S4D": lambda: model_of(kind="s4d", gate=PLAIN, state=4, glu="none", layers=1),
    "no memory but a long convolution": lambda: model_of(
        kind="linear", gate=PLAIN, convolution=12, layers=1
    ),
}
EXACTLY = ("gru", "residual, tokens, mean, alif")


@pytest.mark.parametrize("name", MODELS)
def test_onnx_computes_what_the_model_does(name, tmp_path):
    model = MODELS[name]().eval()
    run = onnx_step(to_onnx(model, tmp_path / "model.onnx"))
    for batch in (1, 3):
        for found, wanted, _, _ in follow(model, run, batch):
            assert off(found, wanted) < 1e-5
    if isinstance(model, surnn.SelectiveLayer):
        for found, wanted, _, _ in follow(model, run, 2, LATE):
            assert off(found, wanted) < 1e-5
    if name == "gates of the input":  # the first two stay closed where they see no number
        frames = torch.randn(50, 3)
        frames[25:, 1] = torch.nan
        _, new = run(frames, streaming_step(model).init_state(50))
        for updated in (new["h_0"][:, 3:] != 0, new["h_1"] != 0):
            assert updated[:25].any()
            assert not updated[25:].any()


@pytest.mark.parametrize("name", EXACTLY)
def test_pt2_computes_exactly_what_the_model_does(name, tmp_path):
    model = MODELS[name]().eval()
    run = pt2_step(to_pt2(model, tmp_path / "model.pt2"))
    for batch in (1, 3):
        for t, (found, wanted, fed, _) in enumerate(follow(model, run, batch), 1):
            assert torch.equal(found, wanted)
            assert (fed["t"] == t).all()


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "lstm", "gate": PLAIN}, {"kind": "rnn", "gate": PLAIN},
        {"kind": "mingru", "gate": PLAIN, "pool": "mean"}, {"kind": "sulstm", "norm": "batch"},
        {"block": "stack", "gate": FullGateConfig(source="input", modes=3, conv=2)},
        {"kind": "susnn", "block": "stack", "widths": (8, 16)},
        {"kind": "sulstm", "convolution": 3}, {"kind": "linear", "gate": PLAIN, "pool": "mean"},
    ],
)  # fmt: skip
def test_a_state_by_name_is_the_models_own(options):
    model = model_of(**options)
    for found, wanted, _, _ in follow(model, streaming_step(model), 3, steps=20):
        assert torch.equal(found, wanted)


def test_gates_are_those_of_python_at_any_time(tmp_path):
    gates = (
        surnn.WarpedRhythm(bins=5), surnn.Spline(horizon=10**6), surnn.Spectral(),
        surnn.EveryN(7, staggered=True), surnn.Cycles(), surnn.FixedRandom(),
        surnn.Table(horizon=33),
    )  # fmt: skip
    layer = stack_of(surnn.SuRNN, *gates, units=16)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith(("weight", "bias")):  # a unit that updates becomes tanh(2)
                parameter.fill_(1.0 if name.startswith("bias") else 0.0)
            elif "speed" in name:
                parameter.normal_()
    run = onnx_step(to_onnx(layer, tmp_path / "model.onnx"))
    for start in (0, LATE):
        state = streaming_step(layer).init_state(3000)  # as many moments
        state["t"] = start + torch.arange(3000)
        _, new = run(torch.zeros(3000, 3), state)
        for index, gate in enumerate(layer.gates):
            schedule = gate(state["t"][:, None] + 1)[0].g[:, 0]
            assert 0.01 < schedule.mean() < 0.99
            assert torch.equal(new[f"h_{index}"] != 0, schedule != 0), gate


# ---------------------------------------------------------------------------- the files


def test_a_file_of_two_layers(tmp_path):
    """One file for all of these: to make it takes longer than to look at it."""
    layer = stack_of(surnn.SuLSTM, surnn.Rhythm(rate=0.3), surnn.SSMGate(modes=4))
    file = to_onnx(layer, tmp_path / "model.onnx")
    has_names_and_any_batch(file)
    carries_bit_for_bit(layer, file)
    has_a_clock_for_each_stream(layer, file)
    has_constants_and_tells_no_folders(file)


def has_names_and_any_batch(file):
    session = onnxruntime.InferenceSession(file)
    state = {name: ["batch", 8] for name in ("h_0", "c_0", "h_1", "c_1")}
    state = {"t": ["batch"], **state, "gate_1": ["batch", 4]}
    assert {i.name: i.shape for i in session.get_inputs()} == {"frame": ["batch", 3], **state}
    new = {f"new_{name}": shape for name, shape in state.items()}
    assert {o.name: o.shape for o in session.get_outputs()} == {"output": ["batch", 8], **new}


def carries_bit_for_bit(layer, file):
    before = streaming_step(layer).init_state(2)
    for t, (found, wanted, fed, _) in enumerate(follow(layer, onnx_step(file), 2), 1):
        assert off(found, wanted) < 1e-5
        updates = layer.gates[0](torch.tensor([[t]]))[0].g[0, 0] != 0
        for name in ("h_0", "c_0"):
            assert torch.equal((fed[name] != before[name]).all(0), updates)
            assert torch.equal((fed[name] != before[name]).any(0), updates)
        before = fed


def has_a_clock_for_each_stream(layer, file):
    t = torch.tensor([3, 700, LATE])
    state = streaming_step(layer).init_state(3) | {"t": t}
    _, new = onnx_step(file)(torch.randn(3, 3), state)
    updates = layer.gates[0](t[:, None] + 1)[0].g[:, 0] != 0
    assert torch.equal(new["h_0"] != 0, updates)
    assert len(updates.unique(dim=0)) > 1
    assert torch.equal(new["t"], t + 1)


def has_constants_and_tells_no_folders(file):
    content = onnx.load(file)
    onnx.checker.check_model(content, full_check=True)
    kinds = [node.op_type for node in content.graph.node]
    assert kinds.count("Sin") == 2  # of the clock, and for its cosine; phases are constants
    assert not {"Cos", "Range", "Einsum", "Exp"} & set(kinds)
    assert str(ROOT) not in str(content)


def test_tokens_have_names_too():
    tokens = streaming_step(model_of(Tokens(7), pool="mean"))
    assert (tokens.input_name, tokens.output_name) == ("token", "prediction")
    assert list(tokens.zero_state) == ["t", "h_0", "h_1", "total"]


def test_every_operation_of_a_step_depends_on_its_input():
    program = program_of(streaming_step(stack_of(surnn.SuLSTM, surnn.Rhythm(rate=0.3))))
    inputs = set(program.graph_signature.user_inputs)
    changing = {node for node in program.graph.nodes if node.name in inputs}
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target is not torch.ops.aten.permute.default:
            assert changing & set(node.all_input_nodes), node
        if changing & set(node.all_input_nodes):
            changing.add(node)
    assert not any(node.meta.get("stack_trace") for node in program.graph.nodes)


def test_the_model_itself_stays_as_it_is():
    model = model_of(dropout=0.5).train()
    step = streaming_step(model)
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert not any(m.training for m in step.model.modules())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: model_of(kind="transformer", gate=RhythmConfig(), heads=2), "Attention"),
        (lambda: model_of(bidirectional=True, pool="mean"), "bidirectional layer needs the whole"),
        (lambda: model_of(Tokens(7), Output(2, "sequence", True)), "both documents"),
        (lambda: surnn.SuGRU(3, 8, backend="onepass", skip_drive=20.0), "approximately"),
        (lambda: torch.nn.GRU(3, 8, bidirectional=True), "bidirectional layer needs the whole"),
        (lambda: surnn.SuGRU(3, 8, nonfinite="raise"), "use nonfinite='propagate'"),
    ],
)
def test_what_cannot_stream_is_refused_with_the_reason(make, reason, tmp_path):
    with pytest.raises((ValueError, TypeError), match=reason):
        to_pt2(make(), tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


def test_files_that_would_not_work_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=re.escape("use model.float()")):
        to_onnx(surnn.SuGRU(3, 8).double(), tmp_path / "model.onnx")
    with pytest.raises(ValueError, match=r"got 'model\.bin'"):
        to_pt2(surnn.SuGRU(3, 8), tmp_path / "model.bin")
    monkeypatch.setattr("surnn.deploy.export.onnx.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'surnn[onnx]'")):
        to_onnx(surnn.SuGRU(3, 8), tmp_path / "model.onnx")


# ---------------------------------------------------------------------------- the check


def test_another_model_is_noticed():
    layer = surnn.SuGRU(3, 8, gate=surnn.EveryN(2))
    written = streaming_step(copy.deepcopy(layer))
    assert compare(streaming_step(layer), written) == Agreement(0.0, 0, 400)
    with torch.no_grad():
        layer.bias_hh_l0[-1] += 0.01
    found = compare(streaming_step(layer), written)
    assert 1e-4 < found.largest < 0.1
    assert not found.good


def test_only_late_clocks_tell_of_some_mistakes(tmp_path):
    layer = surnn.SuGRU(3, 8, gate=surnn.Rhythm(min_period=2.5))
    step = streaming_step(layer)

    def in_single_precision(x, state):
        y, new = step(x, state | {"t": state["t"].float().long()})
        return y, new | {"t": state["t"] + 1}

    assert not compare(step, in_single_precision).good


def test_a_changed_decision_is_left_out_where_there_are_such():
    off = torch.full((100, 4), 1e-7)
    off[50, 1] = 0.3
    sees, clock = (streaming_step(surnn.SuGRU(3, 8, gate=g)) for g in ("input", "rhythm"))
    assert summarize(sees, off, off > 1e-4) == (pytest.approx(1e-7), 1, 400)
    assert "without 1 steps" in str(summarize(sees, off, off > 1e-4))
    assert not summarize(clock, off, off > 1e-4).good
    assert not summarize(sees, off * 1e4, off > 1e-12).good  # not few


def test_nan_is_nan_and_nothing_else():
    a, b = torch.tensor([[torch.nan, 1.0]]), torch.tensor([[2.0, 1.0]])
    assert check.difference(a, a).item() == 0
    assert check.difference(a, b).item() == torch.inf
    assert check.difference(b, a).item() == torch.inf
