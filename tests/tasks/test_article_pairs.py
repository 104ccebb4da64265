"""Pairs of passages from articles, and which pages of enwik8 are articles."""

import numpy as np
import pytest
import torch

from helpers.tiny_sets import CPU, page, ready, wikipedia, write_enwik8
from surnn.data import DataError
from surnn.data import wikipedia as reader

LENGTH = 40


def every_pair(task, split, seed=0):
    """All pairs of a split, or of the first epoch of training."""
    batches = [task.batch(split, n, 2, seed, CPU) for n in range(task.size(split) // 2)]
    return torch.cat([b.x for b in batches]), torch.cat([b.target for b in batches])


@pytest.fixture
def task(tmp_path, monkeypatch):
    """Articles of 80 to 129 bytes; each byte says which article it is from."""
    texts = [bytes([100 + n]) * (2 * LENGTH + n) for n in range(50)]
    pages = b"".join(page(str(n), text) for n, text in enumerate(texts))
    write_enwik8(tmp_path, monkeypatch, pages)
    monkeypatch.setattr(reader, "MOST_SHARED", 1.0)
    return ready("article_pairs", tmp_path)


def test_labels_say_whether_passages_are_from_one_article(task):
    for split in ("train", "valid", "test"):
        x, label = every_pair(task, split)
        assert x.shape[1:] == (2, LENGTH)
        assert (x == x[:, :, :1]).all()  # a passage is from a single article
        assert torch.equal(label == 1, x[:, 0, 0] == x[:, 1, 0])
        assert label.float().mean() == 0.5


def test_a_single_passage_says_nothing_about_the_class(task):
    """In a round each article is once the first passage of a pair and once the second."""
    rounds = {"train": 1, "valid": 4, "test": 8}
    for split, count in rounds.items():
        x, _ = every_pair(task, split)
        for place in (0, 1):
            _, times = x[:, place, 0].unique(return_counts=True)
            assert (times == count).all()


def test_no_article_is_in_two_splits(task):
    articles = [set(every_pair(task, s)[0].unique().tolist()) for s in ("train", "valid", "test")]
    assert [len(each) for each in articles] == [42, 4, 4]
    assert len(set.union(*articles)) == 50


def test_passages_of_a_pair_do_not_overlap_and_are_anywhere(tmp_path, monkeypatch):
    texts = [bytes(range(n, n + 100)) for n in range(50)]  # a byte says where it is
    write_enwik8(tmp_path, monkeypatch, b"".join(page(str(n), t) for n, t in enumerate(texts)))
    monkeypatch.setattr(reader, "MOST_SHARED", 1.0)
    task = ready("article_pairs", tmp_path)
    gaps, places = set(), set()
    for seed in range(40):
        x, label = every_pair(task, "train", seed)
        first, second = x[label == 1, :, 0].t()
        assert (second - first >= LENGTH).all()
        gaps |= set((second - first - LENGTH).tolist())
        places |= set((x[label == 1, 1, -1] - x[label == 1, 0, 0]).tolist())
    assert gaps == set(range(21))
    assert max(places) == 99


def test_epochs_draw_other_passages(tmp_path, monkeypatch):
    write_enwik8(tmp_path, monkeypatch, wikipedia())
    task = ready("article_pairs", tmp_path)
    per_epoch = task.size("train") // 2
    passages = {
        bytes(row.tolist())
        for number in range(3 * per_epoch)
        for row in task.batch("train", number, 2, 0, CPU).x.flatten(0, 1)
    }
    assert len(passages) > 2.5 * 2 * task.size("train")


def test_few_articles_are_refused(tmp_path, monkeypatch):
    write_enwik8(tmp_path, monkeypatch, wikipedia(39))
    with pytest.raises(ValueError, match="39 articles; expected at least 40"):
        ready("article_pairs", tmp_path)


def letters(seed: int, count: int = 20_000) -> bytes:
    return np.random.default_rng(seed).integers(97, 123, count, dtype=np.uint8).tobytes()


def test_near_duplicates_short_pages_and_other_namespaces_are_left_out(tmp_path, monkeypatch):
    pages = {
        "alone": letters(0),
        "edited": letters(1),
        "edited again": letters(1)[:9000] + b"*" + letters(1)[9001:],
        "contained": letters(2, 4000),
        "contains": letters(2, 4000) + letters(3),
        "shares a twentieth": letters(4, 19_000) + letters(0)[:1000],
        "short": letters(5, 3999),
        "Wikipedia:Rules": letters(6),
        "Star Wars: Two": letters(7),
        "": letters(8),
    }
    content = b'<namespace key="0"></namespace><namespace key="4">Wikipedia</namespace>'
    content += b"".join(page(title, text) for title, text in pages.items())
    write_enwik8(tmp_path, monkeypatch, content + b"<title>cut</title> <text ")
    names = {text: title for title, text in pages.items()}
    kept = [names[text] for text in reader.articles(4000, tmp_path)]
    # "contains" shares a sixth of its text.
    assert kept == ["alone", "shares a twentieth", "Star Wars: Two", ""]
    with pytest.raises(DataError, match="no articles of 50,000 bytes"):
        reader.articles(50_000, tmp_path)


def test_shares_are_those_of_the_windows():
    ours, theirs = letters(0, 50_000), letters(1, 50_000)
    mixed = ours[:15_000] + theirs[:35_000]
    shares = reader.shared([ours, theirs, mixed, letters(2)])
    np.testing.assert_allclose(shares, [0.3, 0.7, 1, 0], atol=0.05)
    assert reader.shared([b"short", b"short"]).tolist() == [0, 0]
