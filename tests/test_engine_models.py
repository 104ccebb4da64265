"""Whole models in the engine: encoders, blocks, norms, heads; and what it refuses."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import surnn
from engines import loaded
from surnn.config import GateConfig, ModelConfig
from surnn.engine import EngineError
from surnn.export import to_c_folder, to_engine
from surnn.export.engine_file import EngineFile, Op
from surnn.models import SequenceModel
from surnn.tasks import Output, Tokens, Values

SOURCES = Path(__file__).parents[1] / "csrc"


def build(given=Values(3), wanted=Output(5, "sequence"), gate=GateConfig(rate=0.4), **options):  # noqa: B008
    sizes = {} if "widths" in options else {"width": 32}
    model = SequenceModel(ModelConfig(**{**sizes, **options}), gate, given, wanted, steps=20).eval()
    for module in model.modules():  # nothing at its neutral value
        if isinstance(module, nn.BatchNorm1d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
        if isinstance(module, nn.BatchNorm1d | nn.LayerNorm | nn.RMSNorm):
            nn.init.normal_(module.weight)
    return model


def assert_streams(model, folder, x, tolerance=1e-5, weights="float32"):
    """Predictions after every step are Python's."""
    stream = loaded(model, folder, weights)
    state, wanted = model.init_state(1), []
    with torch.no_grad():
        for frame in x:
            y, state = model.step(frame[None], state)
            wanted.append(y[0].numpy())
    got = stream.run(x.numpy())
    assert np.abs(got - np.array(wanted)).max() < tolerance
    assert np.ptp(wanted, 0).max() > 0.01  # they are not all the same
    return stream


@pytest.mark.parametrize("block", ["residual", "feedforward", "stack"])
@pytest.mark.parametrize("kind", ["sugru", "sulstm", "surnn", "susnn", "gru", "lstm", "rnn"])
def test_kinds_in_blocks(kind, block, tmp_path):
    gate = GateConfig(rate=0.4) if kind.startswith("su") else GateConfig()
    assert_streams(build(kind=kind, block=block, gate=gate), tmp_path, torch.randn(25, 3))


def test_changes_that_are_added_up_do_not_drift(tmp_path):
    model, x = build(wanted=Output(5, "step")), torch.randn(2000, 3)
    x[700] *= 1e6  # a large change, and back
    stream = loaded(model, tmp_path)
    with torch.no_grad():
        wanted = model(x[None])[0].numpy()
    assert np.abs(stream.run(x) - wanted).max() < 1e-5
    assert 0.3 < stream.work.skipped < 0.7  # blocks' linear maps too: gates are open at 0.4


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
        {"pool": "mean", "wanted": Output(5, "step")},
        {"expand": 2},
        {"expand": 2, "groups": 4},
        {"block": "feedforward", "feedforward": 50, "expand": 2},
        {"block": "stack", "widths": (16, 24, 8)},
        {"gate": GateConfig("input", source="input"), "block": "stack"},
        {"gate": GateConfig("ssm"), "heads": 2},
        {"gate": GateConfig("rhythm", granularity=16), "heads": 1, "block": "stack"},
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
def test_eight_bits_in_blocks(block, tmp_path):
    model, x = build(block=block), torch.randn(60, 3)
    stream = assert_streams(model, tmp_path, x, 0.1, "int8")
    size = (tmp_path / "model.surnn").stat().st_size
    exact = loaded(model, tmp_path)  # another file of the same name: the first goes on unharmed
    assert np.abs(stream.reset().run(x) - exact.run(x)).mean() < 0.02
    assert size < 0.75 * (tmp_path / "model.surnn").stat().st_size


# ---------------------------------------------------------------------------- convolutions


@pytest.mark.parametrize(("weights", "tolerance"), [("float32", 1e-5), ("int8", 0.1)])
@pytest.mark.parametrize("block", ["residual", "feedforward"])
@pytest.mark.parametrize(("kind", "taps"), [("sugru", 4), ("sulstm", 2), ("gru", 3), ("surnn", 5)])
def test_convolutions(kind, taps, block, weights, tolerance, tmp_path):
    gate = GateConfig(rate=0.4) if kind.startswith("su") else GateConfig()
    model = build(kind=kind, block=block, gate=gate, convolution=taps)
    x = torch.randn(40, 3)
    x[10:20] = x[9]  # a frame that stays
    assert_streams(model, tmp_path, x, tolerance, weights)


@pytest.mark.parametrize(
    "options",
    [
        {"expand": 2, "prenorm": False},
        {"gate": GateConfig("input"), "norm": "batch"},
        {"gate": GateConfig("ssm"), "pool": "mean"},
        {"kind": "susnn"},
    ],
)
def test_convolutions_with_options(options, tmp_path):
    model = build(Tokens(7), convolution=3, **options)
    assert_streams(model, tmp_path, torch.randint(0, 7, (25,)))


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_streams_keep_their_own_inputs_of_a_convolution(weights, tmp_path):
    one = loaded(build(convolution=4), tmp_path, weights)
    other, x = one.engine.stream(), np.random.default_rng(0).normal(size=(2, 40, 3))
    x[0, 5:14] = x[0, 4]
    wanted = [one.engine.stream().run(frames) for frames in x]
    assert np.abs(wanted[0] - wanted[1]).max() > 0.01
    for t in range(20):
        assert np.array_equal(one.step(x[0, t]), wanted[0][t])
        assert np.array_equal(other.step(x[1, t]), wanted[1][t])
    assert np.array_equal(one.clone().run(x[0, 20:]), wanted[0][20:])
    one.restore(other.save())
    assert np.array_equal(one.run(x[1, 20:]), wanted[1][20:])
    assert np.array_equal(other.reset().run(x[0]), wanted[0])
    one.reset()
    parts = [one.run(part) for part in np.split(x[0], [3, 4])]
    assert np.array_equal(np.concatenate(parts), wanted[0])
    assert one.save() == other.save()


def test_a_convolution_rests_once_all_that_it_sums_is_the_same(tmp_path):
    taps, steps, width = 3, 40, 32
    model = build(kind="gru", gate=GateConfig(), layers=1, block="feedforward", convolution=taps)
    stream = assert_streams(model, tmp_path, torch.randn(3).expand(steps, 3))
    products, sums = 3 * width * width, taps * width
    rest = 2 * width * 4 * width + 5 * width  # what follows the layer, which always updates
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
    for wrong in ((Op.CONVOLVE, 0, 3), (Op.CONVOLVE, 2**32 - 1, 3), (Op.CONVOLVE, 2, 4),
                  (unknown, 2, 3)):  # fmt: skip
        with pytest.raises(EngineError, match="contents contradict each other"):
            stream_of(*wrong)


# ---------------------------------------------------------------------------- C without Python


STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_folder_of_c_builds_and_says_the_same(tmp_path):
    model = build(convolution=3)
    x = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    folder = to_c_folder(model, tmp_path / "c")
    program = tmp_path / "program"
    sources = sorted(str(source) for source in folder.glob("*.c"))
    subprocess.run(["cc", *STRICT, *sources, "-lm", "-o", program], check=True)
    text = "\n".join(" ".join(f"{v:.9g}" for v in frame) for frame in x)

    def run(text, *arguments):
        return subprocess.run(
            [program, *arguments], input=text, capture_output=True, text=True, check=False
        )

    done = run(text, "--work")
    got = np.array([[float(v) for v in line.split()] for line in done.stdout.splitlines()])
    assert np.abs(got - loaded(model, tmp_path).run(x)).max() < 1e-6
    assert "10 steps" in done.stderr
    assert "% of the work skipped, " in done.stderr
    assert "% of updates done" in done.stderr
    assert "usage" in run("", "--help").stdout
    assert run("", "--what").returncode == 2
    assert "2 of 3 numbers" in run("1 2").stderr
    assert "has x where a number" in run("1 x").stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_header_s_example_runs(tmp_path):
    """Linked with the library that Python uses."""
    header = (SOURCES / "surnn.h").read_text()
    example = header[header.index(" *     #include <surnn.h>") : header.index(" * Build it with")]
    code = tmp_path / "example.c"
    code.write_text("\n".join(line[7:] for line in example.splitlines()) + "\n")
    library = surnn.engine.LIBRARY
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
    loaded(surnn.SuGRU(3, 200, gate=surnn.AlwaysOpen()), tmp_path)  # writes model.surnn
    assert run().stdout.startswith("after the first frame: ")


# ---------------------------------------------------------------------------- what is refused


class Weekend(surnn.Gate):
    def preactivation(self, t, x, memory):
        return (t % 7 >= 5).double().unsqueeze(-1) - 0.5, memory


def test_what_cannot_be_exported_is_refused_with_a_reason(tmp_path):
    path = tmp_path / "no.surnn"
    for kind in ("s4d", "mingru", "transformer"):
        with pytest.raises(TypeError, match=r"the engine runs RNNs.*export --to onnx"):
            to_engine(build(kind=kind, gate=GateConfig()), path)
    with pytest.raises(ValueError, match="cannot stream; use bidirectional=False"):
        to_engine(surnn.SuGRU(1, 4, bidirectional=True), path)
    with pytest.raises(ValueError, match="a soft gate is never 0; train with mode='hard'"):
        to_engine(surnn.SuGRU(1, 4, gate=surnn.Rhythm(mode="soft")), path)
    with pytest.raises(TypeError, match="does not know the gate Weekend"):
        to_engine(surnn.SuGRU(1, 4, gate=Weekend()), path)
    with pytest.raises(TypeError, match="a pair is judged when both"):
        to_engine(build(wanted=Output(2, "sequence", pairs=True)), path)
    with pytest.raises(ValueError, match="'float32' or 'int8', got 'int4'"):
        to_engine(surnn.SuGRU(1, 4), path, weights="int4")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not Linear"):
        to_engine(nn.Linear(2, 2), path)
    assert not path.exists()


def test_errors_of_the_engine(tmp_path):
    stream = loaded(surnn.SuGRU(3, 8), tmp_path)
    whole = (tmp_path / "model.surnn").read_bytes()
    with pytest.raises(ValueError, match=r"frames of 3 numbers.*got \[1, 2\]"):
        stream.step([1.0, 2.0])
    with pytest.raises(EngineError, match="clock -1: an argument"):
        stream.clock = -1
    with pytest.raises(EngineError, match="layer 1 of 1"):
        stream.gates(1)
    with pytest.raises(EngineError, match="saved stream is of another model"):
        stream.restore(bytes(stream.engine.saved_size))
    with pytest.raises(EngineError, match="saved stream"):
        stream.restore(stream.save()[:-1])
    for content, message in (
        (b"", "not a surnn engine file"),
        (b"PK" + whole[2:], "not a surnn engine file"),
        (whole[:8] + b"\x02" + whole[9:], "another version of the format"),
        (whole[:-1], "cut off"),
        (whole + b"\0", "added to"),
        (whole[:-200] + bytes([whole[-200] ^ 1]) + whole[-199:], "checksum"),
    ):
        bad = tmp_path / "bad.surnn"
        bad.write_bytes(content)
        with pytest.raises(EngineError, match=f"bad.surnn: .*{message}"):
            surnn.Engine(bad)
    with pytest.raises(EngineError, match="cannot be opened or read"):
        surnn.Engine(tmp_path / "none.surnn")


def test_without_the_library_all_else_works(tmp_path):
    loaded(surnn.SuGRU(3, 8), tmp_path)
    code = (
        "import surnn, pathlib, surnn.engine as e\n"
        "e.LIBRARY = pathlib.Path('nowhere/libsurnn.so')\n"
        "print(surnn.SuGRU(1, 4))\n"
        f"surnn.Engine({str(tmp_path / 'model.surnn')!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "SuGRU(" in done.stdout
    assert "libsurnn.so is missing, which needs a C compiler" in done.stderr


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_hostile_files_do_no_harm(tmp_path):
    """Flipped bits and hostile numbers, under sanitizers; `make test-engine` tries more."""
    program = tmp_path / "fuzz"
    sources = [str(p) for p in SOURCES.glob("*.c") if p.name != "main.c"]
    checks = "-fsanitize=address,undefined", "-fno-sanitize-recover=all"
    fuzzer = Path(__file__).with_name("engine_fuzz.c")
    command = ["gcc", "-g", "-O0", *checks, "-I", SOURCES, *sources, fuzzer, "-lm", "-o", program]
    subprocess.run(command, check=True)
    layer = surnn.SuGRU(3, 20, 2, heads=2, gate=surnn.Rhythm(horizon=5, frequencies=3))
    files = [to_engine(layer, tmp_path / "a.surnn"), to_engine(layer, tmp_path / "b.surnn", "int8")]
    options = {"width": 8, "layers": 1, "pool": "mean", "convolution": 3}
    files.append(to_engine(build(Tokens(5), **options), tmp_path / "c.surnn"))
    settings = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=1"}
    for file in files:
        done = subprocess.run(
            [program, "300", file], capture_output=True, text=True, env=settings, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        counts = dict(line.split(": ") for line in done.stdout.splitlines())
        assert int(counts["refused"]) > 50
        assert int(counts["ran"]) > 20
