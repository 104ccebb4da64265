"""Helpers for tests of the C engine."""

import numpy as np
import torch

import surnn
from surnn.deploy.export import to_engine


def export_stream(model, folder, weights="float32"):
    """Export a model to ``folder``, and return a new stream of it in the engine."""
    return surnn.Engine(to_engine(model, folder / "model.surnn", weights)).stream()


def python_run(layer, x, t0=0):
    """Outputs [T, H] of a layer from clock ``t0`` on, and gates [T, width] of its layers."""
    layer.eval()
    state = layer.init_state(1)._replace(t=torch.tensor(t0))
    schedules = []
    handles = [
        gate.register_forward_hook(lambda m, a, result: schedules.append(result[0].g[:, 0]))
        for gate in layer.gates
    ]
    with torch.no_grad():
        y, _ = layer(x[:, None], state)
    for handle in handles:
        handle.remove()
    width = [gate.width for gate in layer.gates]
    return y[:, 0].numpy(), [
        g.expand(len(x), w).numpy() for g, w in zip(schedules, width, strict=True)
    ]


def engine_run(stream, x, t0=0):
    """Outputs, gates and states at every time step."""
    stream.clock = t0
    layers = range(stream.engine.layers)
    outputs, gates, states = [], [[] for _ in layers], [[] for _ in layers]
    for frame in x.numpy():
        outputs.append(stream.step(frame))
        for layer in layers:
            gates[layer].append(stream.gates(layer))
            states[layer].append(stream.hidden(layer))
    return np.array(outputs), [np.array(g) for g in gates], [np.array(s) for s in states]


def assert_carried(gates, states, components):
    """The state of units whose gate is closed is unchanged, bit for bit."""
    closed = np.repeat(gates[1:], states.shape[-1] // gates.shape[-1], axis=1) == 0
    assert closed.any()
    for c in components:
        before, after = states[:-1, c], states[1:, c]
        assert (after[closed] == before[closed]).all()


def assert_same(layer, folder, x, t0=0, tolerance=1e-5):
    """The engine agrees with Python: outputs, gates at every time step, exact carries."""
    stream = export_stream(layer, folder)
    expected, schedules = python_run(layer, x, t0)
    outputs, gates, states = engine_run(stream, x, t0)
    for engine_gates, python_gates in zip(gates, schedules, strict=True):
        assert np.array_equal(engine_gates, python_gates)
    assert np.abs(outputs - expected).max() < tolerance
    assert np.abs(states[0][:, 0]).max() > 0.05  # the layer computes something
    for layer_gates, state in zip(gates, states, strict=True):
        if not layer_gates.all():
            components = [1] if isinstance(layer, surnn.SuSNN) else range(state.shape[1])
            assert_carried(layer_gates, state, components)
    return stream
