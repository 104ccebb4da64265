"""Tasks on images and texts, on tiny sets."""

import tarfile
import zipfile

import numpy as np
import pytest
import torch

from helpers.tiny_sets import (
    CPU,
    add,
    in_stored_order,
    ready,
    same,
    write_aan,
    write_cifar,
    write_imdb,
    write_mnist,
)
from surnn.data import DataError, texts
from surnn.tasks.batching import Ragged
from surnn.tasks.cifar import LraImage, crop_and_flip, to_grey
from surnn.tasks.enwik8 import Enwik8
from surnn.tasks.mnist import PermutedMnist, SpikingPermutedMnist, bit_reversal, shifted
from surnn.tasks.text import LraText

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
    valid = in_stored_order(task, "valid")
    expected = drawn[list(kept)].reshape(6, 784, 1) / np.float32(255)
    np.testing.assert_array_equal(valid.x, expected)
    np.testing.assert_array_equal(valid.target, labels[list(kept)])
    permuted = in_stored_order(ready("psmnist", tmp_path, permutation="bitreversal"), "valid")
    assert torch.equal(permuted.x, valid.x[:, bit_reversal(784)])
    nru = ready("psmnist", tmp_path, permutation="nru")
    assert [nru.size(s) for s in ("train", "valid")] == [50, 10]


def test_digits_are_shifted_by_up_to_two_pixels_each_way():
    picture = torch.arange(1, 785, dtype=torch.uint8).view(1, 28, 28)
    found = shifted(picture.expand(400, 28, 28), torch.Generator().manual_seed(0))
    framed = torch.zeros(32, 32, dtype=torch.uint8)
    framed[2:30, 2:30] = picture
    places = [framed[r : r + 28, c : c + 28] for r in range(5) for c in range(5)]
    assert {each.numpy().tobytes() for each in found} == {
        each.contiguous().numpy().tobytes() for each in places
    }


def test_only_training_images_are_shifted_and_before_they_are_permuted(tmp_path):
    write_mnist(tmp_path)
    plain, moved = (ready("psmnist", tmp_path, augment=a) for a in ("none", "shift"))
    for split in ("valid", "test"):
        assert torch.equal(in_stored_order(plain, split).x, in_stored_order(moved, split).x)
    rows = [task.batch("train", 0, 16, 3, torch.device("cpu")) for task in (plain, moved)]
    assert torch.equal(rows[0].target, rows[1].target)
    assert not torch.equal(rows[0].x, rows[1].x)
    back = [batch.x[:, np.argsort(bit_reversal(784)), 0].view(16, 28, 28) for batch in rows]
    for still, other in zip(*back, strict=True):
        at = [other[r : r + 24, c : c + 24] for r in range(5) for c in range(5)]
        assert sum(torch.equal(still[2:26, 2:26], each) for each in at) >= 1


def test_cifar_colours(tmp_path):
    pictures = write_cifar(tmp_path)
    batch = in_stored_order(ready("scifar", tmp_path), "test")
    mean, std = np.array([0.4914, 0.4822, 0.4465]), np.array([0.247, 0.243, 0.261])
    expected = (pictures[50:].reshape(10, 1024, 3) / 255 - mean) / std
    np.testing.assert_allclose(batch.x, expected, atol=1e-5)
    assert batch.target.tolist() == list(range(10))
    grey = in_stored_order(ready("lra_image", tmp_path), "test")
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
    batch = in_stored_order(task, "test")
    assert batch.lengths is not None
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
    batch = in_stored_order(task, "test")
    assert batch.lengths is not None
    assert batch.lengths[0] == len("test 0 bäd") + 1
    assert batch.x[0, batch.lengths[0] - 1] == 2  # the end
    assert 1 in batch.x[0].tolist()  # "s" is in no training review
    assert batch.x.max() < task.input.vocabulary < 40
    with pytest.raises(RuntimeError, match="prepare"):
        _ = LraText(vocabulary="characters").input


def test_pairs_are_read_as_they_stand(tmp_path):
    write_aan(tmp_path)
    task = ready("lra_retrieval", tmp_path)
    assert [task.size(s) for s in ("train", "valid", "test")] == [6, 3, 4]
    batch = in_stored_order(task, "valid")
    assert batch.lengths is not None
    assert batch.target.tolist() == [0, 1, 0]
    read = bytes(batch.x[2, 1, : batch.lengths[2, 1]].tolist())
    assert read == b'paper "3" xxx'[:12]
    assert batch.lengths.tolist() == [[10, 11], [11, 12], [12, 12]]
    characters = ready("lra_retrieval", tmp_path, vocabulary="characters")
    lengths = in_stored_order(characters, "valid").lengths
    assert lengths is not None
    assert lengths.tolist() == [[11, 12], [12, 12], [12, 12]]
    (tmp_path / "new_aan_pairs.test.tsv").write_text("1.0\ta\tb\n")
    with pytest.raises(Exception, match=r"new_aan_pairs.test.tsv, line 1: 3 columns instead of 5"):
        task.prepare(CPU, tmp_path)


@pytest.mark.parametrize("name", ["lra_text", "lra_retrieval"])
def test_texts_can_have_one_length(tmp_path, name):
    write_imdb(tmp_path)
    write_aan(tmp_path)
    short = ready(name, tmp_path, max_length=400).batch("valid", 0, 2, 0, CPU)
    whole = ready(name, tmp_path, max_length=400, one_length=True).batch("valid", 0, 2, 0, CPU)
    steps = short.x.shape[-1]
    assert steps < whole.x.shape[-1] == 400
    assert (whole.x[..., :steps] == short.x).all()
    assert not whole.x[..., steps:].any()
    assert (whole.lengths == short.lengths).all()


@pytest.mark.parametrize("vocabulary", ["bytes", "characters"])
def test_an_empty_document_has_a_step(tmp_path, vocabulary):
    """Without one, its mean over steps is NaN, and so is all that is learned from it."""
    write_aan(tmp_path)
    (tmp_path / "new_aan_pairs.eval.tsv").write_text("1.0\ta\tb\tpaper\t\n")
    batch = ready("lra_retrieval", tmp_path, vocabulary=vocabulary).batch("valid", 0, 1, 0, CPU)
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [[5 + (vocabulary == "characters"), 1]]
    assert batch.x[0, 1, 0] == (0 if vocabulary == "bytes" else 2)


def test_an_empty_review_is_named(tmp_path):
    for split in ("train", "test"):
        for label in ("neg", "pos"):
            folder = tmp_path / "aclImdb" / split / label
            folder.mkdir(parents=True)
            (folder / "0_7.txt").write_text("fine")
    (tmp_path / "aclImdb" / "test" / "pos" / "0_7.txt").write_text("")
    with pytest.raises(DataError, match=r"the review test/pos/0_7.txt is empty"):
        texts.imdb(tmp_path)


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
    assert sorted(asked) == sorted(text[950:].tolist())
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
    expected = {s: f" = {s} = \n".encode() for s in ("train", "valid", "test")}
    assert texts.wikitext("wikitext103", tmp_path) == expected


def test_wikitext_archive_of_something_else(tmp_path):
    with zipfile.ZipFile(tmp_path / "wikitext-103-raw-v1.zip", "w") as archive:
        archive.writestr("wikitext-103-raw/README", "nothing")
    with pytest.raises(DataError, match=r"holds no wiki.train.*surnn data get wikitext103"):
        texts.wikitext("wikitext103", tmp_path)


def test_words_beside_the_raw_text_are_not_read_in_its_place(tmp_path):
    for split in ("train", "valid", "test"):
        for form in ("raw", "tokens"):
            (tmp_path / f"wiki.{split}.{form}").write_text(form)
    assert set(texts.wikitext("wikitext2", tmp_path).values()) == {b"raw"}
    assert set(texts.wikitext("wikitext2_tokens", tmp_path, "tokens").values()) == {b"tokens"}


def test_wikitext_folder(tmp_path):
    folder = tmp_path / "wikitext103" / "wikitext-103-raw"
    folder.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        with pytest.raises(DataError, match="surnn data get wikitext103"):
            texts.wikitext("wikitext103", tmp_path)
        (folder / f"wiki.{split}.raw").write_text(f" = {split} = \n")
    expected = {s: f" = {s} = \n".encode() for s in ("train", "valid", "test")}
    assert texts.wikitext("wikitext103", tmp_path) == expected


def test_wikitext_without_its_training_split(tmp_path):
    with tarfile.open(tmp_path / "wikitext2_valid_test_only.tar.xz", "w:xz") as archive:
        add(archive, "wikitext-2-raw/wiki.valid.raw", b" = valid = ")
        add(archive, "wikitext-2-raw/wiki.test.raw", b" = test = ")
    assert texts.wikitext("wikitext2", tmp_path) == {"valid": b" = valid = ", "test": b" = test = "}
