"""Baselines against their definitions, written out step by step in float64."""

import math

import pytest
import torch
from torch import Tensor, nn

from surnn.models.baselines import (
    Attention,
    DeltaGRU,
    DiagonalSSM,
    GatedDelta,
    LinearMap,
    MinGRU,
    SkipGRU,
    TorchRecurrent,
)
from surnn.models.baselines.attention import rotate
from surnn.nn.layers import SuGRU, SuLSTM, SuRNN

WIDTH = 8
MIXERS = {
    "gru": lambda: TorchRecurrent("gru", WIDTH, WIDTH),
    "gru, chrono": lambda: TorchRecurrent("gru", WIDTH, WIDTH, chrono=50),
    "lstm": lambda: TorchRecurrent("lstm", WIDTH, WIDTH),
    "rnn": lambda: TorchRecurrent("rnn", WIDTH, WIDTH),
    "mingru": lambda: MinGRU(WIDTH, WIDTH),
    "delta": lambda: GatedDelta(WIDTH, 2),
    "delta, products": lambda: GatedDelta(WIDTH, 2, products=3),
    "deltagru": lambda: DeltaGRU(WIDTH, WIDTH, 0.01),
    "skipgru": lambda: SkipGRU(WIDTH, WIDTH),
    "linear": lambda: LinearMap(WIDTH, WIDTH),
    "s4d": lambda: DiagonalSSM(WIDTH, 4),
    "attention": lambda: Attention(WIDTH, 2),
    "attention, window": lambda: Attention(WIDTH, 2, window=5),
}


@pytest.fixture(params=MIXERS)
def mixer(request) -> nn.Module:
    return MIXERS[request.param]().double()


# ---------------------------------------------------------------- what all of them promise


def test_padding_changes_nothing_before_it(mixer):
    """Neither what stands in it nor how much of it there is; nor does it get a gradient."""
    x, lengths = torch.randn(3, 40, WIDTH, dtype=torch.float64), torch.tensor([40, 7, 23])
    inside = torch.arange(40) < lengths[:, None]
    other = torch.where(inside.unsqueeze(-1), x, 100 * torch.randn_like(x)).requires_grad_()
    y, padded = mixer(x, lengths), mixer(other, lengths)
    torch.testing.assert_close(padded[inside], y[inside], rtol=1e-12, atol=1e-12)
    for row, length in enumerate(lengths.tolist()):
        alone = mixer(x[row : row + 1, :length], None)
        torch.testing.assert_close(y[row : row + 1, :length], alone, rtol=1e-12, atol=1e-12)
    (padded * inside.unsqueeze(-1)).square().sum().backward()
    assert other.grad is not None
    assert other.grad[~inside].abs().max() < 1e-12
    assert other.grad[inside].abs().min() > 1e-9


@pytest.mark.parametrize("name", MIXERS)
def test_a_stream_is_the_sequence(name):
    layer = MIXERS[name]().double()
    x = torch.randn(2, 60, WIDTH, dtype=torch.float64)
    state, steps = layer.init_state(2), []
    for t in range(60):
        y, state = layer.step(x[:, t], state)
        steps.append(y)
    torch.testing.assert_close(torch.stack(steps, 1), layer(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in MIXERS if name != "s4d"])
def test_parts_of_unequal_length_are_the_sequence(name):
    """Streams of a batch that began at different times, and go on in parts, some padded."""
    layer = MIXERS[name]().double()
    x = torch.randn(2, 30, WIDTH, dtype=torch.float64)
    expected, state = layer(x), layer.init_state(2)
    ends = torch.zeros(2, dtype=torch.int64)
    for lengths in ((7, 2), (4, 4), (1, 9), (10, 3)):
        steps = torch.tensor(lengths)
        index = (ends[:, None] + torch.arange(max(lengths))).clamp(max=29)
        part = x.gather(1, index[..., None].expand(-1, -1, WIDTH))
        y, state = layer.run(part, state, None if lengths[0] == lengths[1] else steps)
        for row in range(2):
            found, wanted = y[row, : steps[row]], expected[row, ends[row] : ends[row] + steps[row]]
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
        ends += steps


@pytest.mark.parametrize("name", MIXERS)
def test_half_precision_only_rounds(name):
    """Under autocast, after a thousand steps, as far from float32 as one product's rounding."""
    layer, x = MIXERS[name](), torch.randn(2, 1000, WIDTH)
    expected = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x.bfloat16())
    assert found.dtype == torch.bfloat16
    error = (found.float() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert error < 0.02


# ---------------------------------------------------------------- GRU, LSTM


@pytest.mark.parametrize("kind", ["gru", "lstm", "rnn"])
@pytest.mark.parametrize("lengths", [None, torch.tensor([7, 3])], ids=["whole", "lengths"])
def test_states_in_half_precision_if_asked_for(kind, lengths):
    """Only under autocast; what is carried on and all gradients are float32 as ever."""
    layer, x = TorchRecurrent(kind, 3, 5, half_state=True), torch.randn(2, 7, 3)
    exact, after = layer.run(x, layer.init_state(2), lengths)
    layer.half_state = False
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer.run(x, layer.init_state(2), lengths)[0], exact)
        layer.half_state = True
        found, state = layer.run(x, layer.init_state(2), lengths)
    assert torch.equal(found, found.bfloat16().float())
    assert not torch.equal(found, exact)
    torch.testing.assert_close(found, exact, rtol=0.05, atol=0.02)
    for half, whole in zip(state, after, strict=True):
        assert half.dtype == torch.float32
        torch.testing.assert_close(half, whole, rtol=0.05, atol=0.02)
    found.sum().backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.any() for p in layer.parameters())


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_chrono_biases_are_the_published_ones(kind):
    """Tallec and Ollivier: b_f = log(U[1, T - 1]), b_i = -b_f, and nothing else."""
    width, longest = 1024, 1000
    layer = TorchRecurrent(kind, 3, width, chrono=longest).layer
    gates = (layer.bias_ih_l0 + layer.bias_hh_l0).unflatten(0, (-1, width))
    names = ("reset", "keep", "new") if kind == "gru" else ("write", "keep", "new", "read")
    bias = dict(zip(names, gates, strict=True))
    drawn = bias.pop("keep").exp().sort().values
    uniform = torch.linspace(1, longest - 1, width)
    assert drawn.min() >= 1
    assert drawn.max() <= longest - 1
    assert (drawn - uniform).abs().max() < 0.06 * longest  # Kolmogorov and Smirnov's
    if kind == "lstm":
        assert torch.equal(bias.pop("write"), -gates[1])
    assert not any(b.any() for b in bias.values())


@pytest.mark.parametrize(("kind", "keeps"), [("gru", 1), ("lstm", 1), ("rnn", None)])
def test_they_start_as_our_layers_do(kind, keeps):
    """A comparison of updates, not of initial weights."""
    width, features = 64, 300
    layer = TorchRecurrent(kind, features, width).layer
    ours = {"gru": SuGRU, "lstm": SuLSTM, "rnn": SuRNN}[kind](features, width)
    for weights in (layer, ours):
        assert weights.weight_ih_l0.var().item() == pytest.approx(1 / features, rel=0.05)
        assert weights.weight_ih_l0.abs().max() <= (3 / features) ** 0.5
        blocks = weights.weight_hh_l0.unflatten(0, (-1, width))
        identity = torch.eye(width).expand_as(blocks)
        torch.testing.assert_close(blocks @ blocks.mT, identity, rtol=0, atol=1e-5)
        assert not torch.equal(blocks[0], blocks[-1]) or kind == "rnn"
    bias = (layer.bias_ih_l0 + layer.bias_hh_l0).unflatten(0, (-1, width))
    for gate, value in enumerate(bias):
        assert (value == (1 if gate == keeps else 0)).all()


def test_the_bias_of_1_keeps():
    """z and f are those that carry the state on: with all else silent, sigma(1) of it stays."""
    for kind, state in (("gru", (torch.ones(1, 1, 8),)), ("lstm", (torch.ones(1, 1, 8),) * 2)):
        layer = TorchRecurrent(kind, 3, 8)
        with torch.no_grad():
            layer.layer.weight_hh_l0.zero_()
            layer.layer.weight_ih_l0.zero_()
        _, new = layer.step(torch.zeros(1, 3), state)
        torch.testing.assert_close(new[-1], torch.ones(1, 1, 8) / (1 + math.exp(-1)))


def test_an_rnn_has_no_chrono_biases():
    with pytest.raises(ValueError, match="RNN has no gates"):
        TorchRecurrent("rnn", 3, 64, chrono=1000)


# ---------------------------------------------------------------- minGRU


def mingru_by_steps(layer: MinGRU, x: Tensor) -> Tensor:
    """The paper's recurrence, in float64."""
    weight, bias = layer.gates.weight.double(), layer.gates.bias.double()
    update, new = (x.double() @ weight.T + bias).chunk(2, -1)
    z = 1 / (1 + (-update).exp())
    positive = torch.where(new >= 0, new + 0.5, 1 / (1 + (-new).exp()))
    h, found = torch.zeros_like(z[:, 0]), []
    for t in range(x.shape[1]):
        h = (1 - z[:, t]) * h + z[:, t] * positive[:, t]
        found.append(h)
    return torch.stack(found, 1)


@pytest.mark.parametrize("scale", [0.3, 10.0])
def test_mingru_is_exact_over_4096_steps(scale):
    """Also with gates that are far open for long, after which logarithms would be spent."""
    layer, x = MinGRU(3, 5), torch.randn(2, 4096, 3)
    with torch.no_grad():
        layer.gates.weight *= scale
        layer.gates.bias[:5] = torch.linspace(-8, 8, 5)
    weights = torch.randn(2, 4096, 5, dtype=torch.float64)
    expected, found = mingru_by_steps(layer, x), layer(x)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    parameters = list(layer.parameters())
    exact = torch.autograd.grad((expected * weights).sum(), parameters)
    got = torch.autograd.grad((found * weights).sum(), parameters)
    for gradient, wanted in zip(got, exact, strict=True):
        assert (gradient - wanted).abs().max() < 1e-4 * wanted.abs().max()


# ---------------------------------------------------------------- S4D


def test_s4d_starts_as_published():
    layer = DiagonalSSM(512, 16)
    exponent, _ = layer._discrete()
    step = layer.log_step.exp()
    assert 0.001 <= step.min() < 0.0012
    assert 0.085 < step.max() <= 0.1
    modes = torch.complex(torch.full((16,), -0.5), math.pi * torch.arange(16.0))
    torch.testing.assert_close(exponent, step[:, None] * modes)
    assert layer.read.square().sum(-1).mean().item() == pytest.approx(1, rel=0.05)


def test_s4d_solves_its_differential_equation():
    """Inputs that hold still between steps are what a zero-order hold is exact for: under u = 1,
    s' = A s + 1 is at (exp(A t) - 1) / A."""
    layer = DiagonalSSM(6, 5).double()
    a = torch.complex(-layer.log_decay.exp(), layer.frequency)
    time = layer.log_step.exp()[:, None, None] * torch.arange(1, 101)
    state = ((a[..., None] * time).exp() - 1) / a[..., None]
    read = torch.view_as_complex(layer.read)
    expected = 2 * (read[..., None] * state).sum(1).real + layer.skip[:, None]
    y = layer(torch.ones(1, 100, 6, dtype=torch.float64))[0].T
    torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("steps", [1, 2, 1000, 1024])
def test_s4d_kernel_is_the_sum_of_its_modes(steps):
    layer = DiagonalSSM(6, 32)
    found = layer.kernel(steps)
    exponent, gain = layer.double()._discrete()
    powers = (exponent.unsqueeze(-1) * torch.arange(steps)).exp()
    expected = 2 * torch.einsum("wn,wnt->wt", gain, powers).real
    assert found.shape == (6, steps)
    error = (found - expected).abs().amax(1) / expected.abs().amax(1)
    assert error.max() < 1e-4


def test_s4d_never_holds_modes_times_steps():
    width, modes, steps = 4, 64, 4096
    held = []

    def weigh(tensor: Tensor) -> Tensor:
        held.append(tensor.numel() * tensor.element_size())
        return tensor

    layer, x = DiagonalSSM(width, modes), torch.randn(1, steps, width)
    with torch.autograd.graph.saved_tensors_hooks(weigh, lambda tensor: tensor):
        layer(x)
    assert max(held) <= 8 * 2 * width * steps  # a spectrum
    assert sum(held) < 4 * width * modes * steps


# ---------------------------------------------------------------- attention


def test_attention_is_softmax_over_the_past():
    layer = Attention(WIDTH, 2).double()
    x = torch.randn(2, 12, WIDTH, dtype=torch.float64)
    q, k, v = layer.project(x).chunk(3, -1)
    heads, place = [], torch.arange(12)[None]
    for at in (slice(0, 4), slice(4, 8)):
        turned = [rotate(u[..., None, at], place)[:, :, 0] for u in (q, k)]
        scores = turned[0] @ turned[1].mT / 2
        later = torch.ones(12, 12, dtype=torch.bool).triu(1)
        heads.append(scores.masked_fill(later, -math.inf).softmax(-1) @ v[..., at])
    torch.testing.assert_close(layer(x), layer.out(torch.cat(heads, -1)))


def test_positions_are_relative():
    """A rotated query and key know how far apart they are, not where."""
    q, k = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64)
    q, k = (rotate(u.expand(1, 500, 1, 16), torch.arange(500)[None])[0, :, 0] for u in (q, k))
    products = q @ k.T
    for apart in (0, 1, 37):
        along = products.diagonal(apart)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert products[0].std() > 0.1


def test_a_window_is_all_that_is_seen_and_kept():
    layer = Attention(WIDTH, 2, window=5).double()
    x = torch.randn(1, 40, WIDTH, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x)[0, 20].sum(), x)
    assert gradient[0].abs().sum(-1).nonzero()[:, 0].tolist() == [16, 17, 18, 19, 20]
    state = layer.init_state(1)
    for t in range(40):
        _, state = layer.step(x[:, t], state)
    assert state.keys.shape == (1, 2, 4, WIDTH // 2)
    whole = Attention(WIDTH, 2, window=40).double()
    whole.load_state_dict(layer.state_dict())
    everything = Attention(WIDTH, 2).double()
    everything.load_state_dict(layer.state_dict())
    torch.testing.assert_close(whole(x), everything(x))


@pytest.mark.parametrize("heads", [3, 8])
def test_heads_must_divide_the_width_evenly(heads):
    with pytest.raises(ValueError, match=f"{heads} attention heads do not divide 8"):
        Attention(8, heads)
