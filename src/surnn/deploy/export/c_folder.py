"""A model as a folder of C files that builds as it is: on a PC, and for microcontrollers."""

import shutil
import struct
from pathlib import Path

from torch import nn

import surnn

from .engine import engine_bytes
from .engine_builder import Activations, Weights
from .engine_file import Op

SOURCES = Path(__file__).parents[2] / "csrc"
"""The engine's C files in an installed package."""
SOURCE_TREE = Path(__file__).parents[4] / "csrc"
"""The engine's C files in a source tree."""
NOT_INFERENCE = ("bench", "scan", "main")
"""Beginnings of the names of files that inference does not need."""


def to_c_folder(
    model: nn.Module,
    folder: str | Path,
    weights: Weights = "float32",
    activations: Activations = "int16",
) -> Path:
    """Write C sources of the engine that contain ``model``, for PCs and for microcontrollers.

    In the folder, ``make`` builds a program that reads frames from standard input and writes
    predictions; ``make cortex-m4`` builds a library with arm-none-eabi-gcc. The folder is also a
    library of Arduino, a module of Zephyr and a component of ESP-IDF. To use the model in another
    program, take the files in ``src``; ``main.c`` shows how to start.

    Args:
        model: see :func:`~surnn.export.to_engine`.
        folder: created if needed; files of the same names are replaced.
        weights: see :func:`~surnn.export.to_engine`.
        activations: see :func:`~surnn.export.to_engine`.

    Returns:
        the folder.

    Example:
        >>> import surnn, tempfile
        >>> with tempfile.TemporaryDirectory() as name:
        ...     folder = to_c_folder(surnn.SuGRU(3, 8), name)
        ...     {"main.c", "Makefile", "src"} <= {path.name for path in folder.iterdir()}
        True
    """
    content = engine_bytes(model, weights, activations)
    folder, sources = Path(folder), _sources()
    templates = sources / "micro"
    for path in templates.rglob("*"):
        if path.is_file():
            target = folder / _place(path.relative_to(templates))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(path.read_text().replace("@VERSION@", surnn.__version__))
    source = folder / "src"
    for path in inference_sources():
        shutil.copy(path, source / path.name)
    config = source / "config.h"
    config.write_text(_options(content) + config.read_text())
    (source / "weights.c").write_text(_as_array(content))
    program = (sources / "main.c").read_text()
    (folder / "main.c").write_text(f"#define SURNN_EMBEDDED\n{program}")
    return folder


def _place(path: Path) -> Path:
    """Where a file of ``csrc/micro`` goes."""
    if path.name == "surnn_model.h":
        return "src" / path
    return "micro" / path if path.suffix in (".c", ".ld") else path


def inference_sources() -> list[Path]:
    """The C files that inference needs: ``.c``, ``.h`` and ``.inc``."""
    paths = sorted(_sources().iterdir())
    return [
        path
        for path in paths
        if path.suffix in (".c", ".h", ".inc") and not path.name.startswith(NOT_INFERENCE)
    ]


def _sources() -> Path:
    for folder in (SOURCES, SOURCE_TREE):
        if (folder / "surnn.h").exists():
            return folder
    raise FileNotFoundError(
        f"the engine's C sources are not in {SOURCES}, where installing surnn puts them; install "
        "it again: pip install --force-reinstall --no-deps surnn"
    )


def _options(content: bytes) -> str:
    """Build options that leave out the parts of the engine that the model does not need."""
    count, table = (
        struct.unpack_from("<I", content, 24)[0],
        struct.unpack_from("<Q", content, 48)[0],
    )
    records = [struct.unpack_from("<4I12I", content, table + 128 * i) for i in range(count)]
    warped = any(kind == Op.GATE_RHYTHM and numbers[4] for kind, _, _, _, *numbers in records)
    int8 = any(
        (kind == Op.LINEAR and numbers[1]) or (kind == Op.RECURRENT and numbers[4])
        for kind, _, _, _, *numbers in records
    )
    options = {
        "WARPED": warped,
        "MEAN": any(record[0] == Op.MEAN for record in records),
        "ACTIVATIONS": any(record[0] == Op.ACTIVATE and record[4] > 3 for record in records),
        "INT8": int8,
    }
    lines = [f"#define SURNN_{name} {int(value)}\n" for name, value in options.items()]
    return "/* What this model needs. */\n" + "".join(lines)


def _as_array(content: bytes) -> str:
    lines = (content[i : i + 24] for i in range(0, len(content), 24))
    rows = "\n".join(",".join(map(str, line)) + "," for line in lines)
    return f"""/* The model: a surnn engine file. */
#include "surnn_model.h"

#if defined(_MSC_VER)
__declspec(align(64))
#else
__attribute__((aligned(64)))
#endif
const unsigned char surnn_model_bytes[] = {{
{rows}
}};
const size_t surnn_model_size = sizeof surnn_model_bytes;
"""
