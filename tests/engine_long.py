"""The engine at length: what takes too long for every change. Run by ``make test-engine``."""

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch

import surnn
from surnn.config import GateConfig, ModelConfig
from surnn.export import to_engine
from surnn.models import SequenceModel
from surnn.tasks import Output, Tokens, Values

SOURCES = Path(__file__).parents[1] / "csrc"
GATES = {
    "rhythm": surnn.Rhythm(rate=0.17, horizon=784, granularity=16),
    "units": surnn.Rhythm(rate=0.17, horizon=784),
}


def many_steps(folder: Path, steps: int) -> None:
    """Outputs within 1e-5 of Python's, gates the same at every step."""
    for name, gate in GATES.items():
        layer = surnn.SuGRU(4, 48, 2, gate=gate).eval()
        stream = surnn.Engine(to_engine(layer, folder / "long.surnn")).stream()
        x = torch.randn(steps, 4)
        with torch.no_grad():
            wanted = layer(x[:, None])[0][:, 0].numpy()
        error = np.abs(stream.run(x) - wanted).max()
        print(
            f"{name}: {steps} steps, off by {error:.1e} at most, {stream.work.skipped:.0%} skipped"
        )
        assert error < 1e-5


def many_steps_of_blocks(folder: Path, steps: int) -> None:
    """The same of residual blocks, whose linear maps add up changes, after convolutions."""
    config = ModelConfig(width=32, layers=2, expand=2, convolution=12)
    gate = GateConfig("rhythm", rate=0.17, horizon=784)
    model = SequenceModel(config, gate, Values(2), Output(5, "step"), 784).eval()
    stream = surnn.Engine(to_engine(model, folder / "blocks.surnn")).stream()
    x = torch.randn(steps, 2)
    with torch.no_grad():
        wanted = model(x[None])[0].numpy()
    error = np.abs(stream.run(x) - wanted).max()
    print(f"blocks: {steps} steps, off by {error:.1e} at most, {stream.work.skipped:.0%} skipped")
    assert error < 1e-5


def input_gates(folder: Path, steps: int) -> None:
    """Gates that see the input decide by float32 sums, whose last digit depends on their order.

    They may differ from Python's only where the sum is as good as 0.
    """
    layer = surnn.SuGRU(4, 48, gate=surnn.InputGate(rate=0.2)).eval()
    stream = surnn.Engine(to_engine(layer, folder / "input.surnn")).stream()
    x = torch.randn(steps, 4)
    with torch.no_grad():
        sums = layer.gates[0].preactivation(None, x[:, None], None)[0][:, 0].numpy()
        wanted = layer(x[:, None])[0][:, 0].numpy()
    for step, (frame, row) in enumerate(zip(x.numpy(), sums, strict=True)):
        out = stream.step(frame)
        differ = stream.gates(0) != (row > 0)
        assert (np.abs(row[differ]) < 1e-5).all()
        if differ.any():
            print(f"a gate of a sum of {row[differ][0]:.1e} at step {step} fell the other way")
            return
        assert np.abs(out - wanted[step]).max() < 1e-5
    print(f"{sums.size} gates that see the input are Python's")


def far_clocks(folder: Path, steps: int) -> None:
    """Gates of a clock at 10^9, against Python's."""
    layer = surnn.SuGRU(1, 128, gate=surnn.Rhythm(rate=0.3, horizon=64)).eval()
    stream = surnn.Engine(to_engine(layer, folder / "clock.surnn")).stream()
    stream.clock = 10**9
    wanted = layer.gates[0](10**9 + torch.arange(1, steps + 1)[:, None])[0].g[:, 0].detach().numpy()
    for row in wanted:
        stream.step([0.0])
        assert np.array_equal(stream.gates(0), row), stream.clock
    print(f"{wanted.size} gates from t = 10^9 on are Python's")


def no_growth(folder: Path, steps: int) -> None:
    """A stream runs on in the memory it began with."""
    layer = surnn.SuGRU(1, 16, gate=surnn.Rhythm(rate=0.1, horizon=784, granularity=16)).eval()
    stream = surnn.Engine(to_engine(layer, folder / "growth.surnn")).stream()
    x = np.random.default_rng(0).random((100_000, 1)).astype(np.float32)
    stream.run(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(steps // len(x)):
        stream.run(x)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{stream.clock} steps, {growth} kB more memory")
    assert growth < 2048  # of Python itself; 10^7 steps of one byte each would be ten thousand


def other_projects(folder: Path) -> None:
    """CMake builds and installs the library, shared and static, and others find it."""
    if shutil.which("cmake") is None:
        print("cmake is not installed: left out")
        return
    layer = surnn.SuGRU(1, 16, gate=surnn.AlwaysOpen()).eval()
    to_engine(layer, folder / "model.surnn")
    header = (SOURCES / "surnn.h").read_text()
    example = header[header.index(" *     #include <surnn.h>") : header.index(" * Build it with")]
    user = folder / "user"
    user.mkdir()
    (user / "example.c").write_text("\n".join(line[7:] for line in example.splitlines()) + "\n")
    (user / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(user C)\nfind_package(surnn 0.1 REQUIRED)\n"
        "add_executable(user example.c)\ntarget_link_libraries(user surnn::surnn)\n"
    )

    def cmake(*words: object) -> None:
        subprocess.run(["cmake", *map(str, words)], check=True, stdout=subprocess.DEVNULL)

    for shared in ("ON", "OFF"):
        build, there, other = (folder / f"{name}-{shared}" for name in ("build", "there", "other"))
        options = f"-DBUILD_SHARED_LIBS={shared}", f"-DCMAKE_INSTALL_PREFIX={there}"
        cmake("-S", SOURCES.parent, "-B", build, *options)
        cmake("--build", build)
        cmake("--install", build)
        cmake("-S", user, "-B", other, f"-DCMAKE_PREFIX_PATH={there}")
        cmake("--build", other)
        for command in ([other / "user"], [there / "bin" / "surnn-run", "model.surnn"]):
            done = subprocess.run(
                command, cwd=folder, check=True, input="0.5\n", capture_output=True, text=True
            )
            assert done.stdout
    print("CMake: installed, found and used by another project, shared and static")


def models(folder: Path) -> list[Path]:
    """Small models that have every operation in them."""
    kinds = [
        ("clocks", "sugru", GateConfig("rhythm", horizon=5, frequencies=3), {"heads": 2}),
        ("warped", "sulstm", GateConfig("warped", horizon=5, frequencies=3, bins=3), {}),
        ("each", "surnn", GateConfig("warped", horizon=5, frequencies=3, per_unit=True), {}),
        ("spiking", "susnn", GateConfig("fixed_random"), {"adaptation_goes_on": True}),
        ("input", "sugru", GateConfig("input", hidden=3), {"norm": "batch", "pool": "mean"}),
        ("ssm", "sugru", GateConfig("ssm", modes=3), {"norm": "rms", "glu": "gelu"}),
        ("level", "surnn", GateConfig("threshold", source="layer"), {"expand": 2, "groups": 2}),
        ("table", "sugru", GateConfig("table", horizon=5), {"block": "feedforward"}),
        ("convolved", "sulstm", GateConfig("every_n"), {"convolution": 4}),
        ("cycles", "susnn", GateConfig("cycles", min_period=2, max_period=7), {}),
    ]
    files = []
    for name, kind, gate, options in kinds:
        for weights in ("float32", "int8"):
            given = Tokens(5) if name == "table" else Values(2)
            config = ModelConfig(kind=kind, width=12, layers=1, **options)  # type: ignore[arg-type]
            model = SequenceModel(config, gate, given, Output(3, "sequence"), 5).eval()
            files.append(to_engine(model, folder / f"{name}-{weights}.surnn", weights))  # type: ignore[arg-type]
    return files


def on_arm(folder: Path, steps: int) -> None:
    """NEON, emulated: every model as on this processor, but for the order of sums, which may round
    an int8 number the other way."""
    compiler, emulator = "aarch64-linux-gnu-gcc", "qemu-aarch64"
    if shutil.which(compiler) is None or shutil.which(emulator) is None:
        print(f"{compiler} or {emulator} is not installed: NEON left out")
        return
    runner = folder / "surnn-run-arm"
    sources = [str(p) for p in SOURCES.glob("*.c")]
    checks = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run([compiler, *checks, "-O2", "-static", *sources, "-lm", "-o", runner], check=True)
    random, worst = np.random.default_rng(0), 0.0
    for file in models(folder):
        engine = surnn.Engine(file)
        tokens = "table" in file.name
        x = random.integers(0, 5, steps) if tokens else random.normal(size=(steps, 2))
        x = x if tokens else x.astype(np.float32)
        given = "\n".join(str(row) if tokens else " ".join(map(str, row)) for row in x)
        done = subprocess.run(
            [emulator, runner, file], check=True, input=given + "\n", capture_output=True, text=True
        )
        told = np.array([line.split() for line in done.stdout.splitlines()], np.float32)
        off = np.abs(told - engine.stream().run(x)).max()
        assert off < (1e-3 if "int8" in file.name else 1e-5), (file.name, off)
        worst = max(worst, off)
    print(f"NEON, emulated: {len(models(folder))} models off by {worst:.1e} at most")


def hostile_files(folder: Path, tries: int) -> None:
    """Damaged files under sanitizers; no crash, no leak, nothing undefined."""
    sources = [str(p) for p in SOURCES.glob("*.c") if p.name != "main.c"]
    fuzzer = str(Path(__file__).with_name("engine_fuzz.c"))
    build = ["gcc", "-g", "-I", str(SOURCES), *sources, fuzzer, "-lm", "-o"]
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run([*build, folder / "fuzz", "-O1", *checks], check=True)
    settings = {"ASAN_OPTIONS": "allocator_may_return_null=1"}
    for simd in ("best", "avx2", "generic", "scalar"):
        for file in models(folder):
            _run([folder / "fuzz", str(tries), file], simd, settings)
    print(f"{tries} damaged copies of each of {len(models(folder))} files: no harm done")
    if shutil.which("valgrind") is None:
        print("valgrind is not installed: left out")
        return
    subprocess.run([*build, folder / "plain", "-O1"], check=True)
    check = ["valgrind", "-q", "--error-exitcode=1", "--leak-check=full"]
    for file in models(folder):  # valgrind knows no AVX-512
        _run([*check, folder / "plain", "40", file], "avx2", {})
    print("valgrind found nothing")


def _run(command: list, simd: str, settings: dict[str, str]) -> None:
    environment = {**os.environ, **settings, "SURNN_SIMD": simd}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=2000, help="damaged copies of each file")
    tries = parser.parse_args().tries
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        other_projects(folder)
        on_arm(folder, 200)
        hostile_files(folder, tries)
        far_clocks(folder, 20_000)
        many_steps(folder, 100_000)
        many_steps_of_blocks(folder, 100_000)
        input_gates(folder, 100_000)
        no_growth(folder, 10_000_000)


if __name__ == "__main__":
    main()
