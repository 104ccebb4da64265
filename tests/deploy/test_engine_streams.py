"""Many streams together, streams in threads, clocks and limits of the C engine."""

import gc
import struct
import threading
import time
import weakref

import numpy as np
import pytest
import torch

import surnn
from helpers.engines import engine_run, export_stream
from surnn.analysis.recording import record
from surnn.config import InputGateConfig, ModelConfig, RhythmConfig
from surnn.deploy.engine_library import MAX_CLOCK, library
from surnn.models.model import SequenceModel
from surnn.tasks import Output, Tokens, Values
from surnn.tasks.state_tracking import StateTracking

CELLS = {
    "rnn": surnn.SuRNN,
    "gru": surnn.SuGRU,
    "lstm": surnn.SuLSTM,
    "alif": lambda *a, **o: surnn.SuSNN(*a, adaptation_always_decays=True, **o),
}
GROUPS = {"unit": {}, "five": {"granularity": 5}, "eight": {"granularity": 8}, "sixteen": {
    "granularity": 16}}  # fmt: skip
TOGETHER = 32
"""Streams that the engine computes at once."""


def assert_same_streams(engine, inputs, clocks):
    """Streams together equal streams alone, bit for bit. ``inputs`` [T, streams, ...]."""
    together, alone = engine.streams(len(clocks)), [engine.stream() for _ in clocks]
    for i, clock in enumerate(clocks):
        together[i].clock = alone[i].clock = clock
    for frames in inputs:
        expected = np.array(
            [stream.step(frame) for stream, frame in zip(alone, frames, strict=True)]
        )
        assert np.array_equal(together.step(frames), expected, equal_nan=True)
    for one, other in zip(together, alone, strict=True):
        assert one.work == other.work
        assert one.clock == other.clock
        if not any(np.isnan(one.hidden(layer)).any() for layer in range(engine.layers)):
            assert one.save() == other.save()  # the sign of a NaN is not defined


@pytest.mark.parametrize("simd", ["scalar", "generic", "avx2", "best"])
@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("cell", CELLS)
def test_streams_together_equal_streams_alone(cell, group, weights, simd, tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_SIMD", simd)
    gate = surnn.Rhythm(rate=0.4, horizon=20, **GROUPS[group])
    units = 40 if group == "five" else 48
    engine = export_stream(CELLS[cell](21, units, 2, gate=gate), tmp_path, weights).engine
    x = np.random.default_rng(0).normal(size=(40, TOGETHER + 5, 21)).astype(np.float32)
    x[10:13, 3], x[20, 5] = x[9, 3], np.nan  # a constant input, and NaN
    clocks = [0] * 20 + [7 * i for i in range(TOGETHER - 15)]
    assert_same_streams(engine, x, clocks)


@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize(
    "options",
    [
        {"convolution": 3, "norm": "rms"},
        {"expand": 2, "groups": 4, "gate": InputGateConfig()},
        {"block": "feedforward", "heads": 4, "pool": "mean"},
    ],
)
def test_models_together(options, weights, tmp_path):
    gate = options.pop("gate", RhythmConfig(rate=0.4))
    for inputs in (Values(3), Tokens(9)):
        config = ModelConfig(width=32, **options)
        model = SequenceModel(config, gate, inputs, Output(5, "step"), 20).eval()
        engine = export_stream(model, tmp_path, weights).engine
        random = np.random.default_rng(0)
        shape = (30, 9)
        x = random.normal(size=(*shape, 3)) if inputs == Values(3) else random.integers(0, 9, shape)
        assert_same_streams(engine, x, [0] * 5 + [100] * 4)


def test_streams_come_and_go(tmp_path):
    engine = export_stream(surnn.SuGRU(2, 16, gate="rhythm"), tmp_path).engine
    x = np.random.default_rng(0).normal(size=(3, 6, 2))
    streams = engine.streams(6)
    expected = np.array([engine.stream().run(x[:, i])[-1] for i in range(6)])
    streams.step(x[0])
    streams[:2].step(x[1, :2])
    engine.step_many([streams[5], streams[2]], x[1, [5, 2]])
    for i in (3, 4):
        streams[i].step(x[1, i])
    assert np.array_equal(streams.step(x[2]), expected)
    assert [stream.clock for stream in streams.reset()] == [0] * 6
    assert engine.streams(0).step(np.zeros((0, 2))).shape == (0, 16)
    assert repr(streams).startswith("Streams(6 of Engine(")


def test_wrong_batches_are_refused(tmp_path):
    engine = export_stream(surnn.SuGRU(2, 16, gate="rhythm"), tmp_path).engine
    streams = engine.streams(3)
    with pytest.raises(ValueError, match="3 streams take 3 frames or tokens, one each; got 2"):
        streams.step(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"frames of 2 numbers.*got \[3, 4\]"):
        streams.step(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="pass each stream once"):
        engine.step_many([streams[0], streams[0]], np.zeros((2, 2)))
    other = export_stream(surnn.SuGRU(2, 16, gate="rhythm"), tmp_path)
    with pytest.raises(ValueError, match="several models"):
        engine.step_many([streams[0], other], np.zeros((2, 2)))
    streams[2].clock = MAX_CLOCK
    with pytest.raises(surnn.EngineError, match=r"2\^50"):
        streams.step(np.zeros((3, 2)))
    assert [stream.clock for stream in streams] == [0, 0, MAX_CLOCK]  # none has changed


def test_a_stream_is_small(tmp_path):
    engine = export_stream(surnn.SuGRU(1, 256, 2, gate="rhythm"), tmp_path).engine
    assert engine.stream_size == engine.saved_size < 16_000
    assert engine.stream_size < engine.workspace_size


# ---------------------------------------------------------------------------- threads


def test_a_stream_in_two_threads_is_busy(tmp_path):
    engine = export_stream(surnn.SuGRU(4, 64, gate=surnn.AlwaysOpen()), tmp_path).engine
    stream, x = engine.stream(), np.random.default_rng(0).normal(size=(20_000, 4))
    calls = {
        "step": lambda: stream.step(x[0]),
        "save": stream.save,
        "reset": stream.reset,
        "restore": lambda: stream.restore(bytes(engine.saved_size)),
        "gates": lambda: stream.gates(0),
        "clock": lambda: setattr(stream, "clock", 0),
        "many": lambda: engine.step_many([engine.stream(), stream], x[:2]),
    }
    finished, refused = threading.Event(), set()

    def is_refused(call):
        try:
            call()
        except surnn.EngineError as error:
            return "another thread is using this stream" in str(error)
        return False

    def keep_running():  # either thread may be the one that is refused
        while not finished.is_set():
            is_refused(lambda: stream.run(x))

    thread = threading.Thread(target=keep_running)
    thread.start()
    for _ in range(1000):
        refused |= {name for name, call in calls.items() if is_refused(call)}
        if refused == set(calls):
            break
        time.sleep(0.001)
    finished.set()
    thread.join()
    assert refused == set(calls)
    assert np.array_equal(stream.reset().run(x[:50]), engine.stream().run(x[:50]))


def test_each_thread_has_its_workspace_and_releases_it(tmp_path):
    engine = export_stream(surnn.SuGRU(2, 16, gate="rhythm"), tmp_path).engine
    seen = []

    def use():
        engine.stream().step([0.0, 0.0])
        workspace = engine._memory.workspace
        seen.append((workspace.pointer.value, weakref.ref(workspace)))

    own = engine._memory.workspace.pointer.value
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    deadline = time.monotonic() + 600  # a guard against waiting forever
    while seen[0][1]() is not None and time.monotonic() < deadline:
        gc.collect()
    assert seen[0][0] != own
    assert seen[0][1]() is None


# ---------------------------------------------------------------------------- clocks


@pytest.mark.parametrize("simd", ["scalar", "generic", "avx2", "best"])
@pytest.mark.parametrize("t0", [0, 10**9, 2**40 - 20, 2**45, 2**50 - 200])
@pytest.mark.parametrize(
    "gate",
    [
        surnn.Rhythm(rate=0.3, horizon=10),
        surnn.Rhythm(rate=0.3, horizon=10, frequencies=5, train_frequencies=True),
        surnn.WarpedRhythm(rate=0.3, horizon=10),
        surnn.WarpedRhythm(rate=0.3, horizon=10, per_unit=True),
        surnn.Cycles(),
        surnn.FixedRandom(rate=0.3, seed=1),
    ],
)
def test_clock_gates_equal_python_up_to_the_limit(gate, t0, simd, tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_SIMD", simd)
    layer = surnn.SuGRU(1, 75, gate=gate, bias=False)
    for each in layer.gates:
        if hasattr(each, "speed"):
            torch.nn.init.normal_(each.speed)
    _, gates, _ = engine_run(export_stream(layer, tmp_path), torch.zeros(200, 1), t0)
    t = torch.arange(t0 + 1, t0 + 201)[:, None]
    assert np.array_equal(gates[0], layer.gates[0](t)[0].g[:, 0].detach().numpy())


@pytest.mark.parametrize("simd", ["scalar", "generic", "avx2", "best"])
def test_sums_near_zero_are_decided_in_double(simd, tmp_path, monkeypatch):
    """The amplitudes cancel up to 1e-9, far below the rounding of float32."""
    monkeypatch.setenv("SURNN_SIMD", simd)
    layer = surnn.SuGRU(1, 40, gate=surnn.Rhythm(horizon=4, frequencies=2, train_frequencies=True))
    gate = layer.gates[0]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        gate.omega.copy_(torch.tensor([1.0, 1.0]))  # type: ignore[arg-type]
        gate.phase.copy_(torch.rand(40, 2, generator=generator) * 0)
        gate.amplitude.copy_(torch.tensor([1.0, -1.0]))
        gate.bias.copy_(torch.randn(40, generator=generator) * 1e-9)
    _, gates, _ = engine_run(export_stream(layer, tmp_path), torch.zeros(300, 1), 50)
    expected = gate(torch.arange(51, 351)[:, None])[0].g[:, 0].detach().numpy()
    assert np.array_equal(gates[0], expected)
    assert 0.2 < expected.mean() < 0.8


def test_rounded_phases_are_decided_in_double(tmp_path):
    """At t = 2^39 a rounded phase is off by 1e-4; each gate is 1e-6 from 0 at one time step."""
    t0, count = 2**39, 64
    layer = surnn.SuGRU(1, count, gate=surnn.Rhythm(horizon=4, frequencies=1, min_period=2.1))
    gate = layer.gates[0]
    t = torch.arange(t0 + 1, t0 + 65)[:, None]
    with torch.no_grad():
        gate.amplitude.fill_(1.0)
        gate.phase.zero_()
        gate.bias.zero_()
        sines = gate.wave(t)[16 : 16 + 48, 0, 0]  # after the first block
        signs = torch.tensor([1.0, -1.0]).repeat(count // 2)
        gate.bias.copy_(-sines.repeat(2)[:count] + 1e-6 * signs)
    _, gates, _ = engine_run(export_stream(layer, tmp_path), torch.zeros(64, 1), t0)
    assert np.array_equal(gates[0], gate(t)[0].g[:, 0].detach().numpy())


def test_rhythms_do_not_depend_on_how_the_clock_came_there(tmp_path):
    layer = surnn.SuGRU(1, 75, gate=surnn.Rhythm(rate=0.3, horizon=10))
    stream = export_stream(layer, tmp_path)
    schedule = layer.gates[0](torch.arange(1, 401)[:, None])[0].g[:, 0].detach().numpy()
    random = np.random.default_rng(0)
    for clock in random.integers(0, 350, 60):
        stream.clock = int(clock)
        for t in range(clock, clock + random.integers(1, 50)):
            stream.step([0.0])
            assert np.array_equal(stream.gates(0), schedule[t]), t


def test_files_without_float_sums_still_run(tmp_path, monkeypatch):
    """Version 0.1 wrote no d7."""
    layer = surnn.SuGRU(1, 75, gate=surnn.Rhythm(rate=0.3, horizon=10))
    expected = layer.gates[0](torch.arange(1, 201)[:, None])[0].g[:, 0].detach().numpy()
    monkeypatch.setattr("surnn.deploy.export.engine_gates.slices", lambda *_: None)
    _, gates, _ = engine_run(export_stream(layer, tmp_path), torch.zeros(200, 1))
    assert np.array_equal(gates[0], expected)


def test_the_clock_has_one_limit(tmp_path):
    stream = export_stream(surnn.SuGRU(1, 8, gate="rhythm"), tmp_path)
    for t in (-1, MAX_CLOCK + 1, 2**63, 2**64 + 5):
        with pytest.raises(surnn.EngineError, match=rf"from 0 to 2\^50 time steps, got {t}"):
            stream.clock = t
    lib, model = library(), stream.engine._model
    assert lib.surnn_set_clock(model, stream._stream, MAX_CLOCK + 1) != 0
    assert lib.surnn_set_clock(model, stream._stream, -1) != 0
    assert stream.clock == 0
    stream.clock = MAX_CLOCK - 2
    with pytest.raises(surnn.EngineError, match=r"2\^50"):
        stream.run(np.zeros((3, 1)))
    stream.run(np.zeros((2, 1)))
    assert stream.clock == MAX_CLOCK
    with pytest.raises(surnn.EngineError, match=r"2\^50"):
        stream.step([0.0])
    saved = stream.save()
    position = saved.index(struct.pack("<q", MAX_CLOCK))
    later = saved[:position] + struct.pack("<q", MAX_CLOCK + 1) + saved[position + 8 :]
    with pytest.raises(surnn.EngineError, match="saved stream"):
        stream.restore(later)
    assert stream.restore(saved).clock == MAX_CLOCK
    engine = export_stream(surnn.SuGRU(1, 16, gate=surnn.EveryN(2)), tmp_path).engine
    for name in ("time_parts", "time_steps", "run_steps"):
        for clock in (-1, MAX_CLOCK - 2):
            with pytest.raises(surnn.EngineError, match=r"2\^50"):
                getattr(engine, name)(np.zeros((3, 1)), clock=clock)


# ------------------------------------------------------------------ resets


def test_resets_start_streams_anew(tmp_path):
    """With a mask, frames after a reset give the same numbers as a new stream."""
    torch.manual_seed(0)
    path = tmp_path / "model.surnn"
    surnn.export.to_engine(surnn.SuGRU(3, 16, gate=surnn.Rhythm(rate=0.3, horizon=32)), path)
    engine = surnn.Engine(path)
    frames = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    mask = np.zeros(20, dtype=bool)
    mask[[0, 7, 15]] = True
    stream = engine.stream()
    stream.run(frames)
    out = stream.run(frames, reset=mask)
    assert stream.clock == 5
    parts = [engine.stream().run(frames[a:b]) for a, b in ((0, 7), (7, 15), (15, 20))]
    assert (out == np.concatenate(parts)).all()
    single = engine.stream()
    stepped = [single.step(frame, reset=bool(now)) for frame, now in zip(frames, mask, strict=True)]
    assert (np.stack(stepped) == out).all()

    streams = engine.streams(3)
    for t in range(7):
        streams.step(np.stack([frames[t]] * 3))
    y = streams.step(np.stack([frames[7]] * 3), reset=np.array([False, True, False]))
    assert (y[1] == out[7]).all()
    assert (y[0] != y[1]).any()
    assert [s.clock for s in streams] == [8, 1, 8]
    streams.reset(np.array([True, False, False]))
    assert [s.clock for s in streams] == [0, 1, 8]
    with pytest.raises(ValueError, match="reset is 3 bools, one for each stream"):
        streams.reset([True])


# ------------------------------------------------------------------ long streams


def test_a_long_stream_of_rare_events(tmp_path):
    """State tracking: the answers and the updates are torch's, and little work is done."""
    task = StateTracking("S3", length=3000, events=8)
    sizes, gate = ModelConfig(width=32, heads=4, layers=2), InputGateConfig(rate=0.05)
    model = SequenceModel(sizes, gate, task.input, task.output, task.steps).eval()
    x = task.batch("test", 0, 1, 0, torch.device("cpu")).x
    stream = export_stream(model, tmp_path)
    outputs = torch.from_numpy(stream.run(x[0].numpy()))
    with torch.no_grad():
        expected = model(x)[0]
    assert (outputs - expected).abs().max() < 1e-5
    assert torch.equal(outputs.argmax(-1), expected.argmax(-1))
    rates = [layer.gate.mean().item() for layer in record(model, x).layers]
    assert min(rates) > 0
    assert stream.work.update_rate == pytest.approx(sum(rates) / len(rates), abs=1e-6)
    assert stream.work.skipped > 0.5
