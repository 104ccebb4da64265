"""Long tests of the engine, run by ``make test-engine`` and not with every change."""

import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch

import surnn
from helpers.engine_files import SOURCES, build_objects, every_operation, link
from surnn.config import ModelConfig, RhythmConfig
from surnn.deploy.export import to_engine
from surnn.models.model import SequenceModel
from surnn.tasks import Output, Values

GATES = {
    "rhythm": surnn.Rhythm(rate=0.17, horizon=784, granularity=16),
    "units": surnn.Rhythm(rate=0.17, horizon=784),
}


def many_steps(folder: Path, steps: int) -> None:
    """Outputs agree with Python within 1e-5 over many time steps."""
    for name, gate in GATES.items():
        layer = surnn.SuGRU(4, 48, 2, gate=gate).eval()
        stream = surnn.Engine(to_engine(layer, folder / "long.surnn")).stream()
        x = torch.randn(steps, 4)
        with torch.no_grad():
            expected = layer(x[:, None])[0][:, 0].numpy()
        error = np.abs(stream.run(x) - expected).max()
        print(
            f"{name}: {steps} time steps, error at most {error:.1e}, "
            f"{stream.work.skipped:.0%} skipped"
        )
        assert error < 1e-5


def many_steps_of_blocks(folder: Path, steps: int) -> None:
    """The same for residual blocks with convolutions, whose linear maps are incremental."""
    config = ModelConfig(width=32, layers=2, expand=2, convolution=12)
    gate = RhythmConfig(rate=0.17, horizon=784)
    model = SequenceModel(config, gate, Values(2), Output(5, "step"), 784).eval()
    stream = surnn.Engine(to_engine(model, folder / "blocks.surnn")).stream()
    x = torch.randn(steps, 2)
    with torch.no_grad():
        expected = model(x[None])[0].numpy()
    error = np.abs(stream.run(x) - expected).max()
    print(
        f"blocks: {steps} time steps, error at most {error:.1e}, {stream.work.skipped:.0%} skipped"
    )
    assert error < 1e-5


def input_gates(folder: Path, steps: int) -> None:
    """Gates that read the input agree with Python, except where their sum is nearly 0.

    The last digit of a float32 sum depends on the order of additions.
    """
    layer = surnn.SuGRU(4, 48, gate=surnn.InputGate(rate=0.2)).eval()
    stream = surnn.Engine(to_engine(layer, folder / "input.surnn")).stream()
    x = torch.randn(steps, 4)
    with torch.no_grad():
        sums = layer.gates[0].preactivation(None, x[:, None], None)[0][:, 0].numpy()
        expected = layer(x[:, None])[0][:, 0].numpy()
    for step, (frame, row) in enumerate(zip(x.numpy(), sums, strict=True)):
        out = stream.step(frame)
        differ = stream.gates(0) != (row > 0)
        assert (np.abs(row[differ]) < 1e-5).all()
        if differ.any():
            print(f"time step {step}: a gate with the sum {row[differ][0]:.1e} differs from Python")
            return
        assert np.abs(out - expected[step]).max() < 1e-5
    print(f"{sums.size} gates that read the input agree with Python")


def far_clocks(folder: Path, steps: int) -> None:
    """Gates agree with Python at a clock of 10^9."""
    layer = surnn.SuGRU(1, 128, gate=surnn.Rhythm(rate=0.3, horizon=64)).eval()
    stream = surnn.Engine(to_engine(layer, folder / "clock.surnn")).stream()
    stream.clock = 10**9
    expected = (
        layer.gates[0](10**9 + torch.arange(1, steps + 1)[:, None])[0].g[:, 0].detach().numpy()
    )
    for row in expected:
        stream.step([0.0])
        assert np.array_equal(stream.gates(0), row), stream.clock
    print(f"{expected.size} gates from t = 10^9 on agree with Python")


def no_growth(folder: Path, steps: int) -> None:
    """Memory does not grow with the number of time steps."""
    layer = surnn.SuGRU(1, 16, gate=surnn.Rhythm(rate=0.1, horizon=784, granularity=16)).eval()
    stream = surnn.Engine(to_engine(layer, folder / "growth.surnn")).stream()
    x = np.random.default_rng(0).random((100_000, 1)).astype(np.float32)
    stream.run(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(steps // len(x)):
        stream.run(x)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{stream.clock} time steps, {growth} kB more memory")
    assert growth < 2048  # kB, for Python itself; one byte per time step would be 10,000


def other_projects(folder: Path) -> None:
    """CMake builds and installs the library, shared and static; another project uses it."""
    if shutil.which("cmake") is None:
        print("cmake is not installed: skipped")
        return
    layer = surnn.SuGRU(1, 16, gate=surnn.AlwaysOpen()).eval()
    to_engine(layer, folder / "model.surnn")
    header = (SOURCES / "surnn.h").read_text()
    example = header[header.index(" *     #include <surnn.h>") : header.index(" * Build it with")]
    user = folder / "user"
    user.mkdir()
    (user / "example.c").write_text("\n".join(line[7:] for line in example.splitlines()) + "\n")
    (user / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(user C)\n"
        f"find_package(surnn {surnn.__version__} REQUIRED)\n"
        "add_executable(user example.c)\ntarget_link_libraries(user surnn::surnn)\n"
    )

    def cmake(*arguments: object) -> None:
        subprocess.run(["cmake", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

    for shared in ("ON", "OFF"):
        build, prefix, other = (folder / f"{name}-{shared}" for name in ("build", "prefix", "user"))
        options = f"-DBUILD_SHARED_LIBS={shared}", f"-DCMAKE_INSTALL_PREFIX={prefix}"
        cmake("-S", SOURCES.parent, "-B", build, *options)
        cmake("--build", build)
        cmake("--install", build)
        cmake("-S", user, "-B", other, f"-DCMAKE_PREFIX_PATH={prefix}")
        cmake("--build", other)
        for command in ([other / "user"], [prefix / "bin" / "surnn-run", "model.surnn"]):
            done = subprocess.run(
                command, cwd=folder, check=True, input="0.5\n", capture_output=True, text=True
            )
            assert done.stdout
    print("CMake: installed, found and used by another project, shared and static")


def on_arm(folder: Path, steps: int) -> None:
    """NEON, emulated: every model agrees with this processor.

    The order of additions differs, and may round an int8 number the other way.
    """
    compiler, emulator = "aarch64-linux-gnu-gcc", "qemu-aarch64"
    if shutil.which(compiler) is None or shutil.which(emulator) is None:
        print(f"{compiler} or {emulator} is not installed: NEON skipped")
        return
    runner = folder / "surnn-run-arm"
    sources = [str(p) for p in SOURCES.glob("*.c")]
    checks = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run([compiler, *checks, "-O2", "-static", *sources, "-lm", "-o", runner], check=True)
    random, worst = np.random.default_rng(0), 0.0
    for file in every_operation(folder):
        engine = surnn.Engine(file)
        tokens = "table" in file.name
        x = random.integers(0, 5, steps) if tokens else random.normal(size=(steps, 2))
        x = x if tokens else x.astype(np.float32)
        text = "\n".join(str(row) if tokens else " ".join(map(str, row)) for row in x)
        done = subprocess.run(
            [emulator, runner, file], check=True, input=text + "\n", capture_output=True, text=True
        )
        outputs = np.array([line.split() for line in done.stdout.splitlines()], np.float32)
        error = np.abs(outputs - engine.stream().run(x)).max()
        assert error < (1e-3 if "int8" in file.name else 1e-5), (file.name, error)
        worst = max(worst, error)
    print(f"NEON, emulated: {len(every_operation(folder))} models, error at most {worst:.1e}")


def uninitialised_memory(folder: Path, tries: int) -> None:
    """Damaged files under valgrind. ``make fuzz`` runs many more under sanitizers."""
    if shutil.which("valgrind") is None:
        print("valgrind is not installed: skipped")
        return
    source = Path(__file__).with_name("engine_fuzz.c")
    objects = build_objects(folder / "objects", "-O1")
    program = link(folder / "fuzz", source, objects, "-O1", "-DSURNN_FUZZ_MAIN")
    check = ["valgrind", "-q", "--error-exitcode=1", "--leak-check=full"]
    command = [*check, program, str(tries), "0", *every_operation(folder)]
    environment = {**os.environ, "SURNN_SIMD": "avx2"}  # valgrind does not support AVX-512
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    print(f"{tries} damaged files: valgrind found nothing")


def main() -> None:
    """Run all long tests."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        other_projects(folder)
        on_arm(folder, 200)
        uninitialised_memory(folder, 800)
        far_clocks(folder, 20_000)
        many_steps(folder, 100_000)
        many_steps_of_blocks(folder, 100_000)
        input_gates(folder, 100_000)
        no_growth(folder, 10_000_000)


if __name__ == "__main__":
    main()
