"""Frames of a wrong shape, and the files that the engine reads."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import surnn
from helpers.engines import export_stream
from surnn.config import ModelConfig, RhythmConfig
from surnn.deploy.export.engine_file import EngineFile, Op
from surnn.models.model import SequenceModel
from surnn.tasks import Output, Tokens


def test_misshapen_frames_are_refused_by_every_call(tmp_path):
    engine = export_stream(surnn.SuGRU(3, 16, gate=surnn.Rhythm(granularity=16)), tmp_path).engine
    for name in ("run_steps", "time_steps", "time_parts"):
        for shape in ((3, 4), (12,), (2, 2, 3), (0, 4)):
            with pytest.raises(ValueError, match="frames of 3 numbers"):
                getattr(engine, name)(np.zeros(shape))
    assert engine.run_steps(np.zeros((4, 3))).shape == (4, 16)
    assert engine.time_steps(np.zeros((4, 3)), clock=100).shape == (4,)
    config = ModelConfig(width=16, layers=1)
    model = SequenceModel(config, RhythmConfig(), Tokens(5), Output(3, "step"), 8)
    tokens = export_stream(model, tmp_path).engine
    with pytest.raises(surnn.EngineError, match="takes tokens"):
        tokens.run_steps(np.zeros((4, 1)))


@pytest.mark.parametrize(
    "frame", [[1j, 0, 0], ["1", "2", "3"], [None, 1, 2], np.array([1, 2, 3], "M8[s]")], ids=str
)
def test_what_is_no_real_number_is_refused(frame, tmp_path):
    """numpy makes NaN of None and numbers of texts and dates, and drops imaginary parts."""
    stream = export_stream(surnn.SuGRU(3, 8), tmp_path)
    for call, frames in (
        (stream.step, frame),
        (stream.run, [frame]),
        (stream.engine.run_steps, [frame]),
    ):
        with pytest.raises(ValueError, match="frames of real numbers"):
            call(frames)
    assert stream.clock == 0


@pytest.mark.parametrize("clock", [-1, (1 << 50) + 1, 1 << 64, (1 << 64) + 5])
def test_clocks_of_benchmarks_are_not_cut_off(clock, tmp_path):
    """ctypes keeps the lower 64 bits: 2^64 + 5 would be 5."""
    engine = export_stream(surnn.SuGRU(3, 16, gate=surnn.Rhythm(granularity=16)), tmp_path).engine
    for name in ("run_steps", "time_steps", "time_parts"):
        with pytest.raises(surnn.EngineError, match=f"got {clock}"):
            getattr(engine, name)(np.zeros((2, 3)), clock=clock)
    with pytest.raises(surnn.EngineError, match=f"got {clock}"):
        engine.time_streams(np.zeros((2, 1, 3)), True, clock=clock)


@pytest.mark.parametrize("map", [None, False])
def test_a_loaded_model_does_not_need_its_file(map, tmp_path):
    layer, path = surnn.SuGRU(3, 64, gate="rhythm"), tmp_path / "model.surnn"
    expected = export_stream(layer, tmp_path).run(np.ones((5, 3)))
    engine = surnn.Engine(path, map=map)
    path.write_bytes(b"")  # a mapped file would end the process here
    assert np.array_equal(engine.stream().run(np.ones((5, 3))), expected)


def test_a_file_can_be_mapped(tmp_path):
    layer, path = surnn.SuGRU(3, 64, gate="rhythm"), tmp_path / "model.surnn"
    expected = export_stream(layer, tmp_path).run(np.ones((5, 3)))
    assert np.array_equal(surnn.Engine(path, map=True).stream().run(np.ones((5, 3))), expected)


def test_small_files_cannot_ask_for_much_memory(tmp_path):
    for size in (1 << 20, 1 << 23):  # below and above the limit of any file
        file, path = EngineFile(size, takes_tokens=False), tmp_path / f"{size}.surnn"
        out = file.add(Op.GELU, 0, file.vector(size))
        path.write_bytes(file.to_bytes(out))
        assert path.stat().st_size < 1000
        with pytest.raises(surnn.EngineError, match=r"more memory.*max_memory"):
            surnn.Engine(path)
        engine = surnn.Engine(path, max_memory=1 << 31)
        needed = engine.stream_size + engine.workspace_size
        assert (1 << 26 < needed < 1 << 30) == (size == 1 << 20)
    small = export_stream(surnn.SuGRU(3, 64), tmp_path).engine
    needed = small.stream_size + small.workspace_size
    with pytest.raises(surnn.EngineError, match="more memory"):
        surnn.Engine(small.path, max_memory=needed // 2)
    assert surnn.Engine(small.path, max_memory=needed).layers == 1
    with pytest.raises(ValueError, match="positive number of bytes, got 0"):
        surnn.Engine(small.path, max_memory=0)


def test_headers_cannot_ask_for_more_records_than_the_file_holds(tmp_path):
    path = export_stream(surnn.SuGRU(3, 8), tmp_path).engine.path
    content = bytearray(path.read_bytes())
    for at in (24, 28, 32):  # operations, vectors, sets of gates
        hostile = bytearray(content)
        struct.pack_into("<I", hostile, at, 1 << 14)
        struct.pack_into("<I", hostile, 12, zlib.crc32(hostile[16:]))
        path.write_bytes(hostile)
        with pytest.raises(surnn.EngineError, match="contradict"):
            surnn.Engine(path)


GOLDEN = Path(__file__).with_name("golden")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.surnn")), ids=lambda path: path.stem)
def test_files_of_version_0_1_compute_the_same(path):
    """Files and predictions that version 0.1.0 wrote, from t = 0 and then from t = 10^9."""
    frames, expected = np.load(GOLDEN / "frames.npy"), np.load(path.with_suffix(".npy"))
    stream = surnn.Engine(path).stream()
    for clock, outputs in zip((0, 10**9), expected, strict=True):
        stream.clock = clock
        tolerance = 5e-4 if "int8" in path.stem else 1e-5
        assert np.abs(stream.run(frames) - outputs).max() < tolerance
    assert np.ptp(expected) > 0.1
