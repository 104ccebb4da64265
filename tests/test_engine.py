"""The C engine against Python: the same numbers, the same gates, exact carries."""

import copy
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import surnn
from engines import assert_same, engine_run, loaded, python_run
from surnn.config import GateConfig, ModelConfig
from surnn.export.engine_file import EngineFile, Op
from surnn.models import SequenceModel
from surnn.tasks import Output, Tokens

LAYERS = {
    "rnn": surnn.SuRNN,
    "relu": lambda *a, **o: surnn.SuRNN(*a, nonlinearity="relu", **o),
    "gru": surnn.SuGRU,
    "lstm": surnn.SuLSTM,
    "alif": surnn.SuSNN,
    "lif": lambda *a, **o: surnn.SuSNN(*a, neuron="lif", tau_m=(2.0, 0.5), **o),
    "alif_goes_on": lambda *a, **o: surnn.SuSNN(*a, adaptation_goes_on=True, **o),
}
SHAPES = {
    "unit": {"granularity": "unit"},
    "eight": {"granularity": 8},
    "sixteen": {"granularity": 16},
    "heads": {"granularity": "head", "heads": 4},
    "across": {"granularity": 16, "heads": 2},  # groups and heads cut each other
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
    if gate == "warped":  # a clock that is really bent
        for each in layer.gates:
            torch.nn.init.normal_(each.speed)
    assert_same(layer, tmp_path, 2 * torch.randn(50, 5), t0)


@pytest.mark.parametrize("t0", [10**6, 10**9, 10**12])
@pytest.mark.parametrize("gate", [surnn.Rhythm(rate=0.3, horizon=64), surnn.Cycles()])
def test_a_clock_far_along_opens_the_same_gates(gate, t0, tmp_path):
    layer = surnn.SuGRU(1, 70, gate=gate, bias=False)
    _, gates, _ = engine_run(loaded(layer, tmp_path), torch.zeros(2000, 1), t0)
    t = torch.arange(t0 + 1, t0 + 2001)[:, None]
    assert np.array_equal(gates[0], layer.gates[0](t)[0].g[:, 0].detach().numpy())
    assert 0.05 < gates[0].mean() < 0.6


def test_cycles_that_make_no_sense_are_refused(tmp_path):
    def read(period, open_steps, shift):
        file, path = EngineFile(1, takes_tokens=False), tmp_path / "model.surnn"
        cycles = np.array([[5, period], [5, open_steps], [4, shift]], np.uint32)
        file.add(Op.GATE_CYCLES, 0, file.gate(), numbers=[2, 0], data=[cycles])
        path.write_bytes(file.to_bytes(output=0))
        return surnn.Engine(path)

    assert read(7, 7, 6).output_size == read(1, 0, 0).output_size == 1
    for wrong in ((0, 0, 0), (7, 8, 0), (7, 1, 7)):
        with pytest.raises(surnn.EngineError, match="contents contradict each other"):
            read(*wrong)


@pytest.mark.parametrize("heads", [1, 3])
def test_odd_sizes_and_expansion(heads, tmp_path):
    layer = surnn.SuGRU(7, 21, 2, heads=heads, expand=3, groups=7, gate="rhythm")
    assert_same(layer, tmp_path, torch.randn(30, 7))
    single = surnn.SuGRU(1, 1, gate=surnn.AlwaysOpen(), bias=False)
    assert_same(single, tmp_path, torch.randn(30, 1))


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN])
def test_layers_of_torch(kind, tmp_path):
    layer = kind(3, 20, 2)
    x = torch.randn(30, 3)
    with torch.no_grad():
        wanted = layer(x)[0].numpy()
    assert np.abs(loaded(layer, tmp_path).run(x) - wanted).max() < 1e-5


@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize("shape", ["unit", "eight", "sixteen"])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm", "alif"])
def test_instructions_agree(cell, shape, weights, tmp_path, monkeypatch):
    gate = surnn.Rhythm(rate=0.4, horizon=20, **SHAPES[shape])
    layer = LAYERS[cell](5, 48, 2, gate=gate)
    x = 2 * torch.randn(60, 5).numpy()
    results = {}
    for simd in ("scalar", "generic", "avx2", "best"):
        monkeypatch.setenv("SURNN_SIMD", simd)
        stream = loaded(layer, tmp_path, weights)
        results[stream.engine.simd] = stream.run(x)
    assert len(results) >= 2
    tolerance = 1e-5 if weights == "float32" else 5e-4  # a state may round to its neighbour
    for name, result in results.items():
        assert np.abs(result - results["scalar"]).max() < tolerance, name


def test_eight_bits_cost_little(tmp_path):
    layer = surnn.SuGRU(8, 64, 2, gate=surnn.Rhythm(rate=0.3, granularity=16, horizon=100))
    x = torch.randn(200, 8)
    whole, _ = python_run(layer, x)
    stream = loaded(layer, tmp_path, "int8")
    got, gates, _ = engine_run(stream, x)
    error = np.abs(got - whole)
    assert 1e-5 < error.max() < 0.05  # it is not the same thing, but close
    assert error.mean() < 0.004
    exact = loaded(layer, tmp_path).run(x)
    assert np.abs(exact - whole).max() < 1e-5
    schedule = layer.gates[0](torch.arange(1, 201)[:, None])[0].g[:, 0]
    assert np.array_equal(gates[0], schedule.detach().numpy())


# ---------------------------------------------------------------------------- streams


@pytest.mark.parametrize("simd", ["scalar", "generic", "avx2", "best"])
@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize("shape", ["unit", "eight", "sixteen"])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm", "alif_goes_on"])
def test_many_steps_at_once_are_the_same_bit_for_bit(
    cell, shape, weights, simd, tmp_path, monkeypatch
):
    monkeypatch.setenv("SURNN_SIMD", simd)
    gate = surnn.Rhythm(rate=0.4, horizon=20, **SHAPES[shape])
    single = loaded(LAYERS[cell](21, 48, 2, gate=gate), tmp_path, weights)
    x = np.random.default_rng(0).normal(size=(70, 21))
    x[20:24], x[40] = x[19], np.nan  # a frame that stays, and one that is none
    many = single.engine.stream()
    wanted = np.array([single.step(frame) for frame in x])
    found = np.concatenate([many.run(part) for part in np.split(x, [1, 3, 36])])
    assert np.array_equal(found, wanted, equal_nan=True)
    assert many.work == single.work
    assert many.clock == single.clock
    for layer in range(2):
        assert np.array_equal(many.gates(layer), single.gates(layer))
        assert np.array_equal(many.hidden(layer), single.hidden(layer), equal_nan=True)
    assert many.save() == single.save()


@pytest.mark.parametrize("gate", [surnn.Rhythm(horizon=16), surnn.SSMGate()])
def test_saved_streams_go_on_exactly(gate, tmp_path):
    stream = loaded(surnn.SuGRU(3, 16, 2, gate=gate), tmp_path)
    x = np.random.default_rng(0).normal(size=(60, 3))
    stream.run(x[:30])
    saved, twin, copied = stream.save(), stream.clone(), copy.deepcopy(stream)
    wanted = stream.run(x[30:])
    assert np.array_equal(twin.run(x[30:]), wanted)
    assert np.array_equal(copied.run(x[30:]), wanted)
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        copied.clock = 1.5
    assert np.array_equal(stream.engine.stream().restore(saved).run(x[30:]), wanted)
    fresh = stream.engine.stream().run(x)
    assert np.array_equal(stream.reset().run(x), fresh)
    assert np.array_equal(fresh[30:], wanted)
    assert stream.clock == 60


def test_a_stream_has_one_size_for_ever(tmp_path):
    stream = loaded(surnn.SuGRU(1, 8, gate="rhythm"), tmp_path)
    assert len(stream.save()) == stream.engine.saved_size < stream.engine.stream_size < 30_000
    stream.run(np.zeros((100_000, 1)))
    assert len(stream.save()) == stream.engine.saved_size


def test_streams_on_threads_equal_one_after_another(tmp_path):
    stream = loaded(surnn.SuGRU(2, 32, gate=surnn.Rhythm(granularity=16)), tmp_path)
    engine, x = stream.engine, np.random.default_rng(0).normal(size=(1000, 8, 2))
    with ThreadPoolExecutor(2) as pool:
        parallel = list(pool.map(lambda frames: engine.stream().run(frames), x))
    for frames, got in zip(x, parallel, strict=True):
        assert np.array_equal(got, stream.reset().run(frames))


def test_work_is_counted_and_skipped(tmp_path):
    rate = 0.25
    layer = surnn.SuGRU(4, 32, gate=surnn.Rhythm(rate=rate, horizon=400, granularity=16))
    stream = loaded(layer, tmp_path)
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


def test_what_did_not_change_is_not_computed_again(tmp_path):
    seldom = surnn.EveryN(10, granularity="layer")
    layer = surnn.SuGRU(4, 16, 2, gate=[seldom, surnn.AlwaysOpen()])
    stream = loaded(layer, tmp_path)
    x = torch.randn(1, 4).expand(40, 4).contiguous()
    wanted, _ = python_run(layer, x)
    assert np.abs(stream.run(x) - wanted).max() < 1e-5
    per_product = 3 * 16 * 16
    second = 40 + 5  # each step its own state; its input at the first step and after four updates
    first = 4 * per_product + 3 * 16 * 4  # the same frame all along
    assert stream.work.macs == second * per_product + first


def test_frames_that_begin_alike_are_told_apart(tmp_path):
    x = torch.randn(20, 3)
    x[:, 0] = 1.0
    assert_same(surnn.SuGRU(3, 16, gate=surnn.AlwaysOpen()), tmp_path, x)


def test_errors_of_added_changes_are_swept_out(tmp_path):
    layer = surnn.SuRNN(2, 32, nonlinearity="relu", expand=2, gate=surnn.EveryN(8, staggered=True))
    torch.nn.init.zeros_(layer.weight_hh_l0)
    x = torch.randn(60, 2)
    x[10:14] *= 1e7  # leaves rounding errors of about 1 in sums of changes
    wanted, _ = python_run(layer, x)
    stream = loaded(layer, tmp_path)
    assert np.abs(stream.run(x) - wanted)[-20:].max() < 1e-5
    assert stream.work.skipped > 0.5


def test_parts_of_a_gru_are_timed_apart(tmp_path):
    stream = loaded(surnn.SuGRU(2, 32, 2, gate=surnn.Rhythm(granularity=16)), tmp_path)
    x = np.random.default_rng(0).normal(size=(50, 2))
    out, seconds = stream.engine.time_parts(x)
    assert np.abs(out - stream.run(x)).max() < 1e-6
    assert set(seconds) == {"reset", "update", "candidate", "state", "rest", "clock"}
    assert all(0 < value < 60 for value in seconds.values())
    other, before = stream.engine.time_parts(x, reset_before=True)
    assert np.array_equal(other, out)
    assert set(before) == set(seconds)
    assert np.array_equal(stream.engine.run_steps(x), stream.reset().run(x))
    single = loaded(surnn.SuGRU(2, 8, gate="rhythm"), tmp_path)
    with pytest.raises(surnn.EngineError, match="shared by 4 units or more"):
        single.engine.time_parts(x)


def test_not_a_number_reaches_open_units_only(tmp_path):
    layer = surnn.SuGRU(2, 8, gate=surnn.EveryN(2, granularity="layer"))
    x = torch.randn(6, 2)
    x[2] = float("nan")  # t = 3, closed
    assert_same(layer, tmp_path, x)
    seeing = surnn.SuGRU(2, 8, gate=surnn.InputGate(always_on=0.1))
    wanted, _ = python_run(seeing, x)
    got = loaded(seeing, tmp_path).run(x)
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    assert np.isnan(got).any()
    assert not np.isnan(got).all()
    assert np.isnan(loaded(layer, tmp_path, "int8").run(torch.full((4, 2), torch.nan))).any()


def test_the_library_is_the_one_of_these_sources():
    library, sources = surnn.engine.LIBRARY, surnn.engine.LIBRARY.parents[2] / "csrc"
    newest = max(os.path.getmtime(p) for p in sources.glob("*.[chi]*") if p.name != "main.c")
    assert library.stat().st_mtime >= newest, "make clean, or: pip install --editable ."


def test_a_folder_is_no_engine(tmp_path):
    with pytest.raises(surnn.EngineError, match=f"surnn export {tmp_path} --to engine"):
        surnn.Engine(tmp_path)


@pytest.mark.parametrize("text", [b"ab\xff", bytearray(b"ab\xff")])
def test_bytes_are_tokens_of_models_of_bytes(tmp_path, text):
    def of_tokens(count):
        sizes, wanted = ModelConfig(width=16, layers=1), Output(3, "sequence")
        return loaded(SequenceModel(sizes, GateConfig(), Tokens(count), wanted, 8), tmp_path)

    stream = of_tokens(256)
    expected = stream.run(np.array([97, 98, 255]))
    assert np.array_equal(stream.reset().run(text), expected)
    with pytest.raises(ValueError, match="300 tokens are no bytes"):
        of_tokens(300).run(text)
