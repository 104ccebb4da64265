"""Readers of the image sets, into uint8 arrays."""

import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .archives import content_of, members, npz, reading
from .registry import DataError
from .where import need


class Images(NamedTuple):
    """Images [N, rows, columns(, 3)] and labels [N], uint8, in the original order."""

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def mnist(data: Path | None = None) -> Images:
    """60,000 and 10,000 grey images of 28 x 28."""
    found = need("mnist", data)
    if found.kind == "npz":
        with reading(found.paths[0]):
            arrays = npz(found.paths[0])
            return Images(*(arrays[k] for k in ("x_train", "y_train", "x_test", "y_test")))
    return Images(*(_idx(path) for path in found.paths))


def cifar10(data: Path | None = None) -> Images:
    """50,000 and 10,000 colour images of 32 x 32."""
    found = need("cifar10", data)
    if found.kind == "webp":
        return _cifar_webp(*found.paths)
    batches: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    source = found.paths[0] if found.kind == "archive" else found.folder
    with reading(source):
        for name, content in members(source):
            short = name.rsplit("/", 1)[-1]
            if short.startswith("data_batch_") or short == "test_batch":
                batches[short] = _cifar_batch(content.read())
        train = [batches[f"data_batch_{i}"] for i in range(1, 6)]
        images, labels = (np.concatenate(part) for part in zip(*train, strict=True))
        return Images(images, labels, *batches["test_batch"])


def _idx(path: Path) -> np.ndarray:
    with reading(path):
        raw = content_of(path)
        if raw[:3] != b"\0\0\x08":
            raise DataError(f"{path} is not an idx file of bytes; fetch it again")
        shape = np.frombuffer(raw, ">u4", raw[3], 4)
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def _cifar_batch(raw: bytes) -> tuple[np.ndarray, np.ndarray]:
    content = _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
    images = np.asarray(content[b"data"], np.uint8).reshape(-1, 3, 32, 32)
    return images.transpose(0, 2, 3, 1), np.asarray(content[b"labels"], np.uint8)


class _ArraysOnly(pickle.Unpickler):
    """Reads arrays and plain values. Anything else in a pickle could run code, and is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding="latin1": text.encode(encoding)
        raise DataError(f"a CIFAR-10 batch asks for {module}.{name}: not the original file")


def _cifar_webp(first: Path, second: Path) -> Images:
    with reading(first):
        a = npz(first)
    with reading(second):
        b = npz(second)
        tiles = [a[f"train_{i}"] for i in (1, 2, 3)] + [b[f"train_{i}"] for i in (4, 5)]
        return Images(
            np.concatenate([_untile(tile) for tile in tiles]),
            np.concatenate([a["y_train"], b["y_train"]]),
            _untile(b["test"]),
            b["y_test"],
        )


def _untile(encoded: np.ndarray) -> np.ndarray:
    """One picture of many 32 x 32 tiles, taken apart row by row."""
    try:
        from PIL import Image  # noqa: PLC0415 (optional)
    except ImportError as error:
        raise DataError(
            "CIFAR-10 packed as WebP needs pillow: pip install pillow. The canonical "
            "cifar-10-python.tar.gz needs nothing: surnn data get cifar10"
        ) from error
    with _large_pictures_allowed(Image):
        picture = np.asarray(Image.open(io.BytesIO(encoded.tobytes())))
    down, across = picture.shape[0] // 32, picture.shape[1] // 32
    tiles = picture.reshape(down, 32, across, 32, 3).swapaxes(1, 2)
    return tiles.reshape(down * across, 32, 32, 3)


@contextmanager
def _large_pictures_allowed(image: Any) -> Iterator[None]:
    """Pillow refuses large pictures as a precaution; ours are large on purpose."""
    limit, image.MAX_IMAGE_PIXELS = image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        image.MAX_IMAGE_PIXELS = limit
