"""Speech Commands as classes of clips."""

import numpy as np
import pytest
import torch

from helpers.tiny_sets import CPU, in_stored_order, ready
from surnn.data import DataError, speech
from surnn.tasks.speech_commands import SILENCE, UNKNOWN, SpeechCommands
from surnn.tasks.speech_frames import MEAN, SPREAD, to_features, to_power


def test_classes_of_the_official_protocol(data):
    """Per split: 20 commands, a tenth of that unknown, a tenth silence."""
    task = ready("speech_commands", data)
    for split in ("train", "valid", "test"):
        assert task.size(split) == 24
    counts = torch.bincount(in_stored_order(task, "test").target, minlength=12)
    assert counts.tolist() == [2, 2] + [2] * 10
    assert task.chance == 2 / 24
    epoch = task.batch("train", 0, 24, 0, CPU)
    assert torch.bincount(epoch.target, minlength=12).tolist() == [2, 2] + [2] * 10


def test_all_words_as_classes(data):
    (data / "speech_commands_v0.01" / "yes").rename(data / "speech_commands_v0.01" / "zebra")
    (data / "speech_commands_v0.01" / "yes").mkdir()
    for path in (data / "speech_commands_v0.01" / "zebra").iterdir():
        copy = data / "speech_commands_v0.01" / "yes" / path.name
        copy.write_bytes(path.read_bytes())
    task = ready("speech_commands", data, classes=13)
    assert task.output.size == 13
    assert task.size("test") == 24
    assert torch.bincount(in_stored_order(task, "test").target).tolist() == [2] * 12
    with pytest.raises(DataError, match="there are 13 words"):
        ready("speech_commands", data, classes=30)


def test_all_words_need_all_clips(data, monkeypatch):
    words = speech.speech_commands(data)
    monkeypatch.setattr(speech, "speech_commands", lambda _: words._replace(complete=False))
    with pytest.raises(DataError, match="surnn data get speech_commands"):
        ready("speech_commands", data, classes=30)


def test_test_clips_are_unchanged_and_silence_is_noise(data):
    task = ready("speech_commands", data)
    batch = in_stored_order(task, "test")
    words = speech.speech_commands(data)
    stored = {x.tobytes() for x, s in zip(words.x, words.split, strict=True) if s == 2}
    v = batch.x * SPREAD + MEAN
    restored = ((v + 14) * 255 / 24).round().clamp(0, 255).to(torch.uint8).numpy()
    for label, x in zip(batch.target.tolist(), restored, strict=True):
        assert (x.tobytes() in stored) == (label != SILENCE)
    assert batch.x[batch.target == SILENCE].std() > 0
    assert (batch.kinds[batch.target == SILENCE] == 1).all()
    assert (batch.kinds[batch.target != SILENCE] == 0).any(1).all()


def test_unknown_words_are_drawn_anew_in_training(data):
    task = ready("speech_commands", data, augment=False)
    seen = set()
    for number in range(12):
        batch = task.batch("train", number, 24, 0, CPU)
        seen |= {x.numpy().tobytes() for x in batch.x[batch.target == UNKNOWN]}
    assert len(seen) == 4  # all clips of both words


def test_augmentation_is_for_training_only(data):
    changed, plain = (ready("speech_commands", data, augment=a) for a in (True, False))
    for split in ("valid", "test"):
        assert torch.equal(changed.batch(split, 0, 8, 0, CPU).x, plain.batch(split, 0, 8, 0, CPU).x)
    one, other = (task.batch("train", 0, 24, 0, CPU) for task in (changed, plain))
    assert torch.equal(one.target, other.target)
    assert not torch.equal(one.x, other.x)
    assert ((one.x == 0).sum((1, 2)) > 0).any()  # masked


def test_power_and_features_are_inverse():
    stored = torch.arange(256, dtype=torch.uint8)
    v = to_features(to_power(stored)) * SPREAD + MEAN
    expected = (stored / (255 / 24) - 14).clamp(min=np.log(1e-6))
    torch.testing.assert_close(v, expected, atol=2e-5, rtol=0)


def test_options_are_checked():
    with pytest.raises(ValueError, match="classes is 1"):
        SpeechCommands(classes=1)
    with pytest.raises(ValueError, match="mask_bands"):
        SpeechCommands(mask_bands=41)
