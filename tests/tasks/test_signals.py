"""Tasks on sounds and electrocardiograms, on tiny sets."""

import io
import lzma
import math
import zipfile

import numpy as np
import pytest
import torch

from helpers.tiny_sets import (
    CPU,
    in_stored_order,
    ready,
    wav,
    write_mitbih,
    write_sounds,
)
from surnn.data import DataError, sounds
from surnn.data import ecg as ecg_files
from surnn.tasks import ecg, spoken_digits
from surnn.tasks.base import Batch
from surnn.tasks.batching import set_data
from surnn.tasks.ecg import EcgBeats
from surnn.tasks.spoken_digits import SpokenDigits

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


def test_a_speaker_is_in_the_test_or_in_the_other_splits(tmp_path):
    """Bob's clips differ from Ann's in their length."""
    write_sounds(tmp_path)
    for take in (0, 5, 10):
        clip = wav(np.full(700 + take, 1000), 8000)
        (tmp_path / "recordings" / f"3_bob_{take}.wav").write_bytes(clip)
    options = {"seconds": 0.5, "background": "silence", "features": "raw"}

    def lengths(split, **more):
        task = SpokenDigits(**options, **more)
        task.prepare(CPU, tmp_path)
        return (in_stored_order(task, split).kinds == spoken_digits.DIGIT).sum(1).tolist()

    ann = [1500 + 10 * digit for digit in range(10)]
    assert sorted(lengths("test")) == [700, *ann]
    assert sorted(lengths("test", new_speaker="bob")) == [700, 705, 710]
    assert sorted(lengths("valid", new_speaker="bob")) == ann
    assert sorted(lengths("train", new_speaker="bob")) == sorted(2 * ann)
    assert sorted(lengths("test", new_speaker="ann")) == sorted(4 * ann)
    assert (lengths("valid", new_speaker="ann"), lengths("train", new_speaker="ann")) == (
        [705], [710]
    )  # fmt: skip
    with pytest.raises(ValueError, match="'eve'; expected one of ann, bob"):
        lengths("test", new_speaker="eve")


def test_packed_clips_have_their_speakers(tmp_path):
    arrays = {
        "pcm": np.arange(6, dtype=np.int16), "lens": np.array([2, 4]), "digit": np.array([7, 1]),
        "index": np.array([0, 5]), "speaker": np.array(["ann", "bob"]),
    }  # fmt: skip
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    (tmp_path / "fsdd_8k_int16.npz.xz").write_bytes(lzma.compress(packed.getvalue()))
    clips = sounds.fsdd(tmp_path)
    assert clips.speaker.tolist() == ["ann", "bob"]
    assert (clips.digit.tolist(), clips.take.tolist()) == ([7, 1], [0, 5])


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


def test_no_patient_is_on_two_sides():
    """201 and 202 are one man; every other record is of a patient of its own."""
    patients = [{202 if r == 201 else r for r in names} for names in ecg.RECORDS.values()]
    assert [len(p) for p in patients] == [17, 4, 22]
    assert len(set.union(*patients)) == 43
    assert not {102, 104, 107, 217} & set.union(*patients)  # paced


def test_a_record_says_nothing_about_itself_beforehand(tmp_path):
    """Normalised by training records only: what comes later in a test record changes nothing."""
    write_mitbih(tmp_path)
    task = EcgBeats(window=1000)
    task.prepare(CPU, tmp_path)
    raw = ecg_files.mitbih(tmp_path)
    train = np.concatenate([raw[str(r)].signal for r in ecg.RECORDS["train"]]).astype(float)
    for split in ("valid", "test"):
        for number, record in enumerate(ecg.RECORDS[split][:2]):
            expected = (raw[str(record)].signal[:1000] - train.mean()) / train.std()
            found = in_stored_order(task, split).x[3 * number, :, 0]
            np.testing.assert_allclose(found, expected, atol=1e-4)


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
    typed = task.details(one_hot(found), batch)["typed beat F1"]
    assert (typed.total.item(), typed.count.item()) == (2 * 1, 4 + 3)


def pulses(target: torch.Tensor, period: int) -> torch.Tensor:
    """Answers of one who does not look."""
    answers = torch.zeros_like(target)
    answers[:, period // 2 :: period] = 1
    return one_hot(answers)


def with_beats(task: EcgBeats, beats: np.ndarray) -> None:
    """Records for validation of which only the beats matter."""
    wanted = torch.zeros(1, 100_000, dtype=torch.uint8)
    for shift in range(-task.mark, task.mark + 1):
        wanted[0, beats + shift] = 1
    signals = ecg.Signals(torch.zeros(1, 100_000).short(), wanted, wanted > 0)
    set_data(task, ({"valid": signals}, torch.ones(5), torch.zeros(()), torch.ones(())))


def test_chance_is_what_answers_at_regular_times_score():
    """Beats every 240 to 340 steps, all of them in reach of one of 2.6 answers: 2 / 3.6."""
    task = EcgBeats(window=5000)
    beats = np.cumsum(np.random.default_rng(0).integers(240, 340, 340))
    with_beats(task, beats[beats < 99_900])
    batch = in_stored_order(task, "valid")
    scores = {p: task.score(pulses(batch.target, p), batch).value for p in range(60, 300, 10)}
    assert task.chance == max(scores.values()) == scores[ecg.BLIND]
    assert task.chance == pytest.approx(2 / (1 + 290 / ecg.BLIND), abs=0.01)


def test_a_window_longer_than_a_record(tmp_path):
    write_mitbih(tmp_path)
    with pytest.raises(DataError, match=r"window of 3001 .* train, which has 3000; use --task.win"):
        EcgBeats(window=3001).prepare(CPU, tmp_path)


def test_missing_records_are_named(tmp_path):
    write_mitbih(tmp_path)
    with zipfile.ZipFile(tmp_path / "mit-bih-arrhythmia-database-1.0.0.zip") as archive:
        archive.extractall(tmp_path)
    (tmp_path / "mit-bih-arrhythmia-database-1.0.0.zip").unlink()
    (tmp_path / "mit-bih-arrhythmia-database-1.0.0" / "205.atr").unlink()
    with pytest.raises(Exception, match="records 205 are missing"):
        EcgBeats(window=500).prepare(CPU, tmp_path)
