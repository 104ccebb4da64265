"""Tiny versions of every data set in its canonical format."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from surnn.data import SETS, speech, texts
from surnn.data import ecg as ecg_files
from surnn.tasks import ecg, load_task
from surnn.tasks import enwik8 as enwik8_task
from surnn.tasks.base import Batch, Split, Task, order

CPU = torch.device("cpu")
REAL = (
    "smnist", "psmnist", "spiking_psmnist", "scifar", "lra_image", "lra_text", "lra_retrieval",
    "ecg_beats", "spoken_digits", "speech_commands", "enwik8", "article_pairs",
)  # fmt: skip


# ------------------------------------------------------------ tiny sets in canonical formats


def write_mnist(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    drawn = [
        generator.integers(0, 256, (60, 28, 28), dtype=np.uint8),
        generator.integers(0, 10, 60, dtype=np.uint8),
        generator.integers(0, 256, (10, 28, 28), dtype=np.uint8),
        generator.integers(0, 10, 10, dtype=np.uint8),
    ]
    write_idx(folder, *drawn)
    return drawn[0], drawn[1]


def write_idx(folder: Path, *arrays: np.ndarray) -> None:
    """Training images and labels, test images and labels, as MNIST's files."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    for name, array in zip(names, arrays, strict=True):
        head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        (folder / f"{name}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))


def write_cifar(folder: Path) -> np.ndarray:
    generator = np.random.default_rng(0)
    pictures = generator.integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as archive:
        for i, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
            part = pictures[10 * i : 10 * i + 10].transpose(0, 3, 1, 2).reshape(10, 3072)
            raw = pickle.dumps({b"data": part, b"labels": list(range(10))}, protocol=2)
            add(archive, f"cifar-10-batches-py/{name}", raw)
    return pictures


def add(archive: tarfile.TarFile, name: str, raw: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(raw)
    archive.addfile(info, io.BytesIO(raw))


def write_imdb(folder: Path) -> None:
    with tarfile.open(folder / "aclImdb_v1.tar.gz", "w:gz") as archive:
        add(archive, "aclImdb/train/unsup/0_0.txt", b"not a review of ours")
        for split in ("test", "train"):
            for label, word in (("pos", "good"), ("neg", "b\u00e4d")):
                for i in range(20):
                    text = f"{split} {i} {word * (i + 1)}".encode()
                    add(archive, f"aclImdb/{split}/{label}/{i}_7.txt", text)


def write_aan(folder: Path) -> None:
    for split, count in (("train", 6), ("eval", 3), ("test", 4)):
        lines = [
            f'{i % 2}.0\tP{i}\tP{i + 1}\tpaper "{i}" {"x" * i}\tpaper "{i + 1}" {"x" * (i + 1)}\n'
            for i in range(count)
        ]
        (folder / f"new_aan_pairs.{split}.tsv").write_text("".join(lines), encoding="utf-8")


def wav(samples: np.ndarray, rate: int) -> bytes:
    raw = samples.astype("<i2").tobytes()
    form = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate, 2, 16)
    body = b"WAVEfmt " + struct.pack("<I", 16) + form + b"LIST\3\0\0\0abc\0"
    body += b"data" + struct.pack("<I", len(raw)) + raw
    return b"RIFF" + struct.pack("<I", len(body)) + body


def write_sounds(folder: Path) -> None:
    generator = np.random.default_rng(0)
    (folder / "recordings").mkdir()
    for digit in range(10):
        for take in (0, 5, 10, 11):
            samples = 1000 * np.sin(np.arange(1500 + 10 * digit) * (0.1 + 0.05 * digit))
            path = folder / "recordings" / f"{digit}_ann_{take}.wav"
            path.write_bytes(wav(samples, 8000))
    (folder / "_background_noise_").mkdir()
    for name in SETS["speech_commands_noise"].layouts[0].files:
        path = folder / "_background_noise_" / name
        path.write_bytes(wav(generator.normal(0, 3000, 80_000), 16_000))


def write_words(folder: Path) -> dict[tuple[str, str, int], np.ndarray]:
    """A complete set of the ten commands and two other words: 2 clips of each in each split."""
    generator, written = np.random.default_rng(1), {}
    root = folder / "speech_commands_v0.01"
    lists: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for number, word in enumerate((*speech.CORE, "bed", "cat")):
        (root / word).mkdir(parents=True)
        for split in range(3):
            for take in range(2):
                name = f"{split:08x}_nohash_{take}"
                times = np.arange(12_000 + 2000 * split)
                samples = 4000 * np.sin(times * (0.05 + 0.05 * number)) * (times > 3000)
                samples = (samples + generator.normal(0, 30, len(times))).astype(np.int16)
                (root / word / f"{name}.wav").write_bytes(wav(samples, 16_000))
                lists[split].append(f"{word}/{name}.wav")
                written[word, name, split] = samples
    (root / "validation_list.txt").write_text("\n".join(lists[1]))
    (root / "testing_list.txt").write_text("\n".join(lists[2]))
    (root / "_background_noise_").mkdir()
    for name in SETS["speech_commands_noise"].layouts[0].files:
        path = root / "_background_noise_" / name
        path.write_bytes(wav(generator.normal(0, 3000, 80_000), 16_000))
    return written


def pack_212(samples: np.ndarray) -> bytes:
    pairs = samples.reshape(-1, 2).astype(int) & 0xFFF
    return b"".join(bytes([a & 255, (a >> 8) | (b >> 8) << 4, b & 255]) for a, b in pairs)


def write_mitbih(folder: Path) -> dict[str, tuple[np.ndarray, list[tuple[int, str]]]]:
    """Every record of the split, one minute each: spikes, and an annotation at each."""
    codes = {symbol: code for code, symbol in ecg_files.SYMBOLS.items()}
    written = {}
    with zipfile.ZipFile(folder / "mit-bih-arrhythmia-database-1.0.0.zip", "w") as archive:
        for record in [r for names in ecg.RECORDS.values() for r in names]:
            marks = [(1500, "+"), (1600, "N"), (1900, "V"), (2200, "A"), (2500, "Q"), (2800, "F")]
            leads = np.random.default_rng(record).integers(-30, 30, (3000, 2))
            for at, _ in marks:
                leads[at] += 900
            raw, before = b"", 0
            for at, symbol in marks:
                step = at - before
                if step > 1023:  # a long interval, high word first
                    raw += struct.pack("<HHH", 59 << 10, step >> 16, step & 0xFFFF)
                    step = 0
                raw += struct.pack("<H", codes[symbol] << 10 | step)
                if symbol == "+":
                    raw += struct.pack("<H", 63 << 10 | 3) + b"(N\0\0"
                raw += struct.pack("<H", 62 << 10 | 1)  # channel: no time
                before = at
            name = f"mit-bih-arrhythmia-database-1.0.0/{record}"
            head = f"{record} 2 360 3000\n{record}.dat 212 200 11 1024 0 0 0 MLII\n# 69 M\n"
            archive.writestr(f"{name}.hea", head)
            archive.writestr(f"{name}.dat", pack_212(leads))
            archive.writestr(f"{name}.atr", raw + b"\0\0")
            written[str(record)] = (leads[:, 0], marks)
    return written


def article(lines: int) -> str:
    """An article in WikiText's format: a title, and lines with spaces around every word."""
    words = ("the", "caf\u00e9", "of", "Wiki", "@-@", "text", ",")
    text = [" ".join(words[(i * k) % 7] for k in range(1, 6)) for i in range(1, lines)]
    return " = Title = \n" + "".join(f" {line} . \n" for line in text)


def wikipedia(count: int = 50, length: int = 120) -> bytes:
    """Pages as in enwik8, with random letters."""
    letters = np.random.default_rng(0).integers(97, 123, (count, length), dtype=np.uint8)
    return b"".join(page(f"Page {n}", text.tobytes()) for n, text in enumerate(letters))


def page(title: str, text: bytes) -> bytes:
    """A page of enwik8."""
    return (
        f'  <page>\n    <title>{title}</title>\n    <text xml:space="preserve">'.encode()
        + text
        + b"</text>\n  </page>\n"
    )


def write_enwik8(folder: Path, monkeypatch, content: bytes) -> None:
    """enwik8's archive with this content, which the reader takes for the real one."""
    with zipfile.ZipFile(folder / "enwik8.zip", "w") as archive:
        archive.writestr("enwik8", content)
    monkeypatch.setattr(texts, "ENWIK8_SIZE", len(content))


def write_wikitext2_tokens(folder: Path, monkeypatch, texts_of: dict[str, str]) -> None:
    """WikiText-2's archive of words with these texts, which the loader takes for the real ones."""
    with zipfile.ZipFile(folder / "wikitext-2-v1.zip", "w") as archive:
        for split, text in texts_of.items():
            archive.writestr(f"wikitext-2/wiki.{split}.tokens", text)
    sums = {split: hashlib.sha256(text.encode()).hexdigest() for split, text in texts_of.items()}
    monkeypatch.setattr(texts, "WIKITEXT2_TOKENS", sums)


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """All sets, tiny. (Fixed sizes in their definitions are patched.)"""
    write_mnist(tmp_path)
    write_cifar(tmp_path)
    write_imdb(tmp_path)
    write_aan(tmp_path)
    write_sounds(tmp_path)
    write_words(tmp_path)
    write_mitbih(tmp_path)
    write_enwik8(tmp_path, monkeypatch, bytes(i % 251 for i in range(1000)) + wikipedia())
    for version in ("103", "2"):
        with zipfile.ZipFile(tmp_path / f"wikitext-{version}-raw-v1.zip", "w") as archive:
            for split, lines in (("train", 40), ("valid", 4), ("test", 4)):
                archive.writestr(f"wikitext-{version}-raw/wiki.{split}.raw", article(lines))
    write_wikitext2_tokens(
        tmp_path, monkeypatch, {"train": article(40), "valid": article(4), "test": article(4)}
    )
    (tmp_path / "book.txt").write_text(article(60))
    rows = [f"{n},{(n * t) % 7},{'ab'[n % 2]}" for n in range(40) for t in range(5 + n % 5)]
    (tmp_path / "series.csv").write_text("\n".join(("id,value,label", *rows)))
    monkeypatch.setattr(enwik8_task, "ENDS", {"train": 900, "valid": 950, "test": 1000})
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path / "nothing"))
    monkeypatch.delenv("SURNN_DATA", raising=False)
    return tmp_path


OPTIONS = {
    "enwik8": {"context": 16},
    "wikitext103": {"context": 16, "tokens": "bytes"},
    "wikitext2": {"context": 16, "tokens": "bytes"},
    "wikitext2_words": {"context": 16, "vocabulary": 11},
    "text_file": {"context": 16, "path": "book.txt"},
    "ecg_beats": {"window": 500},
    "spoken_digits": {"seconds": 0.5},
    "keyword_stream": {"seconds": 5.0, "test_seconds": 6.0, "test_hours": 0.02},
    "lra_text": {"max_length": 32},
    "lra_retrieval": {"max_length": 12},
    "article_pairs": {"length": 40},
    "sequences": {
        "path": "series.csv", "goal": "classify", "metric": "accuracy", "weights": "none",
        "channels": ("value",), "classes": ("a", "b"), "balance": (0.5, 0.5), "length": 9,
    },
}  # fmt: skip


def ready(name: str, data: Path, **options):
    task = load_task(name)(**(OPTIONS.get(name, {}) | options))
    task.prepare(CPU, data)
    return task


def in_stored_order(task: Task, split: Split) -> Batch:
    """A whole fixed set, in the order of its files."""
    count = task.size(split)
    assert count is not None
    back = order(count, 0, 0).argsort()
    batch = task.batch(split, 0, count, 0, CPU)
    return Batch(*[None if part is None else part[back] for part in batch])  # type: ignore[arg-type]


def same(one: Batch, other: Batch) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a is b is None or (a is not None and torch.equal(a, b)) for a, b in pairs)


SMALL_TASKS: dict[str, dict] = {
    **OPTIONS,
    "copying": {"delay": 10},
    "selective_copy": {"body": 40, "data": 4},
    "state_tracking": {"length": 40, "events": 4},
    "listops": {"train": 40, "valid": 8, "test": 8},
    "pathfinder": {"images": 40},
    "mackey_glass": {"length": 200, "series": 16, "horizons": (5, 9)},
}
"""Options that make each task small."""
