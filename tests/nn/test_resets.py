"""``reset=`` of layers, steps and cells: what follows a reset is a sequence of its own."""

import itertools

import pytest
import torch

import surnn
from surnn.nn.gates import GATES
from surnn.nn.gates.parts import diagonal_scan
from surnn.nn.resets import restart_clock, steps_since_reset
from surnn.scan import native

LAYERS = [surnn.SuRNN, surnn.SuGRU, surnn.SuLSTM, surnn.SuSNN]
STEPS, BATCH, FEATURES, UNITS = 13, 3, 4, 6


def make_layer(kind=surnn.SuGRU, gate="rhythm", **options):
    if isinstance(gate, str) and "horizon" in GATES[gate].__init__.__kwdefaults__:
        gate = GATES[gate](horizon=16)
    defaults = {"heads": 2, "gate": gate, "dtype": torch.float64}
    return kind(FEATURES, UNITS, **{**defaults, **options}).eval()


def sequences(seed: int = 0, share: float = 0.25):
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64, generator=draws)
    return x, torch.rand(STEPS, BATCH, generator=draws) < share


def parts(reset, lengths=None):
    for b in range(reset.shape[1]):
        end = len(reset) if lengths is None else int(lengths[b])
        starts = [0, *(t for t in range(1, end) if reset[t, b]), end]
        yield from ((b, first, last) for first, last in itertools.pairwise(starts))


def first_tensor(hidden):
    return hidden if isinstance(hidden, torch.Tensor) else hidden[0]


def assert_equals_parts(layer, x, reset, lengths=None) -> None:
    """Outputs, the last hidden state and gradients by x and by all parameters."""
    x = x.to(next(layer.parameters()).dtype, copy=True).requires_grad_()
    single = x.dtype == torch.float32
    weights = torch.randn(STEPS, BATCH, UNITS * layer.num_directions, dtype=x.dtype)
    y, hidden = layer(x, lengths=lengths, reset=reset)
    named = [x, *(p for p in layer.parameters() if p.requires_grad)]
    found = torch.autograd.grad((y * weights).sum(), named, allow_unused=True)
    expected, loss = torch.zeros_like(y), torch.zeros(())
    for b, first, end in parts(reset, lengths):
        own, last = layer(x[first:end, b : b + 1])
        expected[first:end, b] = own[:, 0].detach()
        loss = loss + (own * weights[first:end, b : b + 1]).sum()
        is_last = end == (STEPS if lengths is None else lengths[b])
        if is_last and not layer.bidirectional:
            torch.testing.assert_close(
                first_tensor(hidden)[:, b].as_subclass(torch.Tensor),
                first_tensor(last)[:, 0].as_subclass(torch.Tensor),
            )
    rtol, atol = (1e-4, 1e-6) if single else (1e-11, 1e-12)
    torch.testing.assert_close(y, expected, rtol=rtol, atol=atol)
    grads = torch.autograd.grad(loss, named, allow_unused=True)
    rtol, atol = (1e-3, 1e-5) if single else (1e-9, 1e-11)
    torch.testing.assert_close(
        [g for g in found if g is not None], [g for g in grads if g is not None],
        rtol=rtol, atol=atol,
    )  # fmt: skip


# ------------------------------------------------------------------ separate sequences


BACKENDS = ["reference", "events"] + ["native"] * native.is_available()


@pytest.mark.parametrize("gate", sorted(GATES))
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("padded", [False, True])
def test_every_gate(gate, backend, padded):
    torch.manual_seed(0)
    dtype = torch.float32 if backend == "native" else torch.float64
    layer = make_layer(gate=gate, num_layers=2, backend=backend, dtype=dtype)
    lengths = torch.tensor([STEPS, 1, 7]) if padded else None
    assert_equals_parts(layer, *sequences(), lengths)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("gate", ["rhythm", "ssm"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_layer(kind, gate, backend):
    torch.manual_seed(0)
    dtype = torch.float32 if backend == "native" else torch.float64
    lengths = torch.tensor([STEPS, 1, 7])
    assert_equals_parts(make_layer(kind, gate, backend=backend, dtype=dtype), *sequences(), lengths)


@pytest.mark.parametrize("gate", ["rhythm", "input", "ssm", "full"])
@pytest.mark.parametrize("kind", LAYERS[:3])
def test_gradcheck_with_soft_gates(kind, gate):
    """Derivatives of layer and gate equal finite differences, with lengths."""
    torch.manual_seed(0)
    options = {"horizon": 16} if gate in ("rhythm", "full") else {}
    layer = make_layer(kind, GATES[gate](mode="soft", **options))
    x, reset = sequences()
    x, reset = x[:5, :2].requires_grad_(), reset[:5, :2]
    assert reset[1:].any()
    lengths = torch.tensor([5, 3])
    names = [name for name, p in layer.named_parameters() if p.requires_grad]

    def run(x, *parameters):
        new = dict(zip(names, parameters, strict=True))
        y, _ = torch.func.functional_call(layer, new, (x,), {"lengths": lengths, "reset": reset})
        return y

    assert torch.autograd.gradcheck(run, (x, *(layer.get_parameter(name) for name in names)))


@pytest.mark.parametrize("options", [{"bidirectional": True, "num_layers": 2}, {"expand": 2}])
@pytest.mark.parametrize("padded", [False, True])
def test_directions_and_projections(options, padded):
    """Units that read backwards restart at the end of each part."""
    torch.manual_seed(0)
    lengths = torch.tensor([STEPS, 1, 7]) if padded else None
    assert_equals_parts(make_layer(**options), *sequences(), lengths)


@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_modes_of_gates(mode):
    torch.manual_seed(0)
    gate = surnn.SSMGate(mode=mode, always_on=0.3, modes=3)
    assert_equals_parts(make_layer(gate=gate), *sequences())


@pytest.mark.parametrize("conv", [1, 3])
def test_a_gate_with_all_parts(conv):
    torch.manual_seed(0)
    gate = surnn.FullGate(horizon=16, conv=conv, modes=3, hidden=conv * 4 or None)
    layer = make_layer(gate=gate)
    x, reset = sequences()
    assert_equals_parts(layer, x, reset)
    whole, _ = layer(x, reset=reset)
    first, h = layer(x[:6], reset=reset[:6])
    second, _ = layer(x[6:], h, reset=reset[6:])
    torch.testing.assert_close(torch.cat((first, second)), whole)


def test_native_outputs_equal_bit_for_bit():
    """In C nothing rounds differently in a batch of another shape."""
    for kind, gate in itertools.product(LAYERS, ("rhythm", "open", "every_n")):
        torch.manual_seed(0)
        layer = make_layer(kind, gate, dtype=torch.float32)
        x, reset = sequences()
        x = x.float()
        y, _ = layer(x, reset=reset)
        for b, first, end in parts(reset):
            assert torch.equal(y[first:end, b], layer(x[first:end, b : b + 1])[0][:, 0])


# ------------------------------------------------------------------ states and streams


def test_state_before_the_first_step_only():
    """h_0, a clock and a gate's memory are used until the first reset, and never after it."""
    torch.manual_seed(0)
    for gate in ("rhythm", "ssm"):
        layer = make_layer(gate=gate)
        x, reset = sequences()
        reset[0] = torch.tensor([True, False, False])
        _, state = layer(torch.randn_like(x), layer.init_state(BATCH))
        y, after = layer(x, state, reset=reset)
        for b, first, end in parts(reset):
            fresh = first > 0 or bool(reset[0, b])
            start = layer.init_state(1) if fresh else state.select(b)
            own, last = layer(x[first:end, b : b + 1], start)
            torch.testing.assert_close(y[first:end, b], own[:, 0])
            if end == STEPS:
                torch.testing.assert_close(after.cell[:, :, b], last.cell[:, :, 0])
                torch.testing.assert_close(after.gates[0][b], last.gates[0][0])
                assert after.t[b] == last.t


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("gate", ["rhythm", "ssm", "input"])
def test_steps_equal_the_sequence(kind, gate):
    torch.manual_seed(0)
    layer = make_layer(kind, gate)
    x, reset = sequences()
    y, last = layer(x, layer.init_state(BATCH), reset=reset)
    state = layer.init_state(BATCH)
    for t in range(STEPS):
        now, state = layer.step(x[t], state, reset=reset[t])
        torch.testing.assert_close(now, y[t])
    torch.testing.assert_close(state.cell, last.cell)
    assert torch.equal(state.t, last.t)


def test_chunks_equal_the_sequence():
    torch.manual_seed(0)
    for gate in ("rhythm", "ssm"):
        layer = make_layer(gate=gate)
        x, reset = sequences()
        whole, _ = layer(x, reset=reset)
        first, h = layer(x[:6], reset=reset[:6])
        second, _ = layer(x[6:], h, reset=reset[6:])
        torch.testing.assert_close(torch.cat((first, second)), whole)


@pytest.mark.parametrize("cell", [surnn.SuRNNCell, surnn.SuGRUCell, surnn.SuLSTMCell])
def test_cells(cell):
    torch.manual_seed(0)
    single = cell(FEATURES, UNITS, gate=surnn.Rhythm(horizon=16), dtype=torch.float64)
    x, reset = sequences()
    whole, _ = single.layer(x, reset=reset)
    h = None
    for t in range(STEPS):
        h = single(x[t], h, reset=reset[t])
        torch.testing.assert_close(first_tensor(h).as_subclass(torch.Tensor), whole[t])
    alone = single(x[0, 0], reset=True)
    assert first_tensor(alone).shape == (UNITS,)


def test_layouts_and_a_single_sequence():
    torch.manual_seed(0)
    layer = make_layer()
    x, reset = sequences()
    y, _ = layer(x, reset=reset)
    first = make_layer(batch_first=True)
    first.load_state_dict(layer.state_dict())
    assert torch.equal(first(x.transpose(0, 1), reset=reset.t())[0], y.transpose(0, 1))
    single, _ = layer(x[:, 1], reset=reset[:, 1])
    torch.testing.assert_close(single, y[:, 1])


def test_sampled_gates_and_update_rate():
    """Sampled gates run with resets, and the rate is that of the restarted clocks."""
    layer = make_layer(gate=surnn.EveryN(3))
    reset = torch.zeros(STEPS, BATCH, dtype=torch.bool)
    reset[2::2] = True  # the clock never reaches 3
    layer(sequences()[0], reset=reset)
    assert layer.update_rate.item() == 0
    sampled = make_layer(gate=surnn.Rhythm(horizon=16, mode="sampled")).train()
    y, _ = sampled(sequences()[0], reset=reset)
    y.sum().backward()
    assert sampled.gates[0].bias.grad.isfinite().all()


def test_compiled():
    torch.manual_seed(0)
    x, reset = sequences()
    x = x.float()
    layer = make_layer(gate=["ssm", "rhythm"], num_layers=2, dtype=torch.float32)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, reset=reset)[0], layer(x, reset=reset)[0])


# ------------------------------------------------------------------ parts of it, errors


def test_clock_and_age():
    reset = torch.tensor([[0, 1], [0, 0], [1, 0], [0, 1]], dtype=torch.bool)
    t = torch.arange(11, 15)[:, None]
    assert restart_clock(t, reset).tolist() == [[11, 1], [12, 2], [1, 3], [2, 1]]
    assert steps_since_reset(reset).tolist() == [[0, 0], [1, 1], [0, 2], [1, 0]]


def test_memory_of_a_gate_equals_separate_scans_bit_for_bit():
    u, decay = torch.randn(9, 1, 2), torch.rand(2)
    reset = torch.zeros(9, 1, dtype=torch.bool)
    reset[4] = True
    found = diagonal_scan(decay, u, torch.ones(1, 2), steps_since_reset(reset).unsqueeze(-1))
    assert torch.equal(found[:4], diagonal_scan(decay, u[:4], torch.ones(1, 2)))
    assert torch.equal(found[4:], diagonal_scan(decay, u[4:], torch.zeros(1, 2)))


class Remembering(surnn.Gate):
    sees_input = True

    def init_memory(self, batch):
        return torch.zeros(batch, 1)

    def preactivation(self, t, x, memory):
        return x[..., :1], memory


def test_a_gate_with_memory_that_cannot_restart_says_so():
    layer = make_layer(gate=Remembering())
    x, reset = sequences()
    with pytest.raises(ValueError, match="Remembering has a memory and cannot restart"):
        layer(x, reset=reset)


def test_errors():
    layer = make_layer()
    x, reset = sequences()
    with pytest.raises(TypeError, match=r"reset must be a bool tensor .* got torch\.float32"):
        layer(x, reset=reset.float())
    with pytest.raises(ValueError, match=r"reset must be \[13, 3\].* got \[3, 13\]"):
        layer(x, reset=reset.t())
    with pytest.raises(ValueError, match=r"reset must be \[3\], one entry for each sequence"):
        layer.step(x[0], layer.init_state(BATCH), reset=reset[:2, 0])
