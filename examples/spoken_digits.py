"""Spoken digits in noise, streamed frame by frame through the C engine, which rests in between.

    python examples/spoken_digits.py --data FOLDER            # trains two minutes, then listens
    python examples/spoken_digits.py --data FOLDER --run RUN  # listens with a run that is there

FOLDER holds the Free Spoken Digit Dataset and the noise of Speech Commands (``surnn data list``
says how to get them). The gates see the sound and pay for every update, so they learn to open for
speech. The stream has no end and no marks where a digit begins: when the gates have been open and
close again, the prediction is read, and the stream restarts.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import surnn
from surnn.config import InputGateConfig, ModelConfig, RunConfig, TrainConfig
from surnn.data import DataError
from surnn.deploy.engine import Engine
from surnn.deploy.export import to_engine
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunError, RunFolder
from surnn.tasks.base import Batch
from surnn.tasks.spoken_digits import DIGIT, HOP, RATE, SpokenDigits
from surnn.train.progress import progress_reporter
from surnn.train.trainer import Trainer

CONFIG = RunConfig(
    task=SpokenDigits(seconds=3.0),
    model=ModelConfig(kind="sugru", layers=2, width=128, block="stack"),
    gate=InputGateConfig(source="input", rate=0.3, target_rate=0.06),
    train=TrainConfig(
        steps=600, batch=32, learning_rate=3e-3, rate_penalty=1.0, anneal=(0.4, 0.7),
        evaluate_every=100, evaluation_batches=2,
    ),
)  # fmt: skip
FRAME = HOP / RATE
"""Seconds from one frame to the next."""
AWAKE, QUIET = 0.1, 25
"""Share of units that update at a frame of speech; frames without that which end a digit."""
FEWEST = 5
"""Frames of speech that make a digit; fewer are a crackle."""


@dataclass
class Recording:
    """Test recordings one after another: what is heard, and what is true of it."""

    frames: np.ndarray
    speech: np.ndarray
    """Of each frame, whether there is a digit in it."""
    said: list[tuple[float, int]]
    """Each digit and when it begins, in seconds."""


@dataclass
class Heard:
    """A digit that the stream reports."""

    begin: float
    end: float
    digit: int
    certainty: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with both data sets")
    parser.add_argument(
        "--run", type=Path, help="a run of surnn train spoken_digits to listen with"
    )
    parser.add_argument("--minutes", type=float, default=2, help="of training, without --run")
    parser.add_argument("--digits", type=int, default=20, help="how many are said")
    parser.add_argument("--out", type=Path, default=Path("runs/spoken-digits-example"))
    options = parser.parse_args()
    try:
        run = options.run or train(options.out, options.minutes, options.data)
        trained = surnn.load(run)
        task = trained.task
        if not isinstance(task, SpokenDigits):
            raise SystemExit(f"{run} was trained on {task.name}; give a run of spoken_digits")
        task.prepare(torch.device("cpu"), options.data)
    except (DataError, RunError) as error:
        raise SystemExit(str(error)) from None
    exact, small = (
        Engine(to_engine(trained.model, run / f"{weights}.surnn", weights))
        for weights in ("float32", "int8")
    )
    test = task.batch("test", 0, task.size("test"), 0, torch.device("cpu"))
    compare_weights(exact, small, test)
    listen(exact, recording_of(test, options.digits))


def train(out: Path, minutes: float, data: Path | None) -> Path:
    """A short training on the CPU; returns the run's folder."""
    config = replace(CONFIG, train=replace(CONFIG.train, minutes=minutes, device="cpu"))
    trainer = Trainer(config, data=data)
    trainer.use_folder(RunFolder.create(out, config_to_dict(config)))
    with progress_reporter(config) as trainer.reporter:
        trainer.fit()
    return out


def compare_weights(exact: Engine, small: Engine, test: Batch) -> None:
    """What the predictions after the last frames are worth, and what 8-bit weights do to them."""
    answers = []
    for engine in (exact, small):
        stream = engine.stream()
        answers.append(np.array([stream.reset().run(x)[-1].argmax() for x in test.x.numpy()]))
    right = [(found == test.target.numpy()).mean() for found in answers]
    differ = (answers[0] != answers[1]).sum()
    print(
        f"test digits right: float32 {right[0]:.1%}, int8 {right[1]:.1%}; they differ at {differ} "
        f"of {len(test.target)} (guessing: 10%)"
    )


def recording_of(test: Batch, digits: int) -> Recording:
    """Test recordings, drawn at random, as one long one."""
    chosen = torch.randperm(len(test.target), generator=torch.Generator().manual_seed(0))[:digits]
    assert test.kinds is not None
    speech = (test.kinds[chosen] == DIGIT).numpy()
    begins = np.arange(len(chosen)) * speech.shape[1] + speech.argmax(1)
    said = [(at * FRAME, int(y)) for at, y in zip(begins, test.target[chosen], strict=True)]
    return Recording(test.x[chosen].flatten(0, 1).numpy(), speech.ravel(), said)


def listen(engine: Engine, recording: Recording) -> None:
    """Stream the recording; print the digits heard, their times, and the cost."""
    heard, rates, skipped = stream_through(engine, recording.frames)
    print(f"\n{'said':>9}   {'heard':>13}   {'as':>2}  {'certainty':>9}")
    for line in timeline(recording.said, heard):
        print(line)
    right = sum(any(is_of(h, at) and h.digit == y for h in heard) for at, y in recording.said)
    false = sum(not any(is_of(h, at) for at, _ in recording.said) for h in heard)
    print(f"\n{right} of {len(recording.said)} digits right; {false} heard where none was said")
    speech, noise = rates[recording.speech].mean(), rates[~recording.speech].mean()
    print(
        f"{recording.speech.mean():.0%} of the time is speech; units update at {speech:.1%} of its "
        f"frames, and at {noise:.2%} of those of noise"
    )
    print(f"{skipped:.1%} of the multiply-accumulates of a dense network skipped")
    seconds = engine.time_steps(recording.frames)
    print(
        f"{1e6 * seconds.mean():.2f} µs a frame ({engine.simd}, one thread; 99th percentile "
        f"{1e6 * np.percentile(seconds, 99):.1f} µs): {FRAME / seconds.mean():,.0f} times real time"
    )


def stream_through(engine: Engine, frames: np.ndarray) -> tuple[list[Heard], np.ndarray, float]:
    """What was heard, the share of units that updated at each frame, the share of work skipped."""
    stream, heard, rates = engine.stream(), [], []
    macs = dense = 0
    begin = last = awake = 0
    for t, frame in enumerate(frames):
        before = stream.work
        prediction = stream.step(frame)
        work = stream.work.since(before)
        macs, dense = macs + work.macs, dense + work.dense
        rates.append(work.update_rate)
        if work.update_rate > AWAKE:
            begin, last, awake = begin if awake else t, t, awake + 1
        elif awake and t - last >= QUIET:
            if awake >= FEWEST:
                shares = np.exp(prediction - prediction.max())
                digit = int(shares.argmax())
                certainty = float(shares[digit] / shares.sum())
                heard.append(Heard(begin * FRAME, last * FRAME, digit, certainty))
            stream.reset()
            awake = 0
    return heard, np.array(rates), 1 - macs / dense


def is_of(heard: Heard, said_at: float) -> bool:
    """Whether what was heard is what was said then."""
    return heard.begin - 0.5 < said_at < heard.end


def timeline(said: list[tuple[float, int]], heard: list[Heard]) -> list[str]:
    """Both side by side, in order of time."""
    lines = []
    for at, digit in said:
        spoken = f"{at:6.2f} s {digit}   "
        match = [h for h in heard if is_of(h, at)]
        detection = "; ".join(
            f"{h.begin:6.2f}-{h.end:6.2f} s   {h.digit:2}  {h.certainty:9.0%}" for h in match
        )
        lines.append((at, spoken + (detection or "nothing")))
    for h in heard:
        if not any(is_of(h, at) for at, _ in said):
            alone = f"{'nothing':>9}   {h.begin:6.2f}-{h.end:6.2f} s   {h.digit:2}"
            lines.append((h.begin, f"{alone}  {h.certainty:9.0%}"))
    return [line for _, line in sorted(lines)]


if __name__ == "__main__":
    main()
