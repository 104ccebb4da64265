"""SuSNN as NIR: a simulator that knows NIR alone computes the same spikes from the file."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import surnn
from surnn.deploy.export.modules import NotExportable

nir = pytest.importorskip("nir")


def spiking(*sizes, **options):
    return surnn.SuSNN(*sizes, **{"neuron": "lif", "gate": surnn.AlwaysOpen(), **options})


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs = nn.Linear(3, 5, bias=False)
        self.layer = spiking(5, 8, batch_first=True)
        self.readout = nn.Linear(8, 2)

    def forward(self, x):
        return self.readout(self.layer(self.inputs(x))[0])


def simulate(graph, frames):
    """Forward Euler; spikes subtract the threshold; edges to earlier nodes have one step delay."""
    dt, loops = graph.metadata["dt"], [n for n in graph.nodes if n.endswith("_recurrent")]
    order = ["input"]
    while order[-1] != "output":
        order += [b for a, b in graph.edges if a == order[-1] and b not in loops]
    values: dict[str, Any] = {
        name: np.zeros(node.output_type["output"]) for name, node in graph.nodes.items()
    }
    membranes = dict(values)
    outputs = []
    for frame in frames:
        for name in (*order, *loops):
            x = frame if name == "input" else sum(values[a] for a, b in graph.edges if b == name)
            values[name] = step(graph.nodes[name], name, x, membranes, dt)
        outputs.append(values["output"])
    return np.stack(outputs)


def step(node, name, x, membranes, dt):
    if isinstance(node, nir.LIF):
        rate = dt / node.tau
        v = membranes[name] + rate * (node.v_leak - membranes[name] + node.r * x)
        spikes = (v > node.v_threshold).astype(float)
        membranes[name] = v - node.v_threshold * spikes
        return spikes
    if isinstance(node, nir.Affine):
        return node.weight @ x + node.bias
    return node.weight @ x if isinstance(node, nir.Linear) else x


@pytest.mark.parametrize(
    "make",
    [
        lambda: spiking(3, 8),
        lambda: spiking(3, 8, 2, heads=2, bias=False),
        lambda: spiking(3, 8, heads=4, expand=2, groups=1),
        lambda: spiking(4, 8, expand=2, groups=2, gate=surnn.EveryN(1)),
        Network,
    ],
)
def test_a_simulator_computes_the_same_from_the_file(make, tmp_path):
    torch.manual_seed(0)
    model = make()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "weight" in name:
                weight.mul_(20)  # most neurons spike
    x = torch.randn(40, getattr(model, "input_size", 3))
    graph = nir.read(surnn.export.to_nir(model, tmp_path / "model.nir", dt=1e-3))
    y = model(x[None])[0] if isinstance(model, Network) else model(x[:, None])[0][:, 0]
    assert len(y.unique()) > 1
    np.testing.assert_allclose(simulate(graph, x.numpy()), y.detach(), atol=1e-4)


def test_nodes_are_those_that_other_libraries_know(tmp_path):
    graph = nir.read(surnn.export.to_nir(Network(), tmp_path / "model.nir"))
    kinds = sorted(type(node).__name__ for node in graph.nodes.values())
    assert kinds == ["Affine", "Affine", "Input", "LIF", "Linear", "Linear", "Output"]
    assert graph.metadata["dt"] == 1e-4


class Residual(Network):
    def forward(self, x):
        x = self.inputs(x)
        return x + x


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: spiking(3, 8, gate="rhythm"), "cannot express the gate Rhythm: .*AlwaysOpen"),
        (lambda: spiking(3, 8, gate=surnn.EveryN(2)), "cannot express the gate EveryN"),
        (lambda: spiking(3, 8, neuron="alif"), "no neurons with adaptive thresholds.*neuron='lif'"),
        (lambda: surnn.SuGRU(3, 8, gate=surnn.AlwaysOpen()), "not the cell 'gru'"),
        (lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU()), "module '1': ReLU cannot be"),
        (lambda: nn.Sequential(nn.Embedding(3, 3), nn.Linear(3, 3)), "no tokens"),
        (lambda: spiking(3, 8, bidirectional=True), "bidirectional"),
        (Residual, "not branches"),
    ],
)
def test_what_nir_cannot_express_is_named(make, reason, tmp_path):
    with pytest.raises(NotExportable, match=reason):
        surnn.export.to_nir(make(), tmp_path / "model.nir")
    assert not list(tmp_path.iterdir())


def test_time_is_positive(tmp_path):
    with pytest.raises(ValueError, match="positive, got 0"):
        surnn.export.to_nir(spiking(3, 8), tmp_path / "model.nir", dt=0)
