"""How training is shown: a live line in a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class PlainReporter:
    """One line for each report, for logs."""

    def __init__(self, steps: int, start: int = 0) -> None:
        self.steps, self.start = steps, start
        self.begin = time.perf_counter()

    def update(self, step: int, values: dict[str, Any]) -> None:
        pace = (step - self.start) / max(time.perf_counter() - self.begin, 1e-9)
        left = (self.steps - step) / max(pace, 1e-9)
        told = f"{pace:.3g}/s, {left:.0f} s left"
        print(f"update {step}/{self.steps}  {describe(values)}  {told}", flush=True)

    def message(self, text: str) -> None:
        print(text, flush=True)

    def __enter__(self) -> "PlainReporter":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to tidy."""


class LiveReporter:
    """A progress bar with loss, metric, update rate, pace and time left."""

    def __init__(self, steps: int, start: int = 0) -> None:
        columns = (
            MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[pace]}"),
            TimeRemainingColumn(), TextColumn("{task.fields[values]}"),
        )  # fmt: skip
        self.progress = Progress(*columns, console=Console())
        self.task = self.progress.add_task("", total=steps, completed=start, pace="", values="")
        self.values: dict[str, Any] = {}

    def update(self, step: int, values: dict[str, Any]) -> None:
        self.values |= values
        speed = self.progress.tasks[0].speed
        pace = f"{speed:.1f}/s" if speed else ""
        self.progress.update(
            self.task, completed=step, pace=pace, values=describe(self.values), refresh=True
        )

    def message(self, text: str) -> None:
        self.progress.console.print(text, markup=False)

    def __enter__(self) -> "LiveReporter":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()


def reporter(steps: int, start: int = 0) -> PlainReporter | LiveReporter:
    """The one that suits where the output goes."""
    return LiveReporter(steps, start) if sys.stdout.isatty() else PlainReporter(steps, start)


def describe(values: dict[str, Any]) -> str:
    """Loss, metrics and update rates in a few words."""
    words = []
    for name, value in values.items():
        if name in ("seconds", "learning_rate"):
            continue
        number = sum(value) / len(value) if isinstance(value, list) else value
        if isinstance(number, float):
            words.append(f"{name.replace('_', ' ')} {number:.4g}")
    return "  ".join(words)
