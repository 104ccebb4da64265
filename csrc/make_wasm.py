"""Build the engine as WebAssembly: make wasm, or python csrc/make_wasm.py [--check].

It writes surnn-simd.wasm and surnn-scalar.wasm, and sources.sha256, the hash of all that they are
built from. --check builds nothing: it fails if that hash is not the one of the files here. It needs
clang 14 and its libraries: apt install clang-14 lld-14 wasi-libc libclang-rt-14-dev-wasm32.
The same versions build the same bytes.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
OUT = HERE.parent / "src" / "surnn" / "deploy" / "web"
HASH = "sources.sha256"
NOT_INFERENCE = ("bench", "scan", "main")
"""As in ``surnn.deploy.export.c_folder``: this script needs neither surnn nor torch."""
FLAGS = ("--target=wasm32-wasi", "-std=c11", "-O2", "-DNDEBUG", "-DSURNN_NO_ENVIRONMENT=1", "-Wall")
BUILDS = {"simd": ("-msimd128",), "scalar": ("-DSURNN_SCALAR_ONLY=1",)}
EXPORTS = (
    "malloc", "free", "surnn_message", "surnn_open", "surnn_describe",
    "surnn_describe_layer", "surnn_stream_new", "surnn_stream_free", "surnn_reset", "surnn_step",
    "surnn_step_token", "surnn_run", "surnn_run_tokens", "surnn_save", "surnn_restore",
    "surnn_clock", "surnn_set_clock", "surnn_work_done", "surnn_gates", "surnn_hidden",
    "surnn_mel_push",
)  # fmt: skip
LINK = ("--target=wasm32-wasi", "-nostartfiles", "-Wl,--no-entry", "-Wl,--strip-all",
        "-Wl,-z,stack-size=262144")  # fmt: skip


def sources() -> list[Path]:
    """All files of the engine's inference."""
    paths = (path for end in ("c", "h", "inc") for path in HERE.glob(f"*.{end}"))
    return sorted(path for path in paths if not path.name.startswith(NOT_INFERENCE))


def fingerprint() -> str:
    """The hash of the sources and of this script."""
    total = hashlib.sha256()
    for path in (*sources(), Path(__file__)):
        total.update(f"{path.name}\n".encode() + path.read_bytes().replace(b"\r\n", b"\n"))
    return total.hexdigest()


def compiler() -> str | None:
    """Clang 14, by either of its names on Debian and Ubuntu."""
    for name in ("clang-14", "clang"):
        if shutil.which(name) is not None:
            version = subprocess.run(
                [name, "--version"], capture_output=True, text=True, check=True
            )
            if "clang version 14." in version.stdout:
                return name
    return None


def build(folder: Path) -> None:
    """Compile both versions into a folder."""
    clang = compiler()
    if clang is None:
        sys.exit(f"clang 14 is not installed.\n{__doc__}")
    for name, options in BUILDS.items():
        with tempfile.TemporaryDirectory() as place:
            units = [path.name for path in sources() if path.suffix == ".c"]
            objects = [f"{Path(place, unit)}.o" for unit in units]
            for unit, target in zip(units, objects, strict=True):
                # Linked in a step of its own: clang would call wasm-opt where it is installed.
                command = [clang, *FLAGS, *options, "-c", unit, "-o", target]
                subprocess.run(command, cwd=HERE, check=True)
            exports = [f"-Wl,--export={export}" for export in EXPORTS]
            out = folder / f"surnn-{name}.wasm"
            subprocess.run([clang, *LINK, *exports, *objects, "-o", str(out)], check=True)
            os.chmod(out, 0o644)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare the sources' hash")
    parser.add_argument("--out", type=Path, default=OUT, help="another folder, for comparisons")
    arguments = parser.parse_args()
    if not arguments.check:
        arguments.out.mkdir(parents=True, exist_ok=True)
        build(arguments.out)
        (arguments.out / HASH).write_text(f"{fingerprint()}\n")
    elif (OUT / HASH).read_text().strip() != fingerprint():
        sys.exit("the C sources have changed since the WebAssembly was built; run: make wasm")


if __name__ == "__main__":
    main()
