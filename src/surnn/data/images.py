"""Readers of the image sets, into uint8 arrays."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .archives import content_of, members, npz, reading
from .locate import need
from .pickles import PickledArray, load_pickle
from .registry import DataError

MAX_PIXELS = 1 << 27
"""Most pixels of a picture that holds many images."""


class Images(NamedTuple):
    """Images [N, rows, columns(, 3)] and labels [N], uint8, in the original order."""

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def mnist(data: Path | None = None) -> Images:
    """60,000 and 10,000 grey images of 28 x 28."""
    stored = need("mnist", data)
    if stored.kind == "npz":
        with reading(stored.paths[0]):
            arrays = npz(stored.paths[0])
            return Images(*(arrays[k] for k in ("x_train", "y_train", "x_test", "y_test")))
    return Images(*(_idx(path) for path in stored.paths))


def cifar10(data: Path | None = None) -> Images:
    """50,000 and 10,000 colour images of 32 x 32."""
    stored = need("cifar10", data)
    if stored.kind == "webp":
        return _cifar_webp(*stored.paths)
    batches: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    source = stored.paths[0] if stored.kind == "archive" else stored.folder
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
    content = load_pickle(raw)
    data, labels = content[b"data"], content[b"labels"]
    if not isinstance(data, PickledArray) or data.kind not in ("u1", "|u1", "uint8"):
        raise DataError("a CIFAR-10 batch holds no array of bytes: not the original file")
    images = np.frombuffer(data.content, np.uint8).reshape(-1, 3, 32, 32)
    return images.transpose(0, 2, 3, 1), np.array([int(label) for label in labels], np.uint8)


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
    """The 32 x 32 tiles of one large picture, row by row."""
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
    """Raise Pillow's limit on the size of pictures: ours exceed it."""
    limit, image.MAX_IMAGE_PIXELS = image.MAX_IMAGE_PIXELS, MAX_PIXELS
    try:
        yield
    finally:
        image.MAX_IMAGE_PIXELS = limit
