"""Layers on the GPU's path: weights read in place, gates in one kernel, few calls of torch."""

import pytest
import torch

import surnn
from helpers.kernels import (
    DEVICE,
    interpreted,
    pytestmark,  # noqa: F401 (of this module)
)
from surnn.nn.runtime import has_triton

if has_triton():
    from surnn.scan.triton import passes

STEPS, BATCH, FEATURES, UNITS = 6, 2, 4, 6


def rhythm(**options):
    return surnn.Rhythm(rate=0.4, horizon=STEPS, frequencies=4, **options)


LAYERS = {
    "gru": (surnn.SuGRU, {"heads": 2}),
    "lstm": (surnn.SuLSTM, {"heads": 2, "num_layers": 2}),
    "relu": (surnn.SuRNN, {"heads": 2, "nonlinearity": "relu"}),
    "one head": (surnn.SuGRU, {}),
    "without bias": (surnn.SuGRU, {"heads": 2, "bias": False}),
    "expand": (surnn.SuGRU, {"heads": 2, "expand": 2}),
    "soft": (surnn.SuGRU, {"heads": 2, "gate": rhythm(mode="soft")}),
    "compact": (
        surnn.SuGRU,
        {"heads": 2, "gate": rhythm(surrogate=surnn.Surrogate("triangle", slope=2.0))},
    ),
    "fewer gates than heads": (surnn.SuGRU, {"heads": 2, "gate": rhythm(granularity="layer")}),
    "recompute": (surnn.SuGRU, {"heads": 2, "recompute": True}),
    "all steps": (surnn.SuGRU, {"heads": 2, "max_rate": 1.0}),
    "input": (surnn.SuGRU, {"heads": 2, "gate": surnn.InputGate(mode="hard")}),
}


def build(name: str):
    torch.manual_seed(0)
    kind, options = LAYERS[name]
    layer = kind(FEATURES, UNITS, **{"gate": rhythm(), "backend": "triton", **options})
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # biases are not zero
    return layer.to(DEVICE)


def run(layer, x, hx=None):
    """Outputs, last states, and gradients by x, the state before and all parameters."""
    x = x.detach().requires_grad_()
    layer.zero_grad()
    before = () if hx is None else _tuple(hx)
    for h in before:
        h.grad = None
    y, last = layer(x, hx)
    states = [h.plain() if isinstance(h, surnn.ClockedTensor) else h for h in _tuple(last)]
    loss = sum(((i + 1) * v).square().sum() for i, v in enumerate((y, *states)))
    loss.backward()
    grads = {name: p.grad.clone() for name, p in layer.named_parameters()}
    grads |= {f"dh{i}": h.grad for i, h in enumerate(before)}
    return {"y": y, **dict(enumerate(states)), "dx": x.grad, **grads}


def _tuple(v):
    return v if isinstance(v, tuple) else (v,)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=2e-4, atol=2e-5, msg=str(name))


def sequence():
    torch.manual_seed(1)
    return torch.randn(STEPS, BATCH, FEATURES, device=DEVICE)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_equals_reference(name):
    layer, x = build(name), sequence()
    found = run(layer, x)
    layer.backend = "reference"
    assert_same(found, run(layer, x))


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_a_state_is_continued(name):
    layer, x = build(name), sequence()
    with torch.no_grad():
        hx = layer(x)[1]
    for h in _tuple(hx):
        h.requires_grad_()
    found = run(layer, x, hx)
    layer.backend = "reference"
    assert_same(found, run(layer, x, hx))


@pytest.mark.parametrize("name", ["gru", "input"])
def test_memory_for_counted_events_gives_the_same(name, monkeypatch):
    layer, x = build(name), sequence()
    expected = run(layer, x)
    monkeypatch.setattr(passes, "UNCOUNTED_BYTES", 0)
    found = run(layer, x)
    assert all(torch.equal(found[k], expected[k]) for k in expected)


@pytest.mark.parametrize("mode", ["hard", "sampled"])
@pytest.mark.parametrize("gate", [rhythm(), surnn.InputGate()])
def test_a_gate_in_one_kernel_is_the_gate(gate, mode, monkeypatch):
    gate.mode = mode
    gate = gate.bind(5, 1, FEATURES).to(DEVICE)
    t, x = torch.arange(1, STEPS + 1, device=DEVICE)[:, None], sequence()
    inputs = [x.requires_grad_(), *gate.parameters()]

    def values():
        torch.manual_seed(2)
        g = gate(t, x if gate.sees_input else None)[0].g
        torch.manual_seed(3)
        by = torch.randn_like(g)
        return g, torch.autograd.grad(g, inputs, by, allow_unused=True)

    found, by_found = values()
    monkeypatch.setattr(type(gate), "_fused_gate", lambda self, t, x: None)
    expected, by_expected = values()
    assert torch.equal(found, expected)
    assert found.dtype == expected.dtype
    for a, b in zip(by_found, by_expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_fused_gate_has_second_derivatives():
    gate = rhythm().bind(2).to(DEVICE)
    t = torch.arange(1, STEPS + 1, device=DEVICE)[:, None]
    g = gate(t)[0].g
    (grad,) = torch.autograd.grad(g.sum(), [gate.phase], create_graph=True)
    assert torch.autograd.grad(grad.square().sum(), [gate.phase])[0].abs().sum() > 0


def test_a_frozen_gate_has_no_gradient():
    gate = rhythm(frozen=True).bind(2).to(DEVICE)
    g = gate(torch.arange(1, STEPS + 1, device=DEVICE)[:, None])[0].g
    assert not g.requires_grad


def test_rates_are_those_of_the_pass_whenever_they_are_read():
    layer, x = build("gru"), sequence()
    layer(x)
    with torch.no_grad():
        rate = layer.update_rate
    t = torch.arange(1, STEPS + 1, device=DEVICE)[:, None]
    assert rate.item() == layer.gates[0](t)[0].g.mean().item()
    layer.gates[0].target_rate = 0.9
    layer.rate_penalty().backward()
    assert layer.gates[0].bias.grad.abs().sum() > 0
    with torch.inference_mode():
        layer(x)
        assert layer.update_rate == rate


class Calls(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts operators; kernels are not run."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@interpreted  # kernels in the interpreter call operators of their own
def test_a_step_makes_few_calls(monkeypatch):
    monkeypatch.setattr("surnn.nn.kernel_launch.interpret", lambda *_: None)
    layer, x = build("gru"), sequence().requires_grad_()
    layer(x)  # constants are kept from here on
    with Calls() as forward:
        y, _ = layer(x)
    with Calls() as backward:
        y.backward(torch.ones_like(y))
    with torch.no_grad(), Calls() as alone:
        layer(x)
    assert forward.count + backward.count <= 45
    assert alone.count <= 15
