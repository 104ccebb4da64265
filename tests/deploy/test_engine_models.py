"""Whole models in the engine: encoders, blocks, norms, readouts; C without Python; errors."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import surnn
from helpers.engines import export_stream
from helpers.paths import ROOT
from surnn.config import FullGateConfig, InputGateConfig, ModelConfig, RhythmConfig, SSMGateConfig
from surnn.deploy.engine import EngineError
from surnn.deploy.export import to_c_folder, to_engine
from surnn.deploy.export.engine_file import EngineFile, Op
from surnn.models.model import SequenceModel
from surnn.tasks import Output, Tokens, Values

SOURCES = ROOT / "csrc"


def build(inputs=Values(3), output=Output(5, "sequence"), gate=RhythmConfig(rate=0.4), **options):  # noqa: B008
    sizes = {} if "widths" in options else {"width": 32}
    model = SequenceModel(
        ModelConfig(**{**sizes, **options}), gate, inputs, output, steps=20
    ).eval()
    for module in model.modules():  # no parameter keeps its neutral value
        if isinstance(module, nn.BatchNorm1d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
        if isinstance(module, nn.BatchNorm1d | nn.LayerNorm | nn.RMSNorm):
            nn.init.normal_(module.weight)
    return model


def assert_streams(model, folder, x, tolerance=1e-5, weights="float32"):
    """Predictions after every time step agree with Python."""
    stream = export_stream(model, folder, weights)
    state, expected = model.init_state(1), []
    with torch.no_grad():
        for frame in x:
            y, state = model.step(frame[None], state)
            expected.append(y[0].numpy())
    outputs = stream.run(x.numpy())
    assert np.abs(outputs - np.array(expected)).max() < tolerance
    assert np.ptp(expected, 0).max() > 0.01  # predictions vary
    return stream


@pytest.mark.parametrize("block", ["residual", "feedforward", "stack"])
@pytest.mark.parametrize("kind", ["sugru", "sulstm", "surnn", "susnn", "gru", "lstm", "rnn"])
def test_kinds_in_blocks(kind, block, tmp_path):
    gate = RhythmConfig(rate=0.4) if kind.startswith("su") else RhythmConfig()
    assert_streams(build(kind=kind, block=block, gate=gate), tmp_path, torch.randn(25, 3))


def test_incremental_maps_do_not_drift(tmp_path):
    model, x = build(output=Output(5, "step")), torch.randn(2000, 3)
    x[700] *= 1e6  # a large change, and back
    stream = export_stream(model, tmp_path)
    with torch.no_grad():
        expected = model(x[None])[0].numpy()
    assert np.abs(stream.run(x) - expected).max() < 1e-5
    assert 0.3 < stream.work.skipped < 0.7  # linear maps skip work too: gates are open at 0.4


@pytest.mark.parametrize("prenorm", [True, False])
@pytest.mark.parametrize("norm", ["layer", "batch", "rms"])
@pytest.mark.parametrize("block", ["residual", "feedforward"])
def test_norms(block, norm, prenorm, tmp_path):
    assert_streams(build(block=block, norm=norm, prenorm=prenorm), tmp_path, torch.randn(25, 3))


@pytest.mark.parametrize("glu", ["sigmoid", "gelu", "silu", "none"])
@pytest.mark.parametrize("simd", ["scalar", "generic", "avx2", "best"])
def test_gated_outputs(glu, simd, tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_SIMD", simd)
    assert_streams(build(glu=glu, width=36), tmp_path, torch.randn(25, 3))


@pytest.mark.parametrize(
    "options",
    [
        {"pool": "mean"},
        {"pool": "mean", "output": Output(5, "step")},
        {"expand": 2},
        {"expand": 2, "groups": 4},
        {"block": "feedforward", "feedforward": 50, "expand": 2},
        {"block": "stack", "widths": (16, 24, 8)},
        {"gate": InputGateConfig(source="input"), "block": "stack"},
        {"gate": SSMGateConfig(), "heads": 2},
        {"gate": FullGateConfig(conv=2), "heads": 2},
        {"gate": FullGateConfig(conv=2, hidden=5), "heads": 2},
        {"gate": RhythmConfig(granularity=16), "heads": 1, "block": "stack"},
    ],
)
def test_options(options, tmp_path):
    assert_streams(build(**options), tmp_path, torch.randn(25, 3))


@pytest.mark.parametrize("block", ["residual", "stack"])
def test_tokens(block, tmp_path):
    tokens = torch.randint(0, 7, (25,))
    stream = assert_streams(build(Tokens(7), block=block), tmp_path, tokens)
    with pytest.raises(ValueError, match=r"tokens are from 0 to 6, got 3\.\.7"):
        stream.run([3, 7])
    with pytest.raises(ValueError, match="takes tokens, integers below 7"):
        stream.run([[1.0]])


@pytest.mark.parametrize("block", ["residual", "feedforward"])
def test_int8_in_blocks(block, tmp_path):
    model, x = build(block=block), torch.randn(60, 3)
    stream = assert_streams(model, tmp_path, x, 0.1, "int8")
    size = (tmp_path / "model.surnn").stat().st_size
    exact = export_stream(model, tmp_path)  # replaces the file; the first stream still runs
    assert np.abs(stream.reset().run(x) - exact.run(x)).mean() < 0.02
    assert size < 0.75 * (tmp_path / "model.surnn").stat().st_size


# ---------------------------------------------------------------------------- convolutions


@pytest.mark.parametrize(("weights", "tolerance"), [("float32", 1e-5), ("int8", 0.1)])
@pytest.mark.parametrize("block", ["residual", "feedforward"])
@pytest.mark.parametrize(("kind", "taps"), [("sugru", 4), ("sulstm", 2), ("gru", 3), ("surnn", 5)])
def test_convolutions(kind, taps, block, weights, tolerance, tmp_path):
    gate = RhythmConfig(rate=0.4) if kind.startswith("su") else RhythmConfig()
    model = build(kind=kind, block=block, gate=gate, convolution=taps)
    x = torch.randn(40, 3)
    x[10:20] = x[9]  # a constant input
    assert_streams(model, tmp_path, x, tolerance, weights)


@pytest.mark.parametrize(
    "options",
    [
        {"expand": 2, "prenorm": False},
        {"gate": InputGateConfig(), "norm": "batch"},
        {"gate": SSMGateConfig(), "pool": "mean"},
        {"kind": "susnn"},
    ],
)
def test_convolutions_with_options(options, tmp_path):
    model = build(Tokens(7), convolution=3, **options)
    assert_streams(model, tmp_path, torch.randint(0, 7, (25,)))


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_streams_have_separate_convolution_states(weights, tmp_path):
    one = export_stream(build(convolution=4), tmp_path, weights)
    other, x = one.engine.stream(), np.random.default_rng(0).normal(size=(2, 40, 3))
    x[0, 5:14] = x[0, 4]
    expected = [one.engine.stream().run(frames) for frames in x]
    assert np.abs(expected[0] - expected[1]).max() > 0.01
    for t in range(20):
        assert np.array_equal(one.step(x[0, t]), expected[0][t])
        assert np.array_equal(other.step(x[1, t]), expected[1][t])
    assert np.array_equal(one.clone().run(x[0, 20:]), expected[0][20:])
    one.restore(other.save())
    assert np.array_equal(one.run(x[1, 20:]), expected[1][20:])
    assert np.array_equal(other.reset().run(x[0]), expected[0])
    one.reset()
    parts = [one.run(part) for part in np.split(x[0], [3, 4])]
    assert np.array_equal(np.concatenate(parts), expected[0])
    assert one.save() == other.save()


def test_a_convolution_of_constant_inputs_is_skipped(tmp_path):
    taps, steps, width = 3, 40, 32
    model = build(kind="gru", gate=RhythmConfig(), layers=1, block="feedforward", convolution=taps)
    stream = assert_streams(model, tmp_path, torch.randn(3).expand(steps, 3))
    products, sums = 3 * width * width, taps * width
    rest = 2 * width * 4 * width + 5 * width  # operations after the layer, which always updates
    assert stream.engine.macs_per_step == 3 * width + sums + 2 * products + rest
    assert stream.work.macs == 3 * width + taps * (sums + products) + steps * (products + rest)


def test_a_convolution_from_a_file(tmp_path):
    def stream_of(kind, taps, size):
        file, path = EngineFile(3, takes_tokens=False), tmp_path / "model.surnn"
        weights = np.arange(6, dtype=np.float32).reshape(2, 3)
        out = file.add(kind, 0, file.vector(size), numbers=[taps], data=[weights])
        path.write_bytes(file.to_bytes(out))
        return surnn.Engine(path).stream()

    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    before = np.pad(x[:-1], ((1, 0), (0, 0)))
    close = {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(
        stream_of(Op.CONVOLVE, 2, 3).run(x), [0, 1, 2] * before + [3, 4, 5] * x, **close
    )
    np.testing.assert_allclose(stream_of(Op.CONVOLVE, 1, 3).run(x), [0, 1, 2] * x, **close)
    unknown = max(Op) + 1
    for arguments in ((Op.CONVOLVE, 0, 3), (Op.CONVOLVE, 2**32 - 1, 3), (Op.CONVOLVE, 2, 4),
                  (unknown, 2, 3)):  # fmt: skip
        with pytest.raises(EngineError, match="contradict"):
            stream_of(*arguments)


# ---------------------------------------------------------------------------- C without Python


@contextmanager
def _unreadable(folder: Path) -> Iterator[int]:
    """A file whose reading fails: a folder."""
    number = os.open(folder, os.O_RDONLY)
    try:
        yield number
    finally:
        os.close(number)


STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_c_folder_builds_and_agrees(tmp_path):
    model = build(convolution=3)
    x = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    folder = to_c_folder(model, tmp_path / "c")
    program = tmp_path / "program"
    sources = [folder / "main.c", *sorted(folder.glob("src/*.c"))]
    command = ["cc", *STRICT, "-I", folder / "src", *sources, "-lm", "-o", program]
    subprocess.run(command, check=True)
    text = "\n".join(" ".join(f"{v:.9g}" for v in frame) for frame in x)

    def run(text, *arguments):
        return subprocess.run(
            [program, *arguments], input=text, capture_output=True, text=True, check=False
        )

    done = run(text, "--work")
    outputs = np.array([[float(v) for v in line.split()] for line in done.stdout.splitlines()])
    assert np.abs(outputs - export_stream(model, tmp_path).run(x)).max() < 1e-6
    assert "10 steps" in done.stderr
    assert "% of the work skipped, " in done.stderr
    assert "% of updates done" in done.stderr
    assert "usage" in run("", "--help").stdout
    assert run("", "--what").returncode == 2
    assert "2 of 3 numbers" in run("1 2").stderr
    assert "has x where a number" in run("1 x").stderr
    zeros = "0" * 100
    long = run(f"0.5{zeros} -1.25{zeros} {zeros}2.0625")
    assert long.stdout == run("0.5 -1.25 2.0625").stdout
    assert len(long.stdout.splitlines()) == 1
    endless = run("1 " + "1" * 5000)
    assert endless.returncode == 1
    assert "more than 4000 characters: 1111" in endless.stderr
    for text, reason in (  # a zero byte ends a text in C; 1e39 would be infinite
        ("1 2\0 3", r"has 2? where a number"), ("1 1e39 2", "1e39, which is too large for float32"),
    ):  # fmt: skip
        assert run(text).returncode == 1
        assert reason in run(text).stderr
    assert run("0.5 inf 1").returncode == 0
    if Path("/dev/full").exists():
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [program],
                input="1 2 3",
                text=True,
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert (done.returncode, "cannot be written" in done.stderr) == (1, True)
    with _unreadable(tmp_path) as broken:
        done = subprocess.run([program], stdin=broken, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the input cannot be read" in done.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_example_in_the_header_runs(tmp_path):
    """Linked with the library that Python loads, and built from source."""
    header = (SOURCES / "surnn.h").read_text()
    example = header[header.index(" *     #include <surnn.h>") : header.index(" * Build it with")]
    code = tmp_path / "example.c"
    code.write_text("\n".join(line[7:] for line in example.splitlines()) + "\n")
    library = surnn.deploy.engine.LIBRARY
    linked = [library, f"-Wl,-rpath,{library.parent}", "-o", tmp_path / "example"]
    subprocess.run(["cc", *STRICT, "-I", SOURCES, code, *linked], check=True)

    def run():
        return subprocess.run(
            [tmp_path / "example"], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert "model.surnn: the file cannot be opened" in run().stderr
    (tmp_path / "csrc").symlink_to(SOURCES)
    build = re.search(r"but main.c: (cc .*?);", header, re.DOTALL)[1].replace("\n *", "")
    subprocess.run(f"{build} -o from_source", shell=True, cwd=tmp_path, check=True)
    export_stream(surnn.SuGRU(3, 200, gate=surnn.AlwaysOpen()), tmp_path)  # writes model.surnn
    assert run().stdout.startswith("after the first frame: ")


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_cmake_takes_the_version_of_the_package(tmp_path):
    subprocess.run(["cmake", "-S", ROOT, "-B", tmp_path], check=True, stdout=subprocess.DEVNULL)
    cache = (tmp_path / "CMakeCache.txt").read_text()
    assert f"CMAKE_PROJECT_VERSION:STATIC={surnn.__version__}\n" in cache


# ---------------------------------------------------------------------------- errors


class Weekend(surnn.Gate):
    def preactivation(self, t, x, memory):
        return (t % 7 >= 5).double().unsqueeze(-1) - 0.5, memory


def test_unsupported_models_are_refused_with_a_reason(tmp_path):
    path = tmp_path / "no.surnn"
    for kind in ("s4d", "mingru"):
        with pytest.raises(TypeError, match=r"the engine runs RNNs.*export --to onnx"):
            to_engine(build(kind=kind, gate=RhythmConfig()), path)
    with pytest.raises(TypeError, match=r"not Attention; .*it streams in Python only"):
        to_engine(build(kind="transformer", gate=RhythmConfig()), path)  # no format takes it
    with pytest.raises(ValueError, match="cannot stream; use bidirectional=False"):
        to_engine(surnn.SuGRU(1, 4, bidirectional=True), path)
    with pytest.raises(ValueError, match="a soft gate is never 0; train with mode='hard'"):
        to_engine(surnn.SuGRU(1, 4, gate=surnn.Rhythm(mode="soft")), path)
    with pytest.raises(TypeError, match="does not know the gate Weekend"):
        to_engine(surnn.SuGRU(1, 4, gate=Weekend()), path)
    with pytest.raises(TypeError, match="both documents"):
        to_engine(build(output=Output(2, "sequence", pairs=True)), path)
    with pytest.raises(ValueError, match="'float32' or 'int8', got 'int4'"):
        to_engine(surnn.SuGRU(1, 4), path, weights="int4")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="MaxPool1d is not among the modules"):
        to_engine(nn.MaxPool1d(2), path)
    assert not path.exists()


def test_engine_errors(tmp_path):
    stream = export_stream(surnn.SuGRU(3, 8), tmp_path)
    whole = (tmp_path / "model.surnn").read_bytes()
    with pytest.raises(ValueError, match=r"frames of 3 numbers.*got \[1, 2\]"):
        stream.step([1.0, 2.0])
    with pytest.raises(EngineError, match=r"from 0 to 2\^50 time steps, got -1"):
        stream.clock = -1
    with pytest.raises(EngineError, match="layer 1 of 1"):
        stream.gates(1)
    with pytest.raises(EngineError, match="saved stream"):
        stream.restore(bytes(stream.engine.saved_size))
    with pytest.raises(EngineError, match="saved stream"):
        stream.restore(stream.save()[:-1])
    for content, message in (
        (b"", "not a surnn engine file"),
        (b"PK" + whole[2:], "not a surnn engine file"),
        (whole[:8] + b"\x03" + whole[9:], "version of the format"),
        (whole[:-1], "cut off"),
        (whole + b"\0", "added to"),
        (whole[:-200] + bytes([whole[-200] ^ 1]) + whole[-199:], "checksum"),
    ):
        bad = tmp_path / "bad.surnn"
        bad.write_bytes(content)
        with pytest.raises(EngineError, match=f"bad.surnn: .*{message}"):
            surnn.Engine(bad)
    with pytest.raises(EngineError, match="cannot be opened or read") as raised:
        surnn.Engine(tmp_path / "none.surnn")
    assert isinstance(raised.value, surnn.SurnnError)
    assert isinstance(raised.value, RuntimeError)


def test_surnn_works_without_the_library(tmp_path):
    export_stream(surnn.SuGRU(3, 8), tmp_path)
    code = (
        "import surnn, pathlib, surnn.deploy.engine_library as e\n"
        "e.LIBRARY = pathlib.Path('nowhere/libsurnn.so')\n"
        "print(surnn.SuGRU(1, 4))\n"
        f"surnn.Engine({str(tmp_path / 'model.surnn')!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "SuGRU(" in done.stdout
    assert "libsurnn.so is missing" in done.stderr
    assert "C compiler" in done.stderr
