"""Tasks on stored data: tiny sets in their canonical formats, and the real ones where they are."""

import gzip
import io
import math
import os
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from surnn.data import ecg as ecg_files
from surnn.data import images, sounds, texts
from surnn.tasks import TASKS, ecg, load_task, spoken_digits
from surnn.tasks import enwik8 as enwik8_task
from surnn.tasks.base import Batch, Tokens
from surnn.tasks.cifar import LraImage, SequentialCifar, crop_and_flip, to_grey
from surnn.tasks.ecg import EcgBeats
from surnn.tasks.enwik8 import Enwik8
from surnn.tasks.mnist import PermutedMnist, SpikingPermutedMnist, bit_reversal
from surnn.tasks.retrieval import LraRetrieval
from surnn.tasks.spoken_digits import SpokenDigits
from surnn.tasks.stored import Ragged
from surnn.tasks.text import LraText

CPU = torch.device("cpu")
REAL = (
    "smnist", "psmnist", "spiking_psmnist", "scifar", "lra_image", "lra_text", "lra_retrieval",
    "ecg_beats", "spoken_digits", "enwik8",
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
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    for name, array in zip(names, drawn, strict=True):
        head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        (folder / f"{name}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))
    return drawn[0], drawn[1]


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
    for name in ("white_noise", "pink_noise"):
        path = folder / "_background_noise_" / f"{name}.wav"
        path.write_bytes(wav(generator.normal(0, 3000, 80_000), 16_000))


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


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """All sets, tiny. (Those whose size is part of their definition are defined smaller.)"""
    write_mnist(tmp_path)
    write_cifar(tmp_path)
    write_imdb(tmp_path)
    write_aan(tmp_path)
    write_sounds(tmp_path)
    write_mitbih(tmp_path)
    with zipfile.ZipFile(tmp_path / "enwik8.zip", "w") as archive:
        archive.writestr("enwik8", bytes(i % 251 for i in range(1000)))
    monkeypatch.setattr(texts, "ENWIK8_SIZE", 1000)
    monkeypatch.setattr(enwik8_task, "ENDS", {"train": 900, "valid": 950, "test": 1000})
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path / "nothing"))
    monkeypatch.delenv("SURNN_DATA", raising=False)
    return tmp_path


OPTIONS = {
    "enwik8": {"context": 16},
    "ecg_beats": {"window": 500},
    "spoken_digits": {"seconds": 0.5},
    "lra_text": {"max_length": 32},
    "lra_retrieval": {"max_length": 12},
}


def ready(name: str, data: Path, **options):
    task = load_task(name)(**OPTIONS.get(name, {}), **options)
    task.prepare(CPU, data)
    return task


def same(one: Batch, other: Batch) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a is b is None or (a is not None and torch.equal(a, b)) for a, b in pairs)


# ------------------------------------------------------------ what all tasks promise


def test_the_names_are_registered():
    for name in REAL:
        assert name in TASKS
        assert load_task(name).name == name


@pytest.mark.parametrize("name", REAL)
def test_batches_keep_the_contract(data, name):
    task, size = ready(name, data), 4
    features = () if isinstance(task.input, Tokens) else (task.input.features,)
    for split in ("train", "valid", "test"):
        count = task.size(split)
        number = 0 if split == "train" else (count - 1) // size  # the last, maybe smaller
        batch = task.batch(split, number, size, 3, CPU)
        rows = size if split == "train" else count - number * size
        steps = batch.x.shape[2 if task.output.pairs else 1]
        lead = (rows, 2) if task.output.pairs else (rows,)
        assert batch.x.shape == (*lead, steps, *features)
        assert 0 < steps <= task.steps
        assert batch.target.shape == ((rows,) if task.output.per == "sequence" else (rows, steps))
        if batch.lengths is not None:
            assert batch.lengths.shape == lead
            assert 1 <= batch.lengths.min() <= batch.lengths.max() <= steps
        if task.kinds:
            assert batch.kinds.shape == (rows, steps)
            assert set(batch.kinds.unique().tolist()) <= set(range(len(task.kinds)))
        assert same(batch, task.batch(split, number, size, 3, CPU))
        prediction = torch.randn(*batch.target.shape, task.output.size, requires_grad=True)
        task.loss(prediction, batch).backward()
        assert prediction.grad.isfinite().all()
        assert math.isfinite(task.score(prediction, batch).value)
    with pytest.raises(IndexError, match="there is no batch"):
        task.batch("test", task.size("test"), 1, 0, CPU)


@pytest.mark.parametrize("name", REAL)
def test_training_is_shuffled_by_seed_and_epoch(data, name):
    task = ready(name, data)
    epoch = task.size("train") // 4
    first = task.batch("train", 0, 4, 0, CPU)
    assert not same(first, task.batch("train", 0, 4, 1, CPU))
    assert not same(first, task.batch("train", epoch, 4, 0, CPU))


@pytest.mark.parametrize("name", REAL)
def test_unprepared_tasks_say_so(name):
    with pytest.raises(RuntimeError, match=r"call prepare\(device\)"):
        load_task(name)().batch("train", 0, 2, 0, CPU)


@pytest.mark.parametrize("name", REAL)
def test_evaluation_does_not_depend_on_batch_size(data, name):
    task = ready(name, data)
    whole = task.batch("test", 0, 4, 0, CPU)
    half = task.batch("test", 1, 2, 5, CPU)
    width = half.x.shape[2 if task.output.pairs else 1]
    cut = whole.x[2:4, :, :width] if task.output.pairs else whole.x[2:4, :width]
    torch.testing.assert_close(cut, half.x)  # a transform's last bit may depend on the shape


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", REAL)
def test_a_gpu_has_the_same_sequences(data, name):
    here, there = ready(name, data), ready(name, data)
    gpu = torch.device("cuda")
    there.prepare(gpu, data)
    for split in ("valid", "test"):
        found = there.batch(split, 0, 2, 0, gpu)
        assert all(part is None or part.is_cuda for part in found)
        expected = here.batch(split, 0, 2, 0, CPU)
        torch.testing.assert_close(found.x.cpu(), expected.x, rtol=1e-3, atol=1e-3)
        assert torch.equal(found.target.cpu(), expected.target)
    batch = there.batch("train", 1, 2, 0, gpu)
    assert same(batch, there.batch("train", 1, 2, 0, gpu))
    prediction = torch.randn(*batch.target.shape, there.output.size, device=gpu)
    assert there.loss(prediction, batch).isfinite()
    assert there.score(prediction, batch).count > 0


@pytest.mark.parametrize(
    ("task", "option"),
    [
        (PermutedMnist, {"permutation": "odd"}),
        (SequentialCifar, {"augment": "odd"}),
        (LraText, {"vocabulary": "odd"}),
        (LraText, {"max_length": 0}),
        (LraRetrieval, {"max_length": 0}),
        (SpokenDigits, {"background": "odd"}),
        (SpokenDigits, {"seconds": 0.001}),
        (EcgBeats, {"window": 0}),
        (Enwik8, {"context": 0}),
    ],
)
def test_wrong_options_are_refused(task, option):
    with pytest.raises(ValueError, match="expected"):
        task(**option)


# ------------------------------------------------------------ images


def test_permutations():
    assert PermutedMnist("torch0").order()[:4].tolist() == [60, 361, 167, 578]
    assert SpikingPermutedMnist().order()[:4].tolist() == [60, 361, 167, 578]
    order = bit_reversal(784)
    assert order[:4].tolist() == [0, 512, 256, 768]
    assert sorted(order) == list(range(784))
    assert bit_reversal(8).tolist() == [0, 4, 2, 6, 1, 5, 3, 7]
    state = np.random.RandomState(50)
    state.permutation(60_000)
    assert (PermutedMnist("nru").order() == state.permutation(784)).all()


def test_mnist_pixels_and_splits(tmp_path):
    drawn, labels = write_mnist(tmp_path)
    task = ready("smnist", tmp_path)
    assert [task.size(s) for s in ("train", "valid", "test")] == [54, 6, 10]
    kept = torch.utils.data.random_split(
        range(60), [54, 6], generator=torch.Generator().manual_seed(42)
    )[1]
    valid = task.batch("valid", 0, 6, 0, CPU)
    expected = drawn[list(kept)].reshape(6, 784, 1) / np.float32(255)
    np.testing.assert_array_equal(valid.x, expected)
    np.testing.assert_array_equal(valid.target, labels[list(kept)])
    permuted = ready("psmnist", tmp_path, permutation="bitreversal").batch("valid", 0, 6, 0, CPU)
    assert torch.equal(permuted.x, valid.x[:, bit_reversal(784)])
    nru = ready("psmnist", tmp_path, permutation="nru")
    assert [nru.size(s) for s in ("train", "valid")] == [50, 10]


def test_cifar_colours(tmp_path):
    pictures = write_cifar(tmp_path)
    batch = ready("scifar", tmp_path).batch("test", 0, 10, 0, CPU)
    mean, std = np.array([0.4914, 0.4822, 0.4465]), np.array([0.247, 0.243, 0.261])
    expected = (pictures[50:].reshape(10, 1024, 3) / 255 - mean) / std
    np.testing.assert_allclose(batch.x, expected, atol=1e-5)
    assert batch.target.tolist() == list(range(10))
    grey = ready("lra_image", tmp_path).batch("test", 0, 10, 0, CPU)
    luma = to_grey(pictures[50:]).reshape(10, 1024, 1)
    np.testing.assert_allclose(grey.x, (luma / 255.0 - 122.6 / 255) / (61 / 255), atol=1e-5)
    assert LraImage(grey=False).input.features == 3


def test_grey_is_pillows():
    image = pytest.importorskip("PIL.Image")
    picture = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    expected = np.asarray(image.fromarray(picture).convert("L"))
    assert (to_grey(picture[None])[0, :, :, 0] == expected).all()


def test_crops_are_shifted_mirrored_and_sometimes_flipped():
    picture = torch.arange(1024).reshape(1, 32, 32, 1)
    found = crop_and_flip(picture.expand(400, 32, 32, 1), torch.Generator().manual_seed(0))
    padded = np.pad(picture[0, :, :, 0].numpy(), 4, mode="symmetric")
    crops = {
        view.tobytes()
        for i in range(9)
        for j in range(9)
        for view in (padded[i : i + 32, j : j + 32], padded[i : i + 32, j : j + 32][:, ::-1])
    }
    seen = {crop[..., 0].numpy().tobytes() for crop in found}
    assert seen <= crops
    assert len(seen) > 120  # of 162


def test_only_training_is_augmented(tmp_path):
    write_cifar(tmp_path)
    plain, varied = (ready("scifar", tmp_path, augment=a) for a in ("none", "crop_flip"))
    assert same(*(t.batch("valid", 0, 4, 0, CPU) for t in (plain, varied)))
    one, other = (t.batch("train", 0, 4, 0, CPU) for t in (plain, varied))
    assert torch.equal(one.target, other.target)
    assert not torch.equal(one.x, other.x)


# ------------------------------------------------------------ texts


def test_reviews_are_bytes(tmp_path):
    write_imdb(tmp_path)
    task = ready("lra_text", tmp_path)
    assert [task.size(s) for s in ("train", "valid", "test")] == [36, 4, 40]
    batch = task.batch("test", 0, 40, 0, CPU)
    assert batch.target.tolist() == [0] * 20 + [1] * 20
    assert bytes(batch.x[0, : batch.lengths[0]].tolist()) == "test 0 bäd".encode()
    assert batch.x[0, batch.lengths[0] :].eq(0).all()
    assert batch.lengths.max() == 32
    everything = ready("lra_text", tmp_path, validation="test")
    assert [everything.size(s) for s in ("train", "valid", "test")] == [40, 40, 40]
    assert same(everything.batch("valid", 1, 8, 0, CPU), everything.batch("test", 1, 8, 0, CPU))


def test_reviews_as_characters(tmp_path):
    write_imdb(tmp_path)
    task = ready("lra_text", tmp_path, vocabulary="characters")
    batch = task.batch("test", 0, 1, 0, CPU)
    assert batch.lengths.item() == len("test 0 bäd") + 1
    assert batch.x[0, -1] == 2  # the end
    assert 1 in batch.x[0].tolist()  # "s" is in no training review
    assert batch.x.max() < task.input.vocabulary < 40
    with pytest.raises(RuntimeError, match="counts characters"):
        _ = LraText(vocabulary="characters").input


def test_pairs_are_read_as_they_stand(tmp_path):
    write_aan(tmp_path)
    task = ready("lra_retrieval", tmp_path)
    assert [task.size(s) for s in ("train", "valid", "test")] == [6, 3, 4]
    batch = task.batch("valid", 0, 3, 0, CPU)
    assert batch.target.tolist() == [0, 1, 0]
    read = bytes(batch.x[2, 1, : batch.lengths[2, 1]].tolist())
    assert read == b'paper "3" xxx'[:12]
    assert batch.lengths.tolist() == [[10, 11], [11, 12], [12, 12]]
    characters = ready("lra_retrieval", tmp_path, vocabulary="characters")
    lengths = characters.batch("valid", 0, 3, 0, CPU).lengths
    assert lengths.tolist() == [[11, 12], [12, 12], [12, 12]]
    (tmp_path / "new_aan_pairs.test.tsv").write_text("1.0\ta\tb\n")
    with pytest.raises(Exception, match=r"new_aan_pairs.test.tsv, line 1: 3 columns instead of 5"):
        task.prepare(CPU, tmp_path)


def test_ragged_rows_of_any_shape():
    ragged = Ragged.of(np.arange(1, 11, dtype=np.uint8), np.array([3, 0, 7]), 5, CPU)
    tokens, lengths = ragged.padded(torch.tensor([[0, 1], [2, 0]]))
    assert lengths.tolist() == [[3, 0], [5, 3]]
    assert tokens[0].tolist() == [[1, 2, 3, 0, 0], [0] * 5]
    assert tokens[1].tolist() == [[4, 5, 6, 7, 8], [1, 2, 3, 0, 0]]


@pytest.mark.parametrize("context", [16, 25])
def test_enwik8_predicts_every_byte_once(data, context):
    task = Enwik8(context)
    task.prepare(CPU, data)
    text = np.arange(1000) % 251
    asked, bits = [], 0.0
    for number in range(-(-task.size("test") // 2)):
        batch = task.batch("test", number, 2, 0, CPU)
        for row in range(len(batch.x)):
            length = context if batch.lengths is None else int(batch.lengths[row])
            asked += batch.target[row, :length].tolist()
            assert (batch.target[row, length:] == -100).all()
            assert batch.x[row, 1:length].tolist() == batch.target[row, : length - 1].tolist()
        score = task.score(torch.zeros(*batch.target.shape, 256), batch)
        bits += score.total.item()
        assert score.value == pytest.approx(8)
    assert asked == text[950:].tolist()
    assert bits == pytest.approx(50 * 8)
    assert task.size("train") == 899 // context
    train = task.batch("train", 0, 2, 0, CPU)
    assert ((train.x[:, 1:] - train.x[:, :-1]) % 251 == 1).all()
    assert torch.equal(train.x[:, 1:], train.target[:, :-1])


def test_enwik8_of_the_wrong_size(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "ENWIK8_SIZE", 7)
    (tmp_path / "enwik8").write_bytes(b"wrong")
    with pytest.raises(Exception, match=r"holds 5 bytes instead of 7"):
        texts.enwik8(tmp_path)


def test_wikitext_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "wikitext-103-raw-v1.zip", "w") as archive:
        for split in ("train", "valid", "test"):
            archive.writestr(f"wikitext-103-raw/wiki.{split}.raw", f" = {split} = \n")
    found = texts.wikitext("wikitext103", tmp_path)
    assert found == {s: f" = {s} = \n".encode() for s in ("train", "valid", "test")}


# ------------------------------------------------------------ sounds


def test_digits_lie_where_their_kinds_say(tmp_path):
    write_sounds(tmp_path)
    task = SpokenDigits(seconds=0.5, background="silence", features="raw")
    task.prepare(CPU, tmp_path)
    assert [task.size(s) for s in ("train", "valid", "test")] == [20, 10, 10]
    batch = task.batch("train", 0, 20, 0, CPU)
    digit = batch.kinds == spoken_digits.DIGIT
    assert batch.x[~digit].eq(0).all()
    assert digit.sum(1).tolist() == [1500 + 10 * d for d in batch.target.tolist()]
    loudness = [x[d].square().mean().sqrt().item() for x, d in zip(batch.x, digit, strict=True)]
    assert loudness == pytest.approx([1.0] * 20, rel=1e-4)


@pytest.mark.parametrize("background", ["noise", "white"])
def test_noise_has_the_wanted_power(tmp_path, background):
    write_sounds(tmp_path)
    options = {"seconds": 0.5, "background": background, "features": "raw"}
    task = SpokenDigits(snr_db=20, **options)
    task.prepare(CPU, tmp_path)
    batch = task.batch("train", 1, 10, 0, CPU)
    spoken = SpokenDigits(**{**options, "background": "silence"})
    spoken.prepare(CPU, tmp_path)
    clean = spoken.batch("train", 1, 10, 0, CPU).x
    noise = (batch.x - clean).square().mean(1).sqrt()
    torch.testing.assert_close(noise, torch.full_like(noise, 0.1), rtol=1e-3, atol=0)


def test_filter_banks(tmp_path):
    write_sounds(tmp_path)
    task = ready("spoken_digits", tmp_path)
    assert task.steps == 1 + (4000 - 200) // 80
    tone = torch.sin(torch.arange(4000) * 2 * math.pi * 1000 / 8000)[None]
    bands = spoken_digits.log_bands(tone)
    assert bands.shape == (1, task.steps, 40)
    edges = spoken_digits._mel_bands()
    assert bands[0, 10].argmax() == edges[round(1000 / 8000 * 256)].argmax()
    some = task.batch("train", 0, 20, 0, CPU).x
    assert abs(some.mean()) < 0.5
    assert 0.5 < some.std() < 2


def test_long_clips_are_cut(tmp_path):
    write_sounds(tmp_path)
    task = SpokenDigits(seconds=0.1, background="white")
    task.prepare(CPU, tmp_path)
    batch = task.batch("valid", 0, 10, 0, CPU)
    assert (batch.kinds == spoken_digits.DIGIT).all()


def test_wav_files_of_another_rate_are_refused(tmp_path):
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "1_ann_0.wav").write_bytes(wav(np.zeros(9), 44100))
    with pytest.raises(Exception, match="expected 16-bit mono PCM at 8000 Hz"):
        sounds.fsdd(tmp_path)


# ------------------------------------------------------------ electrocardiograms


def test_wfdb_files_are_read(tmp_path):
    written = write_mitbih(tmp_path)
    found = ecg_files.mitbih(tmp_path)
    assert found.keys() == written.keys()
    for name, (signal, marks) in written.items():
        np.testing.assert_array_equal(found[name].signal, signal)
        assert list(zip(found[name].at.tolist(), found[name].symbols, strict=True)) == marks


def test_beats_are_marked_with_a_delay(tmp_path):
    write_mitbih(tmp_path)
    task = EcgBeats(window=3000, delay=10, mark=2)
    task.prepare(CPU, tmp_path)
    batch = task.batch("test", 0, 1, 0, CPU)
    target = batch.target[0]
    for at, kind in ((1600, 1), (1900, 3), (2200, 2), (2800, 4)):
        assert target[at + 8 : at + 13].tolist() == [kind] * 5
        assert target[at + 7] == target[at + 13] == 0
    assert (target[2510 - 54 : 2510 + 55] == -100).all()
    assert (target[1500:1580] == 0).all()  # a change of rhythm is no beat
    assert batch.kinds[0, 1600 - 36 : 1600 + 37].eq(0).all()
    assert batch.kinds[0, :1500].eq(1).all()
    assert batch.x.mean().abs() < 1e-5
    assert batch.x.std().item() == pytest.approx(1, abs=1e-3)


def one_hot(labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(labels.clamp(min=0), 5).float()


def test_beat_f1():
    task, target = EcgBeats(window=1000), torch.zeros(2, 1000, dtype=torch.long)
    target[0, 100:111] = 1
    target[0, 500:511] = 3
    target[1, 0:6] = 2  # cut off by the window's edge
    target[1, 700:800] = -100
    batch = Batch(torch.zeros(2, 1000, 1), target)
    assert task.score(one_hot(target), batch).value == 1
    assert task.score(one_hot(torch.zeros_like(target)), batch).value == 0
    found = torch.zeros_like(target)
    found[0, 155] = 1  # 50 late: found
    found[0, 90] = 1  # the same beat once more: wrong
    found[0, 565] = 3  # 60 late: wrong, and the beat is missed
    found[1, 3] = 1  # found, of the wrong type
    found[1, 750] = 4  # nothing is asked here
    score = task.score(one_hot(found), batch)
    assert (score.total.item(), score.count.item()) == (2 * 2, 4 + 3)
    typed = EcgBeats(window=1000, typed=True).score(one_hot(found), batch)
    assert (typed.total.item(), typed.count.item()) == (2 * 1, 4 + 3)


def test_missing_records_are_named(tmp_path):
    write_mitbih(tmp_path)
    with zipfile.ZipFile(tmp_path / "mit-bih-arrhythmia-database-1.0.0.zip") as archive:
        archive.extractall(tmp_path)
    (tmp_path / "mit-bih-arrhythmia-database-1.0.0.zip").unlink()
    (tmp_path / "mit-bih-arrhythmia-database-1.0.0" / "205.atr").unlink()
    with pytest.raises(Exception, match="records 205 are missing"):
        EcgBeats().prepare(CPU, tmp_path)


# ------------------------------------------------------------ the real sets, where they are

FOLDER = os.environ.get("SURNN_TEST_DATA")
SIZES = {
    "smnist": (54_000, 6_000, 10_000),
    "psmnist": (54_000, 6_000, 10_000),
    "scifar": (45_000, 5_000, 10_000),
    "lra_image": (45_000, 5_000, 10_000),
    "lra_text": (22_500, 2_500, 25_000),
    "ecg_beats": (2_844, 632, 3_476),
    "spoken_digits": (2_400, 300, 300),
    "enwik8": (87_890, 4_883, 4_883),
}


@pytest.mark.skipif(not FOLDER, reason="SURNN_TEST_DATA does not name a folder with the real sets")
@pytest.mark.parametrize("name", SIZES)
def test_the_real_sets(name):
    task = load_task(name)()
    task.prepare(CPU, Path(str(FOLDER)))
    assert tuple(task.size(s) for s in ("train", "valid", "test")) == SIZES[name]
    batch = task.batch("train", 5, 8, 0, CPU)
    prediction = torch.randn(*batch.target.shape, task.output.size)
    assert task.loss(prediction, batch).isfinite()
    if batch.x.is_floating_point():
        assert abs(batch.x.mean()) < 1
        assert 0.2 < batch.x.std() < 3


@pytest.mark.skipif(not FOLDER, reason="SURNN_TEST_DATA does not name a folder with the real sets")
def test_real_labels_go_with_their_images():
    """Mean images tell digits apart, if labels and images belong together."""
    found = images.mnist(Path(str(FOLDER)))
    flat = found.train.reshape(-1, 784).astype(np.float32)
    means = np.stack([flat[found.train_labels == digit].mean(0) for digit in range(10)])
    test = found.test.reshape(-1, 784).astype(np.float32)
    distance = (means**2).sum(1) - 2 * test @ means.T
    assert (distance.argmin(1) == found.test_labels).mean() == pytest.approx(0.8203, abs=1e-3)
