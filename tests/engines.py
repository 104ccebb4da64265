"""What tests of the engine share."""

import numpy as np
import torch

import surnn
from surnn.export import to_engine


def loaded(model, folder, weights="float32"):
    """A stream of the engine with this model."""
    return surnn.Engine(to_engine(model, folder / "model.surnn", weights)).stream()


def python_run(layer, x, t0=0):
    """Outputs [T, H] of a layer, streamed from clock ``t0``, and gates [T, width] of its layers."""
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
    """Outputs, gates and states of every step."""
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
    """Units whose gate is closed are the same as before, bit for bit."""
    closed = np.repeat(gates[1:], states.shape[-1] // gates.shape[-1], axis=1) == 0
    assert closed.any()
    for c in components:
        before, after = states[:-1, c], states[1:, c]
        assert (after[closed] == before[closed]).all()


def assert_same(layer, folder, x, t0=0, tolerance=1e-5):
    """The engine computes what Python does: outputs, gates at every step, exact carries."""
    stream = loaded(layer, folder)
    wanted, schedules = python_run(layer, x, t0)
    got, gates, states = engine_run(stream, x, t0)
    for mine, theirs in zip(gates, schedules, strict=True):
        assert np.array_equal(mine, theirs)
    assert np.abs(got - wanted).max() < tolerance
    assert np.abs(states[0][:, 0]).max() > 0.05  # something was computed
    for mine, state in zip(gates, states, strict=True):
        if not mine.all():
            components = [1] if isinstance(layer, surnn.SuSNN) else range(state.shape[1])
            assert_carried(mine, state, components)
    return stream
