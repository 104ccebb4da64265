"""Speech Commands: the front end, the canonical wav files, and the packed arrays."""

import io
import lzma
import math
import tarfile

import numpy as np
import pytest

from helpers.tiny_sets import add, wav, write_words
from surnn.data import DataError, find, speech
from surnn.data.sounds import noise

generator = np.random.default_rng(0)
t = np.arange(16_000) / 16_000
CLIPS = {
    "a tone": 8000 * np.sin(2 * np.pi * 440 * t),
    "a sweep": 20_000 * np.sin(2 * np.pi * (100 + 3000 * t) * t),
    "noise": generator.normal(0, 3000, 16_000),
    "silence": np.zeros(16_000),
    "full scale": 32767 * np.sign(np.sin(2 * np.pi * 1000 * t)),
    "short": generator.normal(0, 300, 5000),
    "one sample": np.array([12_345.0]),
    "long": generator.normal(0, 30, 20_000),
}


def by_definition(samples: np.ndarray) -> np.ndarray:
    """The frames as the README of the packed files describes them, number by number: a plain DFT
    and plain loops."""
    clip = [int(s) / 32768 for s in samples[:16_000]] + [0.0] * max(0, 16_000 - len(samples))
    low, high = (2595 * math.log10(1 + f / 700) for f in (20, 8000))
    edges = [700 * (10 ** ((low + (high - low) * i / 41) / 2595) - 1) for i in range(42)]
    angle = 2 * np.pi * np.outer(np.arange(321), np.arange(640)) / 640
    cosine, sine = np.cos(angle), np.sin(angle)
    out = np.zeros((49, 40), np.uint8)
    for frame in range(49):
        part = np.array(clip[320 * frame : 320 * frame + 640])
        windowed = part * np.array(
            [0.5 - 0.5 * math.cos(2 * math.pi * i / 640) for i in range(640)]
        )
        power = (cosine @ windowed) ** 2 + (sine @ windowed) ** 2
        for band in range(40):
            a, b, c = edges[band : band + 3]
            total = 0.0
            for k in range(321):
                f = 25 * k
                if a < f < c:
                    total += power[k] * ((f - a) / (b - a) if f <= b else (c - f) / (c - b))
            v = math.log(total + 1e-6)
            out[frame, band] = min(255, max(0, round((v + 14) * 255 / 24)))
    return out


@pytest.mark.parametrize("name", CLIPS)
def test_the_front_end_is_its_definition(name):
    samples = CLIPS[name].astype(np.int16)
    assert np.array_equal(speech.log_mel(samples), by_definition(samples))


def test_silence_is_finite_and_full_scale_is_clipped():
    assert (speech.log_mel(np.zeros(16_000, np.int16)) == 2).all()  # ln 1e-6
    loud = speech.log_mel(CLIPS["full scale"].astype(np.int16))
    assert loud.max() == 255  # clipped; a full-scale tone is 10.1


@pytest.mark.parametrize(
    ("name", "split"),
    [  # of the official lists
        ("012c8314_nohash_0.wav", 0), ("00176480_nohash_0.wav", 0), ("0f250098_nohash_1.wav", 2),
    ],
)  # fmt: skip
def test_the_hash_rule_gives_the_official_splits(name, split):
    assert speech.split_of(name) == split


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_wav_files(kind, tmp_path, monkeypatch):
    clips = write_words(tmp_path / "clips")
    folder = tmp_path / "clips" / "speech_commands_v0.01"
    if kind == "archive":
        data = tmp_path / "archives"
        data.mkdir()
        with tarfile.open(data / "speech_commands_v0.01.tar.gz", "w:gz") as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    add(archive, f"./{path.relative_to(folder)}", path.read_bytes())
    else:
        data = folder
    words = speech.speech_commands(data)
    assert words.complete
    assert words.words == tuple(sorted({word for word, _, _ in clips}))
    found = {
        (words.words[w], n): (x, s)
        for x, w, s, n in zip(words.x, words.word, words.split, words.names, strict=True)
    }
    assert len(found) == len(clips)
    for (word, name, split), samples in clips.items():
        x, stored = found[word, name]
        assert np.array_equal(x, speech.log_mel(samples))
        assert stored == split
    monkeypatch.setattr(speech, "log_mel", None)  # the second time they come from the cache
    again = speech.speech_commands(data)
    assert np.array_equal(again.x, words.x)
    assert again.words == words.words
    if kind == "archive":  # no second download for the noise
        assert len(noise(data)) == 6


def test_an_archive_without_lists_is_split_by_the_rule(tmp_path):
    names = [f"{speaker:08x}_nohash_0" for speaker in range(60)]
    with tarfile.open(tmp_path / "speech_commands_v0.02.tar.gz", "w:gz") as archive:
        for name in names:
            add(archive, f"yes/{name}.wav", wav(np.zeros(9), 16_000))
    words = speech.speech_commands(tmp_path)
    assert words.split.tolist() == [speech.split_of(f"{name}.wav") for name in words.names]
    assert len(set(words.split.tolist())) == 3


def test_files_at_another_rate_are_refused(tmp_path):
    with tarfile.open(tmp_path / "speech_commands_v0.01.tar.gz", "w:gz") as archive:
        add(archive, "yes/a_nohash_0.wav", wav(np.zeros(9), 8000))
    with pytest.raises(DataError, match="16000 Hz"):
        speech.speech_commands(tmp_path)


def test_packed_files(tmp_path):
    words = np.array(["bed", "yes"])
    for name, word in (("core10", 1), ("others8000", 0)):
        content = io.BytesIO()
        np.savez(
            content, x=np.full((3, 49, 40), word, np.uint8), y=np.full(3, word, np.uint8),
            split=np.arange(3, dtype=np.uint8), name=np.array([b"a", b"b", b"c"]), words=words,
        )  # fmt: skip
        path = tmp_path / f"gsc_v001_logmel_u8_{name}.npz.xz"
        assert find("speech_commands", tmp_path) is None  # both are needed
        path.write_bytes(lzma.compress(content.getvalue()))
    found = speech.speech_commands(tmp_path)
    assert found.words == ("bed", "yes")
    assert found.word.tolist() == found.x[:, 0, 0].tolist() == [1, 1, 1, 0, 0, 0]
    assert found.split.tolist() == [0, 1, 2] * 2
    assert not found.complete
