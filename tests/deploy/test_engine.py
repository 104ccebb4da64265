"""The C engine against Python: layers, gates, streams, counts of work."""

import copy
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import surnn
from helpers.engines import assert_same, engine_run, export_stream, python_run
from surnn.config import ModelConfig, RhythmConfig
from surnn.deploy.export.engine_file import EngineFile, Op
from surnn.models.model import SequenceModel
from surnn.tasks import Output, Tokens

LAYERS = {
    "rnn": surnn.SuRNN,
    "relu": lambda *a, **o: surnn.SuRNN(*a, nonlinearity="relu", **o),
    "gru": surnn.SuGRU,
    "lstm": surnn.SuLSTM,
    "alif": surnn.SuSNN,
    "lif": lambda *a, **o: surnn.SuSNN(*a, neuron="lif", tau_m=(2.0, 0.5), **o),
    "alif_adapts_while_closed": lambda *a, **o: surnn.SuSNN(*a, adaptation_always_decays=True, **o),
}
SHAPES = {
    "unit": {"granularity": "unit"},
    "eight": {"granularity": 8},
    "sixteen": {"granularity": 16},
    "heads": {"granularity": "head", "heads": 4},
    "across": {"granularity": 16, "heads": 2},  # groups and heads overlap
    "layer": {"granularity": "layer"},
}
GATES = {
    "rhythm": surnn.Rhythm(horizon=20, rate=0.3, always_on=0.05),
    "learned": surnn.Rhythm(horizon=20, rate=0.3, train_frequencies=True),
    "fixed_rhythm": surnn.FixedRhythm(horizon=20),
    "warped": surnn.WarpedRhythm(horizon=20, rate=0.3),
    "warped_each": surnn.WarpedRhythm(horizon=20, rate=0.3, per_unit=True),
    "spline": surnn.Spline(horizon=20, rate=0.3, knots=8),
    "spectral": surnn.Spectral(horizon=20, rate=0.3, bins=8),
    "table": surnn.Table(horizon=20, rate=0.3),
    "open": surnn.AlwaysOpen(),
    "every_n": surnn.EveryN(3),
    "staggered": surnn.EveryN(5, staggered=True),
    "cycles": surnn.Cycles(min_period=3, max_period=17, always_on=0.05),
    "fixed_random": surnn.FixedRandom(seed=3, rate=0.3),
    "input": surnn.InputGate(always_on=0.05),
    "mlp": surnn.InputGate(hidden=7),
    "ssm": surnn.SSMGate(source="input", modes=5),
    "threshold": surnn.Threshold(level=0.9),
    "full": surnn.FullGate(conv=3, modes=5, horizon=20),
    "full_hidden": surnn.FullGate(conv=2, modes=5, hidden=9, horizon=20),
    "full_hidden_no_clock": surnn.FullGate(rhythm=False, hidden=4, modes=3, horizon=20),
    "full_clock": surnn.FullGate(input=False, ssm=False, horizon=20, mode="hard"),
    "full_recent": surnn.FullGate(rhythm=False, input=False, ssm=False, conv=1),
    "full_source": surnn.FullGate(ssm=False, source="input", train_frequencies=True),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cell", LAYERS)
def test_layers(cell, shape, tmp_path):
    options = dict(SHAPES[shape])
    gate = surnn.Rhythm(rate=0.3, horizon=20, granularity=options.pop("granularity"))
    layer = LAYERS[cell](5, 48, 2, gate=gate, **options)
    assert_same(layer, tmp_path, 2 * torch.randn(40, 5))


@pytest.mark.parametrize("t0", [0, 10**9])
@pytest.mark.parametrize("gate", GATES)
def test_gates(gate, t0, tmp_path):
    layer = surnn.SuGRU(5, 24, 2, gate=GATES[gate])
    if gate == "warped":  # a clock that is not linear
        for each in layer.gates:
            torch.nn.init.normal_(each.speed)
    assert_same(layer, tmp_path, 2 * torch.randn(50, 5), t0)


@pytest.mark.parametrize("t0", [10**6, 10**9, 10**12])
@pytest.mark.parametrize("gate", [surnn.Rhythm(rate=0.3, horizon=64), surnn.Cycles()])
def test_gates_agree_at_a_large_clock(gate, t0, tmp_path):
    layer = surnn.SuGRU(1, 70, gate=gate, bias=False)
    _, gates, _ = engine_run(export_stream(layer, tmp_path), torch.zeros(2000, 1), t0)
    t = torch.arange(t0 + 1, t0 + 2001)[:, None]
    assert np.array_equal(gates[0], layer.gates[0](t)[0].g[:, 0].detach().numpy())
    assert 0.05 < gates[0].mean() < 0.6


def test_a_rhythm_goes_on_while_the_input_is_constant(tmp_path):
    """Operations whose input has not changed are skipped; the clock changes at every step."""
    gate = surnn.FullGate(rate=0.4, conv=2, modes=5, horizon=20, frequencies=8)
    layer = surnn.SuGRU(5, 24, gate=gate)
    assert_same(layer, tmp_path, torch.full((50, 5), 0.3))


def test_inconsistent_cycles_are_refused(tmp_path):
    def read(period, open_steps, shift):
        file, path = EngineFile(1, takes_tokens=False), tmp_path / "model.surnn"
        cycles = np.array([[5, period], [5, open_steps], [4, shift]], np.uint32)
        file.add(Op.GATE_CYCLES, 0, file.gate(), numbers=[2, 0], data=[cycles])
        path.write_bytes(file.to_bytes(output=0))
        return surnn.Engine(path)

    assert read(7, 7, 6).output_size == read(1, 0, 0).output_size == 1
    for cycles in ((0, 0, 0), (7, 8, 0), (7, 1, 7)):
        with pytest.raises(surnn.EngineError, match="contradict"):
            read(*cycles)


PLACES, FIRST_TILES = 2, 3  # arrays d2 and d3 of a recurrent layer


@pytest.mark.parametrize(
    ("array", "index", "value"),
    [
        (PLACES, 0, 1),  # first unit
        (PLACES, 1, 0),  # number of units
        (PLACES, 1, 17),
        (PLACES, 5, 15),
        (PLACES, 6, 0),  # gate
        (PLACES, 6, 2),
        (PLACES, 7, 1),  # head
        (FIRST_TILES, 0, 1),
        (FIRST_TILES, 1, 0),
        (FIRST_TILES, 1, 3),
        (FIRST_TILES, 2, 1),
    ],
)
def test_inconsistent_tiles_are_refused(array, index, value, tmp_path):
    path = tmp_path / "model.surnn"
    surnn.export.to_engine(surnn.SuGRU(3, 32, gate=surnn.Rhythm(granularity=16)), path)
    assert surnn.Engine(path).layers == 1
    content = bytearray(path.read_bytes())
    (count,), (records,) = (
        struct.unpack_from("<I", content, 24),
        struct.unpack_from("<Q", content, 48),
    )
    kinds = [struct.unpack_from("<I", content, records + 128 * i)[0] for i in range(count)]
    record = records + 128 * kinds.index(Op.RECURRENT)
    (offset,) = struct.unpack_from("<Q", content, record + 64 + 8 * array)
    struct.pack_into("<I", content, offset + 4 * index, value)
    struct.pack_into("<I", content, 12, zlib.crc32(content[16:]))
    path.write_bytes(content)
    with pytest.raises(surnn.EngineError, match="contradict"):
        surnn.Engine(path)


@pytest.mark.parametrize("heads", [1, 3])
def test_odd_sizes_and_expansion(heads, tmp_path):
    layer = surnn.SuGRU(7, 21, 2, heads=heads, expand=3, groups=7, gate="rhythm")
    assert_same(layer, tmp_path, torch.randn(30, 7))
    single = surnn.SuGRU(1, 1, gate=surnn.AlwaysOpen(), bias=False)
    assert_same(single, tmp_path, torch.randn(30, 1))


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN])
def test_torch_layers(kind, tmp_path):
    layer = kind(3, 20, 2)
    x = torch.randn(30, 3)
    with torch.no_grad():
        expected = layer(x)[0].numpy()
    assert np.abs(export_stream(layer, tmp_path).run(x) - expected).max() < 1e-5


@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize("shape", ["unit", "eight", "sixteen"])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm", "alif"])
def test_instruction_sets_agree(cell, shape, weights, tmp_path, monkeypatch):
    gate = surnn.Rhythm(rate=0.4, horizon=20, **SHAPES[shape])
    layer = LAYERS[cell](5, 48, 2, gate=gate)
    x = 2 * torch.randn(60, 5).numpy()
    results = {}
    for simd in ("scalar", "generic", "avx2", "best"):
        monkeypatch.setenv("SURNN_SIMD", simd)
        stream = export_stream(layer, tmp_path, weights)
        results[stream.engine.simd] = stream.run(x)
    assert len(results) >= 2
    tolerance = (
        1e-5 if weights == "float32" else 5e-4
    )  # quantisation may round a state the other way
    for name, result in results.items():
        assert np.abs(result - results["scalar"]).max() < tolerance, name


def test_int8_is_close_to_float32(tmp_path):
    layer = surnn.SuGRU(8, 64, 2, gate=surnn.Rhythm(rate=0.3, granularity=16, horizon=100))
    x = torch.randn(200, 8)
    expected, _ = python_run(layer, x)
    stream = export_stream(layer, tmp_path, "int8")
    outputs, gates, _ = engine_run(stream, x)
    error = np.abs(outputs - expected)
    assert 1e-5 < error.max() < 0.05  # close, but quantised
    assert error.mean() < 0.004
    exact = export_stream(layer, tmp_path).run(x)
    assert np.abs(exact - expected).max() < 1e-5
    schedule = layer.gates[0](torch.arange(1, 201)[:, None])[0].g[:, 0]
    assert np.array_equal(gates[0], schedule.detach().numpy())


# ---------------------------------------------------------------------------- streams


@pytest.mark.parametrize("simd", ["scalar", "generic", "avx2", "best"])
@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize("shape", ["unit", "eight", "sixteen"])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm", "alif_adapts_while_closed"])
def test_run_equals_single_steps_bit_for_bit(cell, shape, weights, simd, tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_SIMD", simd)
    gate = surnn.Rhythm(rate=0.4, horizon=20, **SHAPES[shape])
    single = export_stream(LAYERS[cell](21, 48, 2, gate=gate), tmp_path, weights)
    x = np.random.default_rng(0).normal(size=(70, 21))
    x[20:24], x[40] = x[19], np.nan  # a constant input, and NaN
    many = single.engine.stream()
    expected = np.array([single.step(frame) for frame in x])
    outputs = np.concatenate([many.run(part) for part in np.split(x, [1, 3, 36])])
    assert np.array_equal(outputs, expected, equal_nan=True)
    assert many.work == single.work
    assert many.clock == single.clock
    for layer in range(2):
        assert np.array_equal(many.gates(layer), single.gates(layer))
        assert np.array_equal(many.hidden(layer), single.hidden(layer), equal_nan=True)
    assert many.save() == single.save()


@pytest.mark.parametrize("gate", [surnn.Rhythm(horizon=16), surnn.FullGate(conv=2)])
def test_saved_streams_continue_exactly(gate, tmp_path):
    stream = export_stream(surnn.SuGRU(3, 16, 2, gate=gate), tmp_path)
    x = np.random.default_rng(0).normal(size=(60, 3))
    stream.run(x[:30])
    saved, twin, copied = stream.save(), stream.clone(), copy.deepcopy(stream)
    expected = stream.run(x[30:])
    assert np.array_equal(twin.run(x[30:]), expected)
    assert np.array_equal(copied.run(x[30:]), expected)
    with pytest.raises(TypeError, match="integer"):
        copied.clock = 1.5
    assert np.array_equal(stream.engine.stream().restore(saved).run(x[30:]), expected)
    fresh = stream.engine.stream().run(x)
    assert np.array_equal(stream.reset().run(x), fresh)
    assert np.array_equal(fresh[30:], expected)
    assert stream.clock == 60


def test_the_size_of_a_stream_is_constant(tmp_path):
    stream = export_stream(surnn.SuGRU(1, 8, gate="rhythm"), tmp_path)
    assert len(stream.save()) == stream.engine.saved_size == stream.engine.stream_size < 1500
    stream.run(np.zeros((100_000, 1)))
    assert len(stream.save()) == stream.engine.saved_size


def test_threads_give_the_same_results(tmp_path):
    stream = export_stream(surnn.SuGRU(2, 32, gate=surnn.Rhythm(granularity=16)), tmp_path)
    engine, x = stream.engine, np.random.default_rng(0).normal(size=(1000, 8, 2))
    with ThreadPoolExecutor(2) as pool:
        parallel = list(pool.map(lambda frames: engine.stream().run(frames), x))
    for frames, outputs in zip(x, parallel, strict=True):
        assert np.array_equal(outputs, stream.reset().run(frames))


def test_skipped_work_is_counted(tmp_path):
    rate = 0.25
    layer = surnn.SuGRU(4, 32, gate=surnn.Rhythm(rate=rate, horizon=400, granularity=16))
    stream = export_stream(layer, tmp_path)
    stream.run(np.random.default_rng(0).normal(size=(400, 4)))
    dense = 3 * 32 * (4 + 32)
    assert stream.engine.macs_per_step == dense
    assert stream.work.steps == 400
    assert stream.work.dense == 400 * dense
    assert stream.work.macs == pytest.approx(rate * 400 * dense, abs=2 * dense)
    assert stream.work.skipped == 1 - stream.work.macs / stream.work.dense
    schedule = layer.gates[0](torch.arange(1, 401)[:, None])[0].g
    assert stream.work.updates == 16 * schedule.sum()
    assert stream.work.dense_updates == 400 * 32
    before = stream.work
    stream.step(np.zeros(4))
    assert stream.work.since(before).dense_updates == 32
    assert stream.work.update_rate == pytest.approx(rate, abs=0.02)


def test_products_of_unchanged_inputs_are_reused(tmp_path):
    seldom = surnn.EveryN(10, granularity="layer")
    layer = surnn.SuGRU(4, 16, 2, gate=[seldom, surnn.AlwaysOpen()])
    stream = export_stream(layer, tmp_path)
    x = torch.randn(1, 4).expand(40, 4).contiguous()
    expected, _ = python_run(layer, x)
    assert np.abs(stream.run(x) - expected).max() < 1e-5
    per_product = 3 * 16 * 16
    second = 40 + 5  # its state at each time step; its input at first and after four updates
    first = 4 * per_product + 3 * 16 * 4  # the frame never changes
    assert stream.work.macs == second * per_product + first


def test_frames_with_equal_first_numbers_are_distinguished(tmp_path):
    x = torch.randn(20, 3)
    x[:, 0] = 1.0
    assert_same(surnn.SuGRU(3, 16, gate=surnn.AlwaysOpen()), tmp_path, x)


def test_rounding_errors_of_incremental_maps_are_removed(tmp_path):
    layer = surnn.SuRNN(2, 32, nonlinearity="relu", expand=2, gate=surnn.EveryN(8, staggered=True))
    torch.nn.init.zeros_(layer.weight_hh_l0)
    x = torch.randn(60, 2)
    x[10:14] *= 1e7  # leaves rounding errors of about 1 in sums of changes
    expected, _ = python_run(layer, x)
    stream = export_stream(layer, tmp_path)
    assert np.abs(stream.run(x) - expected)[-20:].max() < 1e-5
    assert stream.work.skipped > 0.5


def test_parts_of_a_gru_are_timed(tmp_path):
    stream = export_stream(surnn.SuGRU(2, 32, 2, gate=surnn.Rhythm(granularity=16)), tmp_path)
    x = np.random.default_rng(0).normal(size=(50, 2))
    out, seconds = stream.engine.time_parts(x)
    assert np.abs(out - stream.run(x)).max() < 1e-6
    assert set(seconds) == {"reset", "update", "candidate", "state", "rest", "clock"}
    assert all(value > 0 for value in seconds.values())
    other, before = stream.engine.time_parts(x, reset_before=True)
    assert np.array_equal(other, out)
    assert set(before) == set(seconds)
    assert np.array_equal(stream.engine.run_steps(x), stream.reset().run(x))
    single = export_stream(surnn.SuGRU(2, 8, gate="rhythm"), tmp_path)
    with pytest.raises(surnn.EngineError, match="6 units or more"):
        single.engine.time_parts(x)


def test_nan_reaches_only_open_units(tmp_path):
    layer = surnn.SuGRU(2, 8, gate=surnn.EveryN(2, granularity="layer"))
    x = torch.randn(6, 2)
    x[2] = float("nan")  # t = 3, closed
    assert_same(layer, tmp_path, x)
    layer_reading_input = surnn.SuGRU(2, 8, gate=surnn.InputGate(always_on=0.1))
    expected, _ = python_run(layer_reading_input, x)
    outputs = export_stream(layer_reading_input, tmp_path).run(x)
    assert np.array_equal(np.isnan(outputs), np.isnan(expected))
    assert np.isnan(outputs).any()
    assert not np.isnan(outputs).all()
    assert np.isnan(export_stream(layer, tmp_path, "int8").run(torch.full((4, 2), torch.nan))).any()


def test_the_library_is_built_from_these_sources():
    library, sources = surnn.deploy.engine.LIBRARY, surnn.deploy.engine.LIBRARY.parents[2] / "csrc"
    newest = max(os.path.getmtime(p) for p in sources.glob("*.[chi]*") if p.name != "main.c")
    assert library.stat().st_mtime >= newest, "make clean, or: pip install --editable ."


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(surnn.EngineError, match=f"surnn export {tmp_path} --to engine"):
        surnn.Engine(tmp_path)


@pytest.mark.parametrize("text", [b"ab\xff", bytearray(b"ab\xff")])
def test_models_of_bytes_take_bytes(tmp_path, text):
    def token_stream(count):
        config, output = ModelConfig(width=16, layers=1), Output(3, "sequence")
        return export_stream(
            SequenceModel(config, RhythmConfig(), Tokens(count), output, 8), tmp_path
        )

    stream = token_stream(256)
    expected = stream.run(np.array([97, 98, 255]))
    assert np.array_equal(stream.reset().run(text), expected)
    with pytest.raises(ValueError, match="300 tokens"):
        token_stream(300).run(text)
