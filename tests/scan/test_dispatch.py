"""Which backend runs a layer, and that ``chosen_backend`` names it; where sequences end."""

import contextlib
import dataclasses

import pytest
import torch

import surnn
from helpers.scans import make_inputs
from surnn.nn.cells import get_cell
from surnn.scan import ScanTraits, choose, dispatch, native, onepass, reference, scan
from surnn.scan.contract import step_mask

UNITS, HEADS, FEATURES = 24, 4, 5
GATES = {
    "unit": surnn.Rhythm(granularity="unit"),
    "head": surnn.Rhythm(granularity="head"),
    "layer": surnn.Rhythm(granularity="layer"),
    "2 units": surnn.Rhythm(granularity=2),
    "8 units, across heads": surnn.Rhythm(granularity=8),
    "frozen units": surnn.Rhythm(granularity="unit", frozen=True),
    "frozen heads": surnn.Rhythm(granularity="head", frozen=True),
    "frozen 2 units": surnn.Rhythm(granularity=2, frozen=True),
    "frozen 8 units, across heads": surnn.Rhythm(granularity=8, frozen=True),
    "frozen 12 units": surnn.Rhythm(granularity=12, frozen=True),
    "frozen soft units": surnn.Rhythm(granularity="unit", frozen=True, mode="soft"),
    "fixed units": surnn.EveryN(3, granularity="unit"),
    "input": surnn.InputGate(granularity="unit"),
    "frozen input": surnn.InputGate(granularity="unit", frozen=True),
    "threshold": surnn.Threshold(granularity="unit"),
}
# The gates for which a GPU runs the one-pass form where it has no kernels.
ONEPASS = {"frozen units", "frozen 2 units", "frozen 8 units, across heads", "fixed units"}
ONEPASS |= {"frozen input", "threshold"}
MODES = {
    "training": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


@pytest.fixture
def fake_gpu(monkeypatch):
    """Choices as on a GPU with kernels; returns the names of the backends that ran."""
    ran = []

    def choose_on_gpu(backend, traits):
        return choose(backend, dataclasses.replace(traits, device=torch.device("cuda")))

    def module(backend):
        ran.append(backend)
        return reference

    monkeypatch.setattr(dispatch, "choose", choose_on_gpu)
    monkeypatch.setattr("surnn.nn.layers.base.choose", choose_on_gpu)
    monkeypatch.setattr(dispatch, "_module", module)
    monkeypatch.setattr(dispatch, "_no_device", lambda traits: None)
    monkeypatch.setattr(dispatch, "has_triton", lambda: True)
    monkeypatch.setattr(dispatch, "_triton", lambda: FakeKernels)
    return ran


class FakeKernels:
    """The ``triton`` backend's rule for dtypes, without triton."""

    @staticmethod
    def unsupported(traits: ScanTraits) -> str | None:
        double = torch.float64 in (traits.dtype, traits.state_dtype)
        return "no kernels" if double else None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chosen_backend_is_what_runs(fake_gpu, gate, mode, dtype):
    layer = surnn.SuGRU(FEATURES, UNITS, heads=HEADS, gate=GATES[gate], dtype=dtype)
    x = torch.randn(6, 2, FEATURES, dtype=dtype, requires_grad=mode == "training")
    with MODES[mode]():
        layer(x)
        chosen = layer.chosen_backend
    assert fake_gpu == [chosen]
    exact = "onepass" if gate in ONEPASS else "events"
    assert chosen == ("triton" if dtype == torch.float32 else exact)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("cls", [surnn.SuGRU, surnn.SuLSTM, surnn.SuSNN])
@pytest.mark.parametrize("mode", MODES)
def test_a_layer_knows_the_traits_of_its_scans(monkeypatch, gate, cls, mode):
    spec = [GATES[gate], surnn.Rhythm()]
    layer = cls(FEATURES, UNITS, num_layers=2, heads=HEADS, gate=spec, bidirectional=True)
    seen = []
    monkeypatch.setattr(layer, "_scan", lambda i, b: seen.append(i.traits) or scan(i, b))
    with MODES[mode]():
        layer(torch.randn(6, 2, FEATURES))
        expected = [layer._traits(gate) for gate in layer.gates]
    assert seen == expected


def test_gates_whose_parameters_need_no_gradient_are_not_learned(fake_gpu):
    layer = surnn.SuGRU(FEATURES, UNITS, dtype=torch.float64)
    assert layer.chosen_backend == "events"
    layer.gates.requires_grad_(False)
    layer(torch.randn(6, 2, FEATURES, dtype=torch.float64))
    assert fake_gpu == [layer.chosen_backend] == ["onepass"]


def test_layers_with_different_gates_may_run_on_different_backends(fake_gpu):
    gates = [surnn.Rhythm(frozen=True), surnn.Rhythm(), surnn.Rhythm(frozen=True)]
    layer = surnn.SuGRU(FEATURES, UNITS, 3, gate=gates, dtype=torch.float64)
    layer(torch.randn(6, 2, FEATURES, dtype=torch.float64))
    assert fake_gpu == ["onepass", "events", "onepass"]
    assert layer.chosen_backend == "onepass, events"


def test_a_gate_that_requires_a_gradient_never_runs_on_onepass(fake_gpu):
    inputs = make_inputs("gru", per_unit=True)
    scan(inputs)
    scan(inputs.replace(gate=inputs.gate.detach()))
    scan(inputs.replace(gate=inputs.gate.detach(), learned_gate=True))
    assert fake_gpu == ["events", "onepass", "events"]


def test_the_rule():
    frozen = ScanTraits(
        cell=get_cell("gru"),
        width=4096,
        device=torch.device("cuda"),
        dtype=torch.float64,
        state_dtype=torch.float64,
        unit_gates=True,
        binary=True,
        learned_gate=False,
    )
    assert choose("auto", frozen) == "onepass"
    for changes in (
        {"unit_gates": False},
        {"learned_gate": True},
        {"binary": False},
        {"cell": get_cell("lstm")},
        {"device": torch.device("cpu")},
    ):
        assert choose("auto", dataclasses.replace(frozen, **changes)) == "events"
    assert choose("reference", frozen) == "reference"
    assert torch.func.vmap(lambda x: x * (choose("auto", frozen) == "reference"))(torch.ones(2))[0]


CPU = {
    "cell": get_cell("gru"),
    "width": 64,
    "device": torch.device("cpu"),
    "dtype": torch.float32,
    "state_dtype": torch.float32,
    "unit_gates": True,
    "binary": True,
    "learned_gate": True,
}


def test_the_rule_on_a_cpu():
    traits = ScanTraits(**CPU)
    assert choose("auto", traits) == "native"
    for changes in (
        {"unit_gates": False},
        {"learned_gate": False},
        {"binary": False},
        {"cell": get_cell("alif")},
        {"dtype": torch.bfloat16},
    ):
        assert choose("auto", dataclasses.replace(traits, **changes)) == "native"
    for changes in (
        {"dtype": torch.float64, "state_dtype": torch.float64},
        {"dtype": torch.bfloat16, "state_dtype": torch.bfloat16},
        {"device": torch.device("meta")},
        {"cell": type("Mine", (type(get_cell("gru")),), {"name": "mine"})()},
    ):
        assert choose("auto", dataclasses.replace(traits, **changes)) == "events"


def test_a_scan_that_native_cannot_run_is_an_error():
    with pytest.raises(ValueError, match="states are float32, not float64; use 'events'"):
        scan(make_inputs("gru"), "native")


def test_without_the_c_library_layers_run_on_events_and_say_so_once(monkeypatch, caplog):
    monkeypatch.setattr(native, "is_available", lambda: False)
    dispatch._say_that_native_is_missing.cache_clear()
    layer = surnn.SuGRU(FEATURES, UNITS)
    layer(torch.randn(6, 2, FEATURES))
    layer(torch.randn(6, 2, FEATURES))
    assert layer.chosen_backend == "events"
    assert len(caplog.records) == 1
    assert "apt install gcc" in caplog.text
    with pytest.raises(ValueError, match=r"C library.*apt install gcc.*'events'"):
        surnn.SuGRU(FEATURES, UNITS, backend="native")


@pytest.mark.parametrize("cell", ["gru", "alif"])
def test_lengths_reach_a_backend_as_closed_gates(monkeypatch, cell):
    lengths = torch.tensor([11, 1, 6])
    relevant = torch.ones(11, 1, 2, dtype=torch.bool)
    inputs = make_inputs(cell, lengths=lengths).replace(relevant=relevant)
    seen = []

    def run(inputs):
        seen.append(inputs)
        return reference.scan(inputs)

    monkeypatch.setattr(dispatch.events, "scan", run)
    y, _ = scan(inputs, "events")
    past = ~step_mask(11, lengths)
    assert (y[past] == 0).all()
    assert (seen[0].gate[past] == 0).all()
    assert torch.equal(seen[0].gate[~past], inputs.gate.expand(-1, 3, -1, -1)[~past])
    assert torch.equal(seen[0].relevant, ~past.unsqueeze(-1).expand(-1, -1, 2))
    # A carry of a spiking cell decays, and a length ends the decay.
    assert (seen[0].lengths is None) == (cell == "gru")


def test_onepass_gives_its_reasons():
    soft = make_inputs("gru", binary=False).traits
    assert "soft gate" in (onepass.unsupported(soft) or "")
    assert "'lstm'" in (onepass.unsupported(make_inputs("lstm").traits) or "")


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_trace_records_events_and_refuses_kernels():
    layer, x = surnn.SuGRU(3, 8).requires_grad_(False), torch.randn(6, 2, 3)
    traced = torch.jit.trace(layer, (x,))
    assert torch.allclose(traced(x)[0], layer(x)[0], atol=1e-6)
    layer.backend = "native"
    with pytest.raises(ValueError, match=r"does not support torch\.jit\.trace"):
        torch.jit.trace(layer, (x,))
