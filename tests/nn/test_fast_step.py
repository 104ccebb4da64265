"""Single time steps in C: the same values as whole sequences, and never from a stale table."""

import pytest
import torch

import surnn
from surnn.nn.layers import fast_step

LAYERS = (surnn.SuRNN, surnn.SuGRU, surnn.SuLSTM)
GATES = {
    "unit clock": surnn.Rhythm(rate=0.3, horizon=50),
    "group clock": surnn.Rhythm(rate=0.3, horizon=50, granularity=3),
    "soft clock": surnn.Rhythm(rate=0.3, horizon=50, mode="soft"),
    "fixed": surnn.FixedRandom(rate=0.3, seed=1),
    "input": surnn.InputGate(rate=0.3),
    "ssm": surnn.SSMGate(rate=0.3),
    "full": surnn.FullGate(rate=0.3, conv=2),
    "full, hidden": surnn.FullGate(rate=0.3, conv=2, hidden=6),
    "open": surnn.AlwaysOpen(),
}


@pytest.fixture
def taken(monkeypatch):
    """Counts the frames that C computes."""
    frames, run = [], fast_step.run_frame
    monkeypatch.setattr(fast_step, "run_frame", lambda frame: (frames.append(1), run(frame))[1])
    return frames


def stream(layer, x, state):
    outputs = []
    for x_t in x:
        y, state = layer.step(x_t, state)
        outputs.append(y)
    return torch.stack(outputs), state


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("kind", LAYERS)
@torch.no_grad()
def test_steps_equal_a_sequence(kind, gate, heads, taken):
    torch.manual_seed(0)
    layer = kind(5, 33, 2, gate=GATES[gate], heads=heads, bias=gate != "fixed").eval()
    x, start = torch.randn(70, 3, 5), torch.randn(2, len(layer.cell.components), 3, 33)
    state = layer.init_state(3)._replace(cell=start)
    y, last = layer(x, state)
    steps, new = stream(layer, x, state)
    assert len(taken) == 140
    assert torch.allclose(y, steps, atol=2e-6)
    assert torch.allclose(last.cell, new.cell, atol=2e-6)
    assert torch.equal(last.t, new.t)
    for ours, theirs in zip(new.gates, last.gates, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


@torch.no_grad()
def test_closed_units_are_carried_exactly_and_the_state_is_not_changed(taken):
    layer = surnn.SuGRU(4, 24, gate=surnn.Rhythm(rate=0.2, horizon=64))
    state = layer.init_state(2)._replace(cell=torch.randn(1, 1, 2, 24))
    for _ in range(100):
        before = state.cell.clone()
        t = (state.t + 1).reshape(1, 1)
        y, new = layer.step(torch.randn(2, 4), state)
        assert torch.equal(state.cell, before)
        closed = layer.gates[0](t)[0].g[0, 0] == 0
        assert torch.equal(new.cell[..., closed], before[..., closed])
        assert torch.equal(y, new.cell[0, 0])
        y.zero_()  # an output may be changed in place
        assert new.cell.any()
        state = new
    assert len(taken) == 100


@pytest.mark.parametrize("t0", [62, 10**9, 2**50 - 3])
@torch.no_grad()
def test_tables_are_exact_at_any_time(t0, taken):
    layer = surnn.SuGRU(2, 40, gate=surnn.Rhythm(rate=0.3, horizon=100))
    state = layer.init_state()._replace(t=torch.tensor(t0))
    x = torch.randn(3, 1, 2)
    assert torch.allclose(stream(layer, x, state)[0], layer(x, state)[0], atol=2e-6)
    assert len(taken) == 3


@torch.no_grad()
def test_a_changed_gate_has_new_values(taken):
    layer = surnn.SuGRU(2, 40, gate=surnn.Rhythm(rate=0.3, horizon=100))
    gate = layer.gates[0]
    x, state = torch.randn(5, 1, 2), layer.init_state()

    def check():
        assert torch.allclose(stream(layer, x, state)[0], layer(x, state)[0], atol=2e-6)

    check()
    before = stream(layer, x, state)[0]
    gate.phase.data.add_(1.0)  # its version counter does not change
    check()
    assert not torch.equal(before, stream(layer, x, state)[0])
    gate.mode = "soft"
    check()
    gate.mode, gate.surrogate = "hard", surnn.Surrogate("triangle", slope=2.0)
    check()
    gate.bias = torch.nn.Parameter(torch.full((40,), 100.0))
    check()
    assert stream(layer, x, state)[1].cell.count_nonzero() == 40
    layer.weight_hh_l0 = torch.nn.Parameter(torch.randn(120, 40))
    check()
    assert len(taken) == 5 * 9


@torch.no_grad()
def test_streams_at_many_times_share_the_tables(taken):
    layer = surnn.SuGRU(2, 8, gate=surnn.Rhythm(rate=0.3, horizon=100))
    x = torch.randn(1, 1, 2)
    for t in torch.arange(0, 64 * 40, 64).repeat(2):
        state = layer.init_state()._replace(t=t)
        assert torch.allclose(layer.step(x[0], state)[0], layer(x, state)[0][0], atol=2e-6)
    assert len(fast_step._TABLES[layer.gates[0]]._blocks) == fast_step.TABLES


class Midnight(surnn.Gate):
    def preactivation(self, t, x, memory):
        return torch.ones(t.shape[0], 1, 1), memory


GENERAL = {
    "gradients": (surnn.SuGRU(2, 8), torch.enable_grad),
    "float64": (surnn.SuGRU(2, 8, dtype=torch.float64), torch.no_grad),
    "backend": (surnn.SuGRU(2, 8, backend="events"), torch.no_grad),
    "spikes": (surnn.SuSNN(2, 8), torch.no_grad),
    "expand": (surnn.SuGRU(2, 8, expand=2), torch.no_grad),
    "autocast": (surnn.SuGRU(2, 8), lambda: torch.autocast("cpu")),
    "nonfinite": (surnn.SuGRU(2, 8, nonfinite="raise"), torch.no_grad),
}


@pytest.mark.parametrize("name", GENERAL)
def test_other_layers_take_the_general_path(name, taken):
    layer, context = GENERAL[name]
    with context():
        y, _ = layer.step(torch.randn(1, 2, dtype=layer.weight_ih_l0.dtype), layer.init_state())
    assert not taken
    assert y.requires_grad == (name in {"gradients", "autocast"})


@torch.no_grad()
def test_hooks_and_tracers_take_the_general_path(taken, monkeypatch):
    layer = surnn.SuGRU(2, 8)
    x, state = torch.randn(2, 2), layer.init_state(2)
    seen = []
    hook = layer.gates[0].register_forward_hook(lambda *_: seen.append(1))
    layer.step(x, state)
    hook.remove()
    assert seen
    with monkeypatch.context() as patch:
        patch.setattr(torch.jit, "is_tracing", lambda: True)
        layer.step(x, state)
    assert not taken


@pytest.mark.parametrize("kind", LAYERS)
@torch.no_grad()
def test_streams_may_have_clocks_of_their_own(kind, taken):
    layer = kind(2, 24, 2, gate=surnn.Rhythm(rate=0.3, horizon=100))
    x, state = torch.randn(9, 4, 2), layer.init_state(4)
    state = state._replace(t=torch.tensor([3, 500, 3, 10**9]))
    y, last = layer(x, state)
    steps, new = stream(layer, x, state)
    assert len(taken) == 18
    assert torch.allclose(y, steps, atol=2e-6)
    assert torch.equal(last.t, new.t)


@torch.no_grad()
def test_gates_of_other_packages_are_asked_at_every_step(taken):
    layer = surnn.SuGRU(2, 8, gate=Midnight())
    layer.step(torch.randn(1, 2), layer.init_state())
    assert taken
    assert layer.gates[0] not in fast_step._TABLES


@torch.no_grad()
def test_sampled_gates_are_drawn_anew_in_training():
    torch.manual_seed(0)
    layer = surnn.SuGRU(2, 40, gate=surnn.Rhythm(rate=0.5, horizon=9, mode="sampled"))
    x, state = torch.randn(1, 2), layer.init_state()
    draws = {tuple((layer.step(x, state)[0] != 0)[0].tolist()) for _ in range(5)}
    assert len(draws) > 1
    layer.eval()
    assert torch.equal(layer.step(x, state)[0], layer.step(x, state)[0])


@torch.no_grad()
def test_wrong_states_are_refused_as_before():
    layer = surnn.SuGRU(2, 8)
    x = torch.randn(1, 2)
    with pytest.raises(ValueError, match="one clock for each"):
        layer.step(x, layer.init_state()._replace(t=torch.tensor(0.5)))
    with pytest.raises(ValueError, match=r"begin with layer\.init_state"):
        layer.step(x, layer.init_state(2))
    with pytest.raises(ValueError, match=r"state\.gates must be"):
        layer.step(x, layer.init_state()._replace(gates=(torch.zeros(1, 3),)))
    with pytest.raises(ValueError, match=r"2\^50"):
        layer.step(x, layer.init_state()._replace(t=torch.tensor(2**50 + 1)))
