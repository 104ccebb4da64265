"""Keyword streams: the sound, the targets, and detections against a plain loop."""

import math

import numpy as np
import pytest
import torch

from helpers.tiny_sets import CPU, ready
from surnn.config import ModelConfig, RhythmConfig
from surnn.models.model import SequenceModel
from surnn.tasks import keyword_scores, keyword_stream, speech_frames
from surnn.tasks.keyword_scores import LOGITS, QUIET, sweep
from surnn.tasks.keyword_stream import HOLD, IGNORED, TAIL, KeywordStream
from surnn.train.evaluate import evaluate

DENSE = {"words_per_minute": 24.0, "test_words_per_minute": 24.0, "test_hours": 0.03}


def by_loops(prediction: torch.Tensor, target: torch.Tensor, threshold: float) -> tuple[int, ...]:
    """Hits, false alarms, frames of latency and keywords, frame by frame as a device decides."""
    hits = alarms = late = keywords = 0
    probability = prediction.float().softmax(-1)
    for row in range(len(target)):
        answer, window = target[row].T.tolist()
        begins = [t for t, k in enumerate(window) if k and (t == 0 or window[t - 1] != k)]
        keywords += len(begins)
        caught = set()
        last = dict.fromkeys(range(1, 11), -math.inf)
        for t in range(len(window)):
            for k in range(1, 11):
                recent = probability[row, max(0, t - 4) : t + 1, k]
                if recent.sum().item() / 5 <= threshold:
                    continue
                if t - last[k] > QUIET:
                    if window[t] == k:
                        begin = max(b for b in begins if b <= t)
                        if begin not in caught:
                            caught.add(begin)
                            end = next(e for e in range(begin, len(window)) if answer[e] == k)
                            late += t - end
                    else:
                        alarms += 1
                last[k] = t
        hits += len(caught)
    return hits, alarms, late, keywords


def test_detections_are_those_of_a_loop_over_frames(data):
    task = ready("keyword_stream", data, **DENSE)
    batch = task.batch("test", 0, 3, 0, CPU)
    torch.manual_seed(0)
    slow = torch.randn(3, 11, batch.x.shape[1] // 10 + 1).repeat_interleave(10, -1)
    noise = 4 * slow[..., : batch.x.shape[1]].transpose(1, 2)
    hint = torch.nn.functional.one_hot(batch.target[..., 0].clamp(min=0), 11) * 6.0
    prediction = noise + hint + torch.randn_like(noise)
    counts = sweep(prediction, batch.target)
    assert counts.count[1] == batch.target[..., 0].numel()
    some = 0
    for number in (0, 10, 20, 25):
        expected = by_loops(prediction, batch.target, LOGITS[number].sigmoid().item())
        assert (*counts.total[number].tolist(), counts.count[0].item()) == expected
        some += expected[0] * expected[1]
    assert some > 0


def test_a_keyword_is_detected_again_after_a_pause():
    """After exactly QUIET frames below the threshold, not after one less."""
    above = torch.zeros(1, 4 * QUIET, dtype=torch.bool)
    again, too_soon = 4 + QUIET, 4 + QUIET + QUIET
    above[0, [2, 3, again, too_soon]] = True
    assert keyword_scores.detections(above)[0].nonzero()[:, 0].tolist() == [2, again]


def test_a_detector_that_knows_the_answers_misses_nothing(data):
    task = ready("keyword_stream", data, **DENSE)
    batch = task.batch("test", 0, 8, 0, CPU)
    answers = torch.nn.functional.one_hot(batch.target[..., 0].clamp(min=0), 11) * 30.0
    assert task.score(answers, batch).value == 0
    found = {name: score.value for name, score in task.details(answers, batch).items()}
    assert found["misses at 1 an hour"] == 0
    assert 0 <= found["latency ms"] <= 80  # of the average over frames
    assert len(found["curve"]) == len(LOGITS)
    assert task.score(torch.zeros_like(answers), batch).value == 1  # silent
    wrong = answers.roll(1, -1)
    assert task.score(wrong, batch).value == 1


def test_values_add_up_over_batches(data):
    """The threshold is chosen for the whole set, not batch by batch."""
    task = ready("keyword_stream", data, **DENSE)
    torch.manual_seed(1)
    size = task.size("test")
    whole = task.batch("test", 0, size, 0, CPU)
    prediction = 3 * torch.randn(*whole.target.shape[:2], 11)
    scores = [sweep(prediction[i : i + 4], whole.target[i : i + 4]) for i in range(0, size, 4)]
    together = scores[0]
    for score in scores[1:]:
        together = together + score
    expected = sweep(prediction, whole.target)
    assert torch.equal(together.total, expected.total)
    assert torch.equal(together.count, expected.count)


def test_an_evaluation_in_batches_is_the_score_of_the_whole_set(data):
    task = ready("keyword_stream", data, **DENSE)
    torch.manual_seed(2)
    model = SequenceModel(
        ModelConfig("gru", layers=1, width=16, block="stack"), RhythmConfig(), task.input,
        task.output, task.steps,
    )  # fmt: skip
    with torch.no_grad():
        model.head.weight.mul_(20)
        whole = task.batch("test", 0, task.size("test"), 0, CPU)
        expected = task.score(model(whole.x), whole)
    found = evaluate(model, task, "test", 3, CPU)
    assert found["curve"] == expected.reading("curve").value
    assert found["misses"] == expected.value
    assert expected.total[:, :2].double().mean() > 0


def test_misses_are_read_at_the_allowed_number_of_false_alarms():
    total = torch.zeros(len(LOGITS), 3)
    total[:, 0] = torch.linspace(100, 0, len(LOGITS)).round()
    total[:, 1] = torch.linspace(100, 0, len(LOGITS)).round()
    total[:, 2] = 10 * total[:, 0]
    ten_hours = 10 * 3600 * keyword_scores.FRAME_RATE
    score = keyword_scores.Sweep(total, torch.tensor([100, ten_hours]))
    at_five = int((total[:, 1] <= 50).nonzero()[0])
    assert score.value == pytest.approx(1 - total[at_five, 0].item() / 100)
    at_one = int((total[:, 1] <= 10).nonzero()[0])
    assert score.reading("misses", 1.0).value == pytest.approx(1 - total[at_one, 0].item() / 100)
    assert score.reading("latency").value == pytest.approx(200)


def test_targets_follow_the_words(data):
    """The answer for HOLD frames from the end of the word; around it, frames that do not count."""
    task = ready("keyword_stream", data, **DENSE)
    batch = task.batch("test", 0, task.size("test"), 0, CPU)
    for answer, window, kinds in zip(*batch.target.unbind(-1), batch.kinds, strict=True):
        named = torch.where(answer > 0, answer, 0)
        begins = (named > 0) & (named != torch.nn.functional.pad(named[:-1], (1, 0)))
        for end in begins.nonzero()[:, 0].tolist():
            k = answer[end]
            assert (answer[end : end + HOLD] == k).all()
            assert (window[end : end + HOLD + TAIL] == k).sum() >= HOLD
            assert kinds[end - 1] == keyword_stream.KEYWORD
            assert answer[end - 1] == IGNORED
        assert (answer[kinds == keyword_stream.DISTRACTOR] == 0).all()
        assert ((window > 0) == (answer != 0)).all()


def test_words_are_louder_than_the_noise_by_their_ratio(data):
    task = ready("keyword_stream", data, **DENSE, snr_db=(20.0, 20.0), noise_db=(0.0, 0.0))
    batch = task.batch("test", 0, task.size("test"), 0, CPU)
    power = (batch.x * speech_frames.SPREAD + speech_frames.MEAN).exp().sum(-1)
    noise = power[batch.kinds == keyword_stream.NOISE].median()
    word = power[batch.kinds == keyword_stream.KEYWORD].quantile(0.5)
    assert noise == pytest.approx(1, rel=0.3)
    assert 50 < word / noise < 200


def test_noise_and_clips_of_a_split_are_its_own(data):
    task = ready("keyword_stream", data)
    clips, noise, _ = vars(task)["_data"]
    frames = {split: {row.numpy().tobytes() for row in part.power} for split, part in noise.items()}
    sounds = {split: {x.numpy().tobytes() for x in part.x} for split, part in clips.items()}
    for kept in (frames, sounds):
        assert not kept["train"] & kept["valid"]
        assert not kept["train"] & kept["test"]
        assert not kept["valid"] & kept["test"]


def test_the_end_of_a_word_is_where_the_sound_ends():
    level = np.full((2, 49, 40), 40, np.uint8)
    level[0, 10:30] = 150
    level[1, 25:] = 150
    first, end = speech_frames.word_bounds(level)
    assert first.tolist() == [10, 25]
    assert end.tolist() == [30, 49]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seconds": 2.0}, "at least 2.5"), ({"words_per_minute": 60.0}, "at most 24"),
        ({"test_hours": 0.1}, "must hold a stream"), ({"snr_db": (9.0, 1.0)}, "lower end first"),
    ],
)  # fmt: skip
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        KeywordStream(**options)
