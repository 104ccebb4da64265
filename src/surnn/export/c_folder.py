"""A model as a folder of C files that builds anywhere: ``cc -O2 *.c -lm``."""

import shutil
from pathlib import Path

from torch import nn

from .engine import Weights, engine_bytes

SOURCES = Path(__file__).parents[1] / "csrc"
"""The engine's C files, as installed; in a source tree they are its folder ``csrc``."""
SOURCE_TREE = Path(__file__).parents[3] / "csrc"
LEFT_OUT = ("bench.c", "bench.h")


def to_c_folder(model: nn.Module, folder: str | Path, weights: Weights = "float32") -> Path:
    """Write C sources of the engine with ``model`` in them, and a small program around it.

    ``cc -O2 *.c -lm`` in the folder makes a program that reads frames from standard input and
    writes predictions. Other programs take all files but ``main.c``, and begin as that does.

    Args:
        model: see :func:`~surnn.export.to_engine`.
        folder: is created; files in it of the same names are replaced.
        weights: see :func:`~surnn.export.to_engine`.

    Returns:
        the folder.
    """
    content = engine_bytes(model, weights)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(_sources().iterdir()):
        if source.suffix in (".c", ".h", ".inc") and source.name not in LEFT_OUT:
            shutil.copy(source, folder / source.name)
    main = folder / "main.c"
    main.write_text(f"#define SURNN_EMBEDDED\n{main.read_text()}")
    (folder / "weights.c").write_text(_as_array(content))
    return folder


def _sources() -> Path:
    for folder in (SOURCES, SOURCE_TREE):
        if (folder / "surnn.h").exists():
            return folder
    raise FileNotFoundError(
        f"the engine's C sources are not in {SOURCES}, where installing surnn puts them; install "
        "it again: pip install --force-reinstall --no-deps surnn"
    )


def _as_array(content: bytes) -> str:
    lines = (content[i : i + 24] for i in range(0, len(content), 24))
    rows = "\n".join(",".join(map(str, line)) + "," for line in lines)
    return f"""/* The model: a surnn engine file. */
#include <stddef.h>

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
