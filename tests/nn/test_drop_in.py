"""What tools and code written for torch's layers expect: attributes, tracing, counters, cells."""

import copy
import inspect

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.utils import prune
from torch.utils.flop_counter import FlopCounterMode

import surnn
from helpers.scans import close, tensors
from surnn import AlwaysOpen, SuGRU, SuGRUCell, SuLSTM, SuLSTMCell, SuRNN, SuRNNCell
from surnn.nn.gates import GATES

STEPS, BATCH, FEATURES, HIDDEN = 12, 3, 5, 12
X = torch.randn(STEPS, BATCH, FEATURES)
PAIRS = [(SuGRU, nn.GRU), (SuLSTM, nn.LSTM), (SuRNN, nn.RNN)]
CELLS = [(SuGRUCell, nn.GRUCell), (SuLSTMCell, nn.LSTMCell), (SuRNNCell, nn.RNNCell)]


def test_the_rate_of_a_layer_that_has_not_run_is_no_attribute():
    layer = SuGRU(FEATURES, HIDDEN)
    assert not hasattr(layer, "update_rate")
    assert "update_rate" not in dict(inspect.getmembers(layer))
    layer(X)
    assert hasattr(layer, "update_rate")


@pytest.mark.filterwarnings("ignore")
def test_a_recorded_forward_sets_nothing_on_the_layer():
    layer = SuGRU(FEATURES, HIDDEN).requires_grad_(False)
    program = torch.export.export(layer, (X,))
    assert layer._rates == ()
    traced = torch.jit.trace(layer, (X,))
    for run in (program.module(), traced):
        torch.testing.assert_close(run(X)[0], layer(X)[0])


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_weight_lists_are_torchs(ours, theirs, bidirectional):
    layer = ours(FEATURES, HIDDEN, 2, bidirectional=bidirectional)
    expected = theirs(FEATURES, HIDDEN, 2, bidirectional=bidirectional)
    shapes = [[[w.shape for w in one] for one in m.all_weights] for m in (layer, expected)]
    assert shapes[0] == shapes[1]
    assert [w.shape for w in layer._flat_weights] == [w.shape for w in expected._flat_weights]
    assert layer._flat_weights[0] is layer.weight_ih_l0
    assert layer.proj_size == expected.proj_size == 0


@pytest.mark.parametrize("ours", [SuGRU, SuLSTM, surnn.SuSNN])
@pytest.mark.parametrize("backend", ["reference", "events"])
def test_hidden_states_and_gradients_are_contiguous(ours, backend):
    layer = ours(FEATURES, HIDDEN, 2, heads=3, backend=backend)
    x = torch.randn(STEPS, BATCH, FEATURES, requires_grad=True)
    y, hidden = layer(x)
    assert all(h.is_contiguous() for h in tensors(hidden))
    assert y.is_contiguous()
    assert torch.autograd.grad(y.sum(), x)[0].is_contiguous()
    h_0 = [torch.randn(2, BATCH, HIDDEN, requires_grad=True) for _ in layer.cell.components]
    y, _ = layer(x, tuple(h_0))
    assert all(g.is_contiguous() for g in torch.autograd.grad(y.sum(), h_0))


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.parametrize("gate", ["open", "rhythm", "ssm", "full"])
def test_a_batch_without_sequences_gives_empty_results(ours, theirs, gate):
    x = torch.randn(STEPS, 0, FEATURES, requires_grad=True)
    expected, last = theirs(FEATURES, HIDDEN, 2)(x)
    spec = GATES[gate](target_rate=0.1) if gate != "open" else gate
    for backend in ("auto", "reference"):
        layer = ours(FEATURES, HIDDEN, 2, gate=spec, backend=backend)
        y, hidden = layer(x)
        assert y.shape == expected.shape
        assert [h.shape for h in tensors(hidden)] == [h.shape for h in tensors(last)]
        (y.sum() + layer.rate_penalty()).backward()
        assert layer.update_rate.isfinite().all()
        assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())
        layer(x, lengths=torch.zeros(0, dtype=torch.long))
        layer.step(x[0], layer.init_state(0))
    for layer in (ours(FEATURES, HIDDEN), theirs(FEATURES, HIDDEN)):
        with pytest.raises(RuntimeError):
            layer(X[:0])


def test_wrong_inputs_are_runtime_errors_as_torchs_and_value_errors():
    layer, theirs = SuGRU(FEATURES, HIDDEN), nn.GRU(FEATURES, HIDDEN)
    wrong = torch.zeros(2, BATCH, HIDDEN)
    for call in (lambda m: m(X[..., :3]), lambda m: m(X, wrong)):
        with pytest.raises(RuntimeError):
            call(theirs)
        for kind in (RuntimeError, ValueError):
            with pytest.raises(kind):
                call(layer)


@pytest.mark.parametrize("gate", sorted(GATES))
def test_layers_without_values(gate):
    def run():
        layer = SuGRU(FEATURES, HIDDEN, gate=gate)
        y, _ = layer(torch.randn(STEPS, BATCH, FEATURES))
        y.sum().backward()
        return y, [*layer.parameters()]

    with FakeTensorMode():
        y, parameters = run()
    assert isinstance(y, FakeTensor)
    assert y.shape == (STEPS, BATCH, HIDDEN)
    with torch.device("meta"):
        y, parameters = run()
    assert {v.device.type for v in (y, *parameters)} == {"meta"}
    assert type(run()[0]) is torch.Tensor


def count(function):
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_counted_operations_follow_the_updates(ours, theirs):
    module = theirs(FEATURES, HIDDEN)
    layer = ours.from_torch(module, gate=AlwaysOpen())
    dense = count(lambda: layer(X))
    with torch.no_grad():
        assert dense == STEPS * BATCH * 2 * sum(w.numel() for w in module._flat_weights[:2])
    x = X.clone().requires_grad_()
    assert count(lambda: layer(x)[0].sum().backward()) == 3 * dense
    fourth = ours(FEATURES, HIDDEN, gate=surnn.EveryN(4))
    assert count(lambda: fourth(X)) == dense // 4
    seen = ours(FEATURES, HIDDEN, heads=3, gate=surnn.Threshold(0.0, granularity="layer"))
    rate = (X.amax(-1) > 0).float().mean().item()
    blocks = STEPS * BATCH * 2 * sum(w.numel() for w in seen._flat_weights[:2])
    assert count(lambda: seen(X)) == round(rate * blocks)
    meta = ours(FEATURES, HIDDEN, gate=surnn.EveryN(4), device="meta")
    assert count(lambda: meta(X.to("meta"))) == dense


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])  # bfloat16: after a Linear
@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_the_output_dtype_under_autocast_is_torchs(ours, theirs, dtype):
    x = X.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ours(FEATURES, HIDDEN)(x)[0].dtype == theirs(FEATURES, HIDDEN)(x)[0].dtype


# ---------------------------------------------------------------------------- cells


@pytest.mark.parametrize(("ours", "theirs"), CELLS)
def test_gradients_of_a_cells_weights_are_contiguous(ours, theirs):
    cell = ours(FEATURES, HIDDEN, gate=AlwaysOpen())
    h = tensors(cell(X[0]))[0]
    gradients = torch.autograd.grad(h.sum(), [*cell.parameters()])  # .grad would copy
    assert all(g.is_contiguous() for g in gradients)


@pytest.mark.parametrize(("ours", "theirs"), CELLS)
@pytest.mark.parametrize("bias", [False, True])
def test_open_cells_equal_torchs(ours, theirs, bias):
    module = theirs(FEATURES, HIDDEN, bias=bias).double()
    cell = ours.from_torch(module, gate=AlwaysOpen())
    for x in (X.double(), X[:, 0].double()):
        h = expected = None
        for x_t in x:
            h, expected = cell(x_t, h), module(x_t, expected)
            close(h, expected)
    with pytest.raises(TypeError, match=theirs.__name__):
        ours.from_torch(nn.Linear(2, 2))


@pytest.mark.parametrize(("ours", "theirs"), CELLS)
@pytest.mark.parametrize("gate", ["rhythm", "ssm", "input", surnn.FullGate(conv=2)])
@torch.no_grad()
def test_steps_of_a_cell_equal_a_pass_of_its_layer(ours, theirs, gate):
    cell = ours(FEATURES, HIDDEN, heads=3, gate=gate).double().eval()
    x = X.double()
    whole, _ = cell.layer(x)
    h, state, outputs = None, cell.init_state(BATCH), []
    for x_t in x:
        h, state = cell(x_t, h), cell(x_t, state)
        outputs.append(tensors(h)[0])
        close(state.cell[0, 0], outputs[-1])
    close(torch.stack(outputs), whole)
    alone = None
    for x_t in x[:, 0]:
        alone = cell(x_t, alone)
    close(tensors(alone)[0], whole[-1, 0])
    assert cell.update_rate.shape == (1,)
    if gate == "rhythm":
        plain = tuple(v.plain() for v in tensors(h))
        with pytest.raises(surnn.ClockError, match="one time step from a plain"):
            cell(x[0], plain if len(plain) > 1 else plain[0])
    with pytest.raises(ValueError, match="one frame"):
        cell(x[None])
    with pytest.raises(RuntimeError, match=rf"one frame \[B, {FEATURES}\].*got \[{BATCH}, 3\]"):
        cell(x[0, :, :3])
    with pytest.raises(TypeError, match="bias must be True or False, got 1"):
        ours(FEATURES, HIDDEN, bias=1)


@pytest.mark.parametrize(("ours", "theirs"), CELLS)
@pytest.mark.parametrize("gate", ["rhythm", "ssm", AlwaysOpen()])
def test_cells_without_units_are_torchs(ours, theirs, gate):
    cell, module = ours(FEATURES, 0, gate=gate), theirs(FEATURES, 0)
    shapes = [
        [p.shape for n, p in m.named_parameters() if "gates" not in n] for m in (cell, module)
    ]
    assert shapes[0] == shapes[1]
    x = torch.randn(BATCH, FEATURES, requires_grad=True)
    h = tensors(cell(x))[0]
    assert h.shape == tensors(module(x))[0].shape == (BATCH, 0)
    h.sum().backward()
    assert not x.grad.any()
    for size in (-1, False):
        with pytest.raises(ValueError, match="hidden_size must be greater than zero"):
            ours(FEATURES, size)
    with pytest.raises(ValueError, match="hidden_size must be greater than zero"):
        type(cell.layer)(FEATURES, 0)


def test_copies_of_changed_layers():
    """Weights that torch computes from others: parametrized, pruned."""
    layer = SuGRU(FEATURES, HIDDEN)
    nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")
    y, _ = layer(X)
    close(copy.deepcopy(layer)(X)[0], y)
    pruned = SuGRU(FEATURES, HIDDEN)
    prune.random_unstructured(pruned, "weight_hh_l0", 0.5)
    y, _ = pruned(X)
    close(copy.deepcopy(pruned)(X)[0], y)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("cls", "gate"), [(SuGRU, "rhythm"), (SuLSTM, "input")])
@torch.no_grad()
def test_a_whole_sequence_is_written_as_onnx(cls, gate, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    layer = cls(FEATURES, HIDDEN, heads=3, gate=gate).eval().requires_grad_(False)
    program = torch.onnx.export(layer, (X,), dynamo=True, verbose=False)
    program.save(tmp_path / "layer.onnx")
    session = runtime.InferenceSession(tmp_path / "layer.onnx")
    y = session.run(None, {session.get_inputs()[0].name: X.numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(y), layer(X)[0])


@pytest.mark.parametrize("name", ["every_n", "cycles", "spline", "table", "spectral", "warped"])
def test_remainders_of_clocks_are_never_of_negative_numbers(name, monkeypatch):
    """Some runtimes have C's remainder, which differs from Python's below zero."""
    gate = GATES[name]().bind(16)
    t = torch.arange(1, 2000)[:, None]
    expected = gate(t)[0].g
    monkeypatch.setattr(torch, "remainder", torch.fmod)
    monkeypatch.setattr(torch.Tensor, "__mod__", torch.Tensor.fmod)
    assert torch.equal(gate(t)[0].g, expected)
