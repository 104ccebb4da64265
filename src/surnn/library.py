"""The C library that ships inside the package: the streaming engine and the ``native`` scan.

It is optional: an installation from source without a C compiler has none.
"""

from pathlib import Path

LIBRARY = Path(__file__).parent / "libsurnn.so"
HOW_TO_BUILD = (
    "building it needs a C compiler. Install one (Debian: apt install gcc libc6-dev), then run "
    "pip install --force-reinstall --no-deps surnn, or in a source tree pip install --editable ."
)


def find_library(library: Path | None = None) -> Path | None:
    """The library's file on this platform, or None if it was not built. Default: LIBRARY."""
    library = LIBRARY if library is None else library
    path = library if library.exists() else library.with_suffix(".dll")
    return path if path.exists() else None
