"""A model as a folder of C files that builds anywhere: ``cc -O2 *.c -lm``."""

import shutil
from pathlib import Path

from torch import nn

from .engine import engine_bytes
from .engine_builder import Weights

SOURCES = Path(__file__).parents[2] / "csrc"
"""The engine's C files in an installed package."""
SOURCE_TREE = Path(__file__).parents[4] / "csrc"
"""The engine's C files in a source tree."""
EXCLUDED = ("bench.c", "bench.h")


def to_c_folder(model: nn.Module, folder: str | Path, weights: Weights = "float32") -> Path:
    """Write C sources of the engine that contain ``model``, and a small program that runs it.

    ``cc -O2 *.c -lm`` in the folder builds a program that reads frames from standard input and
    writes predictions. To use the model in another program, take all files but ``main.c``, which
    shows how to start.

    Args:
        model: see :func:`~surnn.export.to_engine`.
        folder: created if needed; files of the same names are replaced.
        weights: see :func:`~surnn.export.to_engine`.

    Returns:
        the folder.

    Example:
        >>> import surnn, tempfile
        >>> with tempfile.TemporaryDirectory() as name:
        ...     folder = to_c_folder(surnn.SuGRU(3, 8), name)
        ...     {"main.c", "surnn.h", "weights.c"} <= {path.name for path in folder.iterdir()}
        True
    """
    content = engine_bytes(model, weights)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(_sources().iterdir()):
        if source.name in EXCLUDED or source.name.startswith("scan"):  # training is not exported
            continue
        if source.suffix in (".c", ".h", ".inc"):
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
