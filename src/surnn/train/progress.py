"""Progress of training: a live line in a terminal, plain lines elsewhere."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import IO, Any, Protocol, cast

from surnn.config import RunConfig, TrainConfig
from surnn.errors import MissingExtra
from surnn.runs.rate_format import format_rate, is_soft
from surnn.runs.time_budget import format_duration

HIDDEN = ("seconds", "learning_rate", "gradient_norm")
"""Values that are logged but not shown."""
MIN_INTERVAL = 2.0
"""Least seconds between plain lines; metrics.jsonl has them all."""


class Reporter(Protocol):
    """Shows the progress of training while its context is entered."""

    def report(self, step: int, values: dict[str, Any]) -> None: ...
    def message(self, text: str) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *_: object) -> None: ...


class SilentReporter:
    """Shows nothing."""

    def report(self, step: int, values: dict[str, Any]) -> None:
        """Ignore the values."""

    def message(self, text: str) -> None:
        """Ignore the text."""

    def __enter__(self) -> "SilentReporter":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to release."""


class ResilientOutput:
    """Standard output whose reader may disappear.

    When the pipe is closed (``| head``, a killed ``tee``, a lost terminal) or the disk is full,
    further output is discarded and training continues. The run folder has the whole record.
    """

    def __init__(self) -> None:
        self.file = sys.stdout

    def write(self, text: str) -> None:
        self._attempt(lambda: self.file.write(text))

    def flush(self) -> None:
        self._attempt(self.file.flush)

    def _attempt(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except OSError:  # the buffered rest and all later output go to /dev/null
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.file.fileno())
            os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def print_line(text: str) -> None:
    """Print a line on :class:`ResilientOutput`."""
    print(text, file=ResilientOutput(), flush=True)


class SpeedMeter:
    """Steps per second, and the time left.

    Args:
        train: with the number of steps, and the time budget if there is one.
        step: the optimizer steps so far.
        seconds: the time of earlier sessions.
    """

    def __init__(self, train: TrainConfig, step: int, seconds: float) -> None:
        self.steps = train.steps
        now = time.perf_counter()
        self.deadline = None if train.minutes is None else now + 60 * train.minutes - seconds
        self.history: deque[tuple[int, float]] = deque([(step, now)], maxlen=10)

    def measure(self, step: int) -> str:
        """Speed and time left after ``step`` optimizer steps, as text."""
        now = time.perf_counter()
        self.history.append((step, now))
        (first, begin), (last, end) = self.history[0], self.history[-1]
        speed = (last - first) / max(end - begin, 1e-9)
        left = (self.steps - step) / speed if speed else float("inf")
        if self.deadline is not None:
            left = min(left, max(0.0, self.deadline - now))
        return f"{speed:.3g}/s, {format_duration(left)} left"


class PlainReporter:
    """A line every few seconds, for logs."""

    def __init__(self, speed: SpeedMeter, soft: bool) -> None:
        self.speed, self.soft = speed, soft
        self.printed_at = 0.0

    def report(self, step: int, values: dict[str, Any]) -> None:
        speed, now = f"  {self.speed.measure(step)}", time.perf_counter()
        if "loss" not in values:  # an evaluation
            speed = ""
        elif now - self.printed_at < MIN_INTERVAL and step < self.speed.steps:
            return
        else:
            self.printed_at = now
        print_line(f"step {step}/{self.speed.steps}  {format_values(values, self.soft)}{speed}")

    def message(self, text: str) -> None:
        print_line(text)

    def __enter__(self) -> "PlainReporter":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to release."""


class LiveReporter:
    """A progress bar with loss, metric, update rate, speed and time left."""

    def __init__(self, speed: SpeedMeter, soft: bool) -> None:
        try:
            from rich.console import Console  # noqa: PLC0415 (an extra, needed here only)
            from rich.progress import (  # noqa: PLC0415
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
            )
            from rich.table import Column  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtra("rich", "a progress bar") from error

        self.speed, self.soft = speed, soft
        # A narrow terminal cuts off the end of the line.
        one_line = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        text = TextColumn("{task.description}", table_column=one_line)
        columns = (MofNCompleteColumn(), BarColumn(16), text)
        console = Console(file=cast("IO[str]", ResilientOutput()))
        self.progress = Progress(*columns, console=console, expand=True)
        start = speed.history[0][0]
        self.task = self.progress.add_task("", total=speed.steps, completed=start)
        self.values: dict[str, Any] = {}

    def report(self, step: int, values: dict[str, Any]) -> None:
        self.values |= values
        text = f"{self.speed.measure(step)}  {format_values(self.values, self.soft)}"
        self.progress.update(self.task, completed=step, description=text, refresh=True)

    def message(self, text: str) -> None:
        self.progress.console.print(text, markup=False)

    def __enter__(self) -> "LiveReporter":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()


def progress_reporter(
    config: RunConfig, step: int = 0, seconds: float = 0.0
) -> PlainReporter | LiveReporter:
    """The reporter that suits standard output: live in a terminal, plain elsewhere.

    Args:
        config: the run's options.
        step: the optimizer steps so far.
        seconds: the time of earlier sessions.
    """
    kind = LiveReporter if sys.stdout.isatty() else PlainReporter
    return kind(SpeedMeter(config.train, step, seconds), is_soft(config))


def format_values(values: dict[str, Any], soft: bool) -> str:
    """Loss, metrics and update rate (of ``soft`` gates the mean opening) as text."""
    texts = []
    for name, value in values.items():
        if name == "update_rate":
            texts.append(str(format_rate(sum(value) / len(value), soft)))
        elif isinstance(value, str):
            texts.append(f"({value} {name})")
        elif name not in HIDDEN and isinstance(value, float):
            texts.append(f"{name.replace('_', ' ')} {value:.4g}")
    return "  ".join(texts)
