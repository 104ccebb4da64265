"""Layers: streams, lengths, directions, options, precision, saving and loading."""

import copy
import pickle

import pytest
import torch
from torch import nn

import surnn
from helpers.scans import close, tensors
from surnn import AlwaysOpen, SuGRU, SuLSTM, SuRNN, SuSNN
from surnn.nn.layers.weights import orthogonal

LAYERS = [SuGRU, SuLSTM, SuRNN, SuSNN]
STEPS, BATCH, FEATURES, HIDDEN = 17, 3, 5, 12
FULL = surnn.FullGate(conv=2, hidden=7, horizon=17)


# ------------------------------------------------------------------ streams


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("gate", ["rhythm", "ssm", FULL, "spline", "fixed_random"])
@pytest.mark.parametrize("backend", ["reference", "events"])
@torch.no_grad()
def test_steps_and_chunks_equal_the_whole(cls, gate, backend):
    layer = cls(FEATURES, HIDDEN, num_layers=2, heads=3, gate=gate, backend=backend)
    layer = layer.double().eval()
    x = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64)
    whole, end = layer(x, layer.init_state(BATCH))

    state, outputs = layer.init_state(BATCH), []
    for x_t in x:
        before = copy.deepcopy(state)
        y_t, after = layer.step(x_t, state)
        assert all(torch.equal(a, b) for a, b in zip(_flat(before), _flat(state), strict=True))
        state = after
        outputs.append(y_t)
    close(torch.stack(outputs), whole)
    close(_flat(state), _flat(end))

    state, outputs = layer.init_state(BATCH), []
    for piece in x.split([1, 7, 9]):
        y, state = layer(piece, state)
        outputs.append(y)
    close(torch.cat(outputs), whole)
    close(_flat(state), _flat(end))
    assert state.t == STEPS


def _flat(state):
    return (state.cell, state.t.double(), *state.gates)


def test_the_state_holds_the_clock():
    layer = SuGRU(FEATURES, HIDDEN, heads=3).eval()
    x = torch.randn(STEPS, BATCH, FEATURES)
    late = layer.init_state(BATCH)._replace(t=torch.tensor(10**9))
    assert not torch.equal(layer(x)[0], layer(x, late)[0])
    own = layer.init_state(2)._replace(t=torch.tensor([0, 10**9]))
    both, after = layer(x[:, :1].expand(-1, 2, -1), own)
    torch.testing.assert_close(both[:, :1], layer(x[:, :1])[0])
    torch.testing.assert_close(
        both[:, 1:], layer(x[:, :1], layer.init_state(1)._replace(t=torch.tensor(10**9)))[0]
    )
    assert after.t.tolist() == [STEPS, 10**9 + STEPS]


def test_a_single_stream_needs_no_batch_dimension():
    layer = SuGRU(FEATURES, HIDDEN)
    x = torch.randn(FEATURES)
    y, state = layer.step(x, layer.init_state())
    assert y.shape == (HIDDEN,)
    close(layer.step(x[None], layer.init_state())[0][0], y)
    assert state.t == 1


# ------------------------------------------------------------------ lengths, direction, options


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_lengths_equal_running_each_sequence_alone(cls, bidirectional):
    options = {"adaptation_always_decays": True} if cls is SuSNN else {}
    layer = cls(
        FEATURES, HIDDEN, num_layers=2, heads=3, bidirectional=bidirectional, **options
    ).double()
    x = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64)
    lengths = [17, 1, 8]
    for backend in ("reference", "events"):
        layer.backend = backend
        y, hidden = layer(x, lengths=lengths)
        rates = []
        for b, length in enumerate(lengths):
            alone, last = layer(x[:length, b])
            close(y[:length, b], alone)
            assert (y[length:, b] == 0).all()
            close([h[:, b] for h in tensors(hidden)], tensors(last))
            rates.append(layer.update_rate * length)
        layer(x, lengths=lengths)
        close(layer.update_rate, torch.stack(rates).sum(0) / sum(lengths))


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("gate", ["rhythm", "ssm", FULL])
@torch.no_grad()
def test_streams_of_different_lengths_keep_their_own_clock_and_memory(cls, gate):
    layer = cls(FEATURES, HIDDEN, num_layers=2, heads=3, gate=gate).double().eval()
    x = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64)
    _, state = layer(x, layer.init_state(BATCH), lengths=[17, 3, 8])
    assert state.t.tolist() == [17, 3, 8]
    more = torch.randn(5, BATCH, FEATURES, dtype=torch.float64)
    y, _ = layer(more, state)
    for b, length in enumerate([17, 3, 8]):
        _, alone = layer(x[:length, b : b + 1], layer.init_state(1))
        close([m[b : b + 1] for m in state.gates], list(alone.gates))
        close(layer(more[:, b : b + 1], alone)[0], y[:, b : b + 1])


@pytest.mark.parametrize("gate", ["rhythm", "ssm", FULL])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
@torch.no_grad()
def test_a_clock_does_not_overflow_whatever_the_dtype_of_lengths(dtype, gate):
    layer = SuGRU(FEATURES, HIDDEN, gate=gate).eval()
    x = torch.randn(100, BATCH, FEATURES)
    found = []
    for lengths in ([100, 3, 90], torch.tensor([100, 3, 90], dtype=dtype)):
        _, state = layer(x, layer.init_state(BATCH), lengths=lengths)
        for _ in range(2):
            y, state = layer(x, state)
        assert state.t.tolist() == [300, 203, 290]
        assert state.t.dtype == torch.int64
        found.append(y)
    assert torch.equal(*found)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_does_not_affect_the_result(bidirectional):
    layer = SuGRU(FEATURES, HIDDEN, heads=3, bidirectional=bidirectional, gate="ssm").eval()
    x = torch.randn(STEPS, BATCH, FEATURES)
    bad = x.clone()
    bad[8:, 1] = float("nan")
    for backend in ("reference", "events", "native"):
        layer.backend = backend
        found = []
        for given in (x, bad):
            layer.zero_grad()
            y, _ = layer(given, lengths=[17, 8, 17])
            y.square().sum().backward()
            found.append((y, *(p.grad.clone() for p in layer.parameters())))
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("gate", ["rhythm", "ssm", "full"])
def test_gradients_flow_across_chunks(gate):
    spec = surnn.nn.gates.GATES[gate](mode="soft")
    layer = SuGRU(FEATURES, HIDDEN, num_layers=2, heads=3, gate=spec).double()
    x = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64)
    found = []
    for pieces in ([STEPS], [5, 12]):
        state, loss = layer.init_state(BATCH), 0.0
        for piece in x.split(pieces):
            y, state = layer(piece, state)
            loss = loss + y.square().sum()
        found.append(torch.autograd.grad(loss, list(layer.parameters())))
    close(*found)


def test_the_rate_penalty_counts_only_steps_that_exist_and_has_their_gradient():
    gate = surnn.InputGate(target_rate=0.0, mode="soft")
    layer = SuGRU(FEATURES, HIDDEN, heads=3, gate=gate)
    x = torch.randn(STEPS, 2, FEATURES)
    layer(x, lengths=[STEPS, 4])
    found = torch.autograd.grad(layer.rate_penalty(), layer.gates[0].weight)[0]
    expected = torch.zeros_like(found)
    for b, length in enumerate([STEPS, 4]):
        layer(x[:length, b : b + 1])
        part = torch.autograd.grad(layer.rate_penalty(), layer.gates[0].weight)[0]
        expected += part * length / (STEPS + 4)
    torch.testing.assert_close(found, expected)


def test_calibration_leaves_the_mode_alone():
    layer = SuGRU(FEATURES, HIDDEN, gate="input")
    assert layer.calibrate(torch.randn(STEPS, BATCH, FEATURES)).training
    assert not layer.eval().calibrate(torch.randn(STEPS, FEATURES)).training


@pytest.mark.parametrize("gate", sorted(surnn.nn.gates.GATES))
def test_deferred_initialisation(gate):
    layer = SuGRU(8, 12, num_layers=2, heads=3, expand=2, groups=2, gate=gate, device="meta")
    layer.to_empty(device="cpu")
    for parameter in layer.parameters():
        parameter.data.fill_(float("nan"))
    layer.reset_parameters()
    assert all(p.isfinite().all() for p in layer.parameters())
    assert layer(torch.randn(STEPS, BATCH, 8))[0].isfinite().all()


def test_the_backward_direction_is_the_layer_on_the_reversed_sequence():
    layer = SuGRU(FEATURES, HIDDEN, heads=3, bidirectional=True)
    mirrored = SuGRU(FEATURES, HIDDEN, heads=3)
    own = dict(layer.state_dict())
    mirrored.load_state_dict(
        {
            k: own[k.replace("gates.0", "gates.1") if "gates" in k else k + "_reverse"]
            for k in mirrored.state_dict()
        }
    )
    x = torch.randn(STEPS, BATCH, FEATURES)
    torch.testing.assert_close(layer(x)[0][..., HIDDEN:], mirrored(x.flip(0))[0].flip(0))


@pytest.mark.parametrize("granularity", ["unit", "head", "layer", 2, 4, 8])
@pytest.mark.parametrize("heads", [1, 4])
def test_granularities_share_gates_as_they_say(granularity, heads):
    layer = SuGRU(
        FEATURES, 16, heads=heads, gate=surnn.Rhythm(granularity=granularity, rate=0.4)
    ).double()
    x = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64)
    y, _ = layer(x)
    moved = (torch.cat((torch.zeros_like(y[:1]), y[:-1])) != y).any(1)  # [T, units]
    size = {"unit": 1, "head": 16 // heads, "layer": 16}.get(granularity, granularity)
    groups = moved.unflatten(-1, (-1, size))
    assert (groups.all(-1) == groups.any(-1)).all()
    expected = layer.gates[0](torch.arange(1, STEPS + 1)[:, None])[0].g[:, 0] != 0
    assert torch.equal(groups.any(-1), expected)
    layer.backend = "reference"
    close(layer(x)[0], y)


@pytest.mark.parametrize("cls", LAYERS)
def test_state_expansion(cls):
    layer = cls(8, 12, num_layers=2, expand=3, groups=4, heads=6, gate="open")
    y, hidden = layer(torch.randn(STEPS, BATCH, 8) * 20)
    assert y.shape == (STEPS, BATCH, 12)
    assert tensors(hidden)[0].shape == (2, BATCH, 36)
    y.sum().backward()
    assert layer.up[0].weight.shape == (4, 9, 2)
    assert layer.down[1].weight.grad.abs().sum() > 0
    state = layer.init_state(BATCH)
    y_t, _ = layer.step(torch.randn(BATCH, 8), state)
    assert y_t.shape == (BATCH, 12)


def test_dropout_acts_between_layers_in_training_only():
    layer = SuGRU(FEATURES, HIDDEN, num_layers=2, dropout=0.9, gate=AlwaysOpen())
    x = torch.randn(STEPS, BATCH, FEATURES)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
    with pytest.warns(UserWarning, match=r"dropout=0.9 is .* between layers") as warned:
        one = SuGRU(FEATURES, HIDDEN, dropout=0.9, gate=AlwaysOpen())
    assert warned[0].filename == __file__
    assert torch.equal(one(x)[0], one(x)[0])


def test_one_gate_for_each_layer():
    layer = SuGRU(FEATURES, HIDDEN, num_layers=2, heads=3, gate=[AlwaysOpen(), "rhythm"])
    layer(torch.randn(STEPS, BATCH, FEATURES))
    assert layer.update_rate[0] == 1
    assert layer.update_rate[1] < 1
    raw = SuGRU(1, 4, num_layers=2, gate=surnn.Threshold(0.0))
    x = torch.tensor([1.0, -1.0, 1.0, -1.0]).view(4, 1, 1)
    raw(x)
    assert raw.update_rate.tolist() == [0.5, 0.5]  # both layers read the input itself


def test_spiking_layer_emits_spikes_only_while_open():
    for neuron in ("lif", "alif"):
        layer = SuSNN(FEATURES, 32, heads=4, neuron=neuron, gate=surnn.Rhythm(rate=0.5))
        y, hidden = layer(torch.randn(200, BATCH, FEATURES) * 20)
        assert len(hidden) == (2 if neuron == "lif" else 3)
        assert set(y.unique().tolist()) == {0.0, 1.0}
        g = layer.gates[0](torch.arange(1, 201)[:, None])[0].g
        closed = (g == 0).repeat_interleave(8, -1).expand_as(y)
        assert (y[closed] == 0).all()


def test_spiking_membrane_is_carried_and_adaptation_may_go_on():
    closed = surnn.EveryN(1000)
    for always_decays in (False, True):
        layer = SuSNN(FEATURES, 8, gate=closed, adaptation_always_decays=always_decays)
        first = tuple(torch.rand(3, 1, BATCH, 8).unbind(0))
        y, (s, u, b) = layer(torch.randn(20, BATCH, FEATURES), first)
        assert (y == 0).all()
        assert (s == 0).all()
        assert torch.equal(u, first[1])
        assert torch.equal(b, first[2]) is not always_decays
        assert (b <= first[2]).all()


@pytest.mark.parametrize("cls", LAYERS)
def test_copies_pickles_and_state_dicts(cls, tmp_path):
    layer = cls(FEATURES, HIDDEN, num_layers=2, heads=3, gate="ssm").eval()
    x = torch.randn(STEPS, BATCH, FEATURES)
    y, _ = layer(x)  # leaves rates that hold a graph
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(again(x)[0], y)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    fresh = cls(FEATURES, HIDDEN, num_layers=2, heads=3, gate="ssm").eval()
    fresh.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    assert torch.equal(fresh(x)[0], y)
    assert f"{cls.__name__}(\n  5, 12, num_layers=2, heads=3\n" in repr(layer)


@pytest.mark.parametrize("cls", [SuGRU, SuLSTM, SuRNN])
def test_bfloat16_layer_runs_and_learns(cls):
    layer = cls(FEATURES, HIDDEN, heads=3, dtype=torch.bfloat16)
    y, hidden = layer(torch.randn(STEPS, BATCH, FEATURES, dtype=torch.bfloat16))
    assert y.dtype == tensors(hidden)[0].dtype == torch.bfloat16
    y.float().square().sum().backward()
    assert layer.weight_hh_l0.grad.dtype == torch.bfloat16
    assert layer.gates[0].phase.grad.dtype == torch.float32


def test_autocast_projects_in_half_and_keeps_the_state_whole():
    layer = SuGRU(FEATURES, HIDDEN, num_layers=2, heads=3)
    x = torch.randn(STEPS, BATCH, FEATURES)
    exact, _ = layer(x)
    for backend in ("reference", "events", "native"):
        layer.backend = backend
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y, h_n = layer(x)
        assert h_n.dtype == torch.float32
        assert not torch.equal(y, exact)
        torch.testing.assert_close(y.float(), exact, rtol=0.05, atol=0.05)
        y.float().sum().backward()
        assert layer.weight_ih_l0.grad.dtype == torch.float32


@pytest.mark.parametrize("gate", ["rhythm", "input", "ssm", FULL])
@pytest.mark.parametrize("backend", ["reference", "events", "native"])
def test_autocast_touches_neither_gates_nor_recurrence(gate, backend):
    layer = SuGRU(FEATURES, HIDDEN, heads=3, gate=gate, backend=backend).eval()
    x = torch.randn(200, BATCH, FEATURES)
    layer(x)
    rate = layer.update_rate
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x)
        assert torch.equal(layer.update_rate, rate)
        nn.init.zeros_(layer.weight_ih_l0)  # no value is left that could be rounded
        hx = torch.randn(1, BATCH, HIDDEN)
        _, rounded = layer(x, hx)
    assert torch.equal(layer(x, hx)[1], rounded)


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_initial_weights(cls, dtype):
    layer = cls(64, 48, heads=3, dtype=dtype)
    blocks = layer.weight_hh_l0.detach().double().view(-1, 16, 16)
    eye = torch.eye(16, dtype=torch.float64).expand_as(blocks)
    torch.testing.assert_close(blocks @ blocks.mT, eye, atol=2e-2, rtol=0)
    drive = torch.randn(2000, 64).to(dtype) @ layer.weight_ih_l0.detach().T
    assert abs(drive.float().var().item() - 1) < 0.1
    assert (layer.bias_ih_l0 == 0).all()


@pytest.mark.parametrize("size", [1, 2, 33, 512, 513, 700])
def test_recurrent_blocks_are_orthogonal_and_random(size):
    torch.manual_seed(0)
    first, second = orthogonal(2, size)
    for block in (first, second):
        assert torch.allclose(block @ block.T, torch.eye(size), atol=1e-4)
    if size > 32:
        assert (first - second).abs().mean() > 0.5 / size**0.5
        assert 0.9 < first.std() * size**0.5 < 1.1
        assert first.abs().max() < 7 / size**0.5  # no entry stands out, as in a permutation
        diagonals = torch.stack([first.roll(k, 0).diagonal() for k in range(8)])
        assert diagonals.std(1).min() > 0.5 / size**0.5  # nor is it constant along diagonals
