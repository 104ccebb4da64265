"""Runs as figures see them: model, batches, recordings, and what to call them."""

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ...config import OURS, RunConfig
from ...models import SequenceModel
from ...runs import RunFolder, config_from_dict, config_to_dict, flat
from ...tasks.base import Batch, Split
from ...trained import Trained, load
from ..inputs import CPU, blank, sees_input, why_not_prepared
from ..naming import names
from ..recording import LayerRecord, Recording, Unfit, record

KINDS = {
    "sugru": "SuGRU", "sulstm": "SuLSTM", "surnn": "SuRNN", "susnn": "SuSNN", "gru": "GRU",
    "lstm": "LSTM", "rnn": "RNN", "mingru": "minGRU", "s4d": "S4D", "transformer": "Transformer",
    "linear": "without memory",
}  # fmt: skip


class Subject:
    """A run, loaded bit by bit as a figure asks for it.

    Args:
        path: its folder.
        checkpoint: which weights.
        data: folder with data sets, looked in first.
    """

    def __init__(self, path: Path, checkpoint: str = "best", data: Path | None = None) -> None:
        self.path, self.checkpoint, self.data = path, checkpoint, data
        self.label = path.name
        self.shown_blank = False
        """Whether gates were looked at without data."""

    @cached_property
    def trained(self) -> Trained:
        """Model, task, configuration."""
        return load(self.path, self.checkpoint)

    @cached_property
    def config(self) -> RunConfig:
        """Every choice of the run, also of one that has no weights yet."""
        return config_from_dict(RunFolder.open(self.path).config())

    @cached_property
    def options(self) -> dict[str, Any]:
        """The same by name, also those that were not there yet when it was run."""
        return flat(config_to_dict(self.config))

    @property
    def kind(self) -> str:
        """What is trained, as people write it."""
        return KINDS[self.options["model.kind"]]

    @property
    def gated(self) -> bool:
        """Whether it is one of surnn's."""
        return self.options["model.kind"] in OURS

    @property
    def validated(self) -> bool:
        """Whether a validation came to its end yet."""
        return any(line["kind"] == "valid" for line in RunFolder.open(self.path).metrics())

    @property
    def tested(self) -> dict[str, Any] | None:
        """What its weights did on the test set; None if they have not been tested."""
        return RunFolder.open(self.path).tested(self.checkpoint)

    @cached_property
    def task(self) -> Any:
        """With its data."""
        if self.without_data is not None:
            raise Unfit(f"{self.path} cannot be shown without its data: {self.without_data}")
        return self.trained.task

    @cached_property
    def without_data(self) -> str | None:
        """Why the data cannot be had; None if they can."""
        return why_not_prepared(self.trained.task, self.data)

    def batch(self, size: int, split: Split = "valid") -> Batch:
        """The first sequences of a split; fewer if it has fewer."""
        return self.task.batch(split, 0, size, 0, CPU)

    def batch_with(self, example: int, split: Split = "valid", least: int = 1) -> Batch:
        """The first sequences, that one among them."""
        batch = self.batch(max(least, example + 1), split)
        if example >= len(batch.x):
            raise Unfit(
                f"{self.options['task.name']} has {len(batch.x)} {split} sequences, counted from "
                f"0; there is no {example}"
            )
        return batch

    def batch_for_gates(self, size: int, example: int = 0) -> Batch:
        """The first sequences, if only gates are looked at: without data a blank one for clocks."""
        if example == 0 and self.without_data is not None and not sees_input(self.trained.model):
            self.shown_blank = True
            return blank(self.trained.task)
        return self.batch_with(example, least=size)

    def record(self, batch: Batch) -> Recording:
        """The trained model on a batch."""
        return record(self.trained.model, batch.x, batch.lengths)

    def untrained(self) -> SequenceModel:
        """The model as it was before its first update."""
        config, task = self.trained.config, self.trained.task
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.train.seed)
            model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
        return model.eval()

    def selective(self, recording: Recording) -> tuple[LayerRecord, ...]:
        """The layers that have gates."""
        layers = tuple(layer for layer in recording.layers if layer.granularity != "none")
        if not layers:
            raise Unfit(f"{self.path} is a {self.kind}, which has no gates to look at")
        return layers


def need_task(subjects: Sequence[Subject], *names: str) -> None:
    """Refuse runs of other tasks."""
    for subject in subjects:
        if subject.options["task.name"] not in names:
            raise Unfit(
                f"this figure is of {' or '.join(names)}, and {subject.path} was trained on "
                f"{subject.options['task.name']}"
            )


def length_of(batch: Batch, example: int) -> int:
    """Steps of one sequence, without padding."""
    return batch.x.shape[1] if batch.lengths is None else int(batch.lengths.flatten()[example])


def one_size(subjects: Sequence[Subject]) -> None:
    """Refuse batches of several lengths."""
    for subject in subjects:
        if subject.batch(1).lengths is not None:
            raise Unfit(f"{subject.path} has sequences of unequal length; this figure needs one")


def name_all(subjects: Sequence[Subject], *but: str, seeds_together: bool = False) -> None:
    """Label runs by what tells them apart: kind, options of the task, and no more than are needed.

    Options in ``but`` do not count, nor do seeds. Runs that differ in nothing else have their
    folders' names beside; or, with ``seeds_together``, one label if no seed is there twice.
    """
    known = set.intersection(*(set(subject.options) for subject in subjects))
    different = [
        name for name in sorted(known)
        if name not in ("model.kind", "train.seed", "train.device", *but)
        and len({repr(subject.options[name]) for subject in subjects}) > 1
    ]  # fmt: skip
    named = [name for name in different if name.startswith("task.")]
    _label(subjects, named)
    for name in sorted(set(different) - set(named), key=_order):
        alike = groups(subjects).values()
        if any(len({repr(s.options[name]) for s in same}) > 1 for same in alike):
            named.append(name)
            _label(subjects, named)
    for same in groups(subjects).values():
        seeds = {subject.options["train.seed"] for subject in same}
        if len(same) > 1 and not (seeds_together and len(seeds) == len(same)):
            for subject, name in zip(same, names([s.path for s in same]), strict=True):
                subject.label += f" ({name})"


def groups(subjects: Sequence[Subject]) -> dict[str, list[Subject]]:
    """Runs of one label together: seeds of the same thing."""
    found: dict[str, list[Subject]] = {}
    for subject in subjects:
        found.setdefault(subject.label, []).append(subject)
    return found


def _order(name: str) -> tuple[int, str]:
    """What says most about a run comes first, and how it is computed last."""
    if name in ("gate.kind", "model.attention_every"):
        return 0, name
    if name in ("model.max_rate", "model.backend", "model.recompute"):
        return 4, name
    return 1 + ("model", "gate", "train").index(name.partition(".")[0]), name


def _label(subjects: Sequence[Subject], names: Sequence[str]) -> None:
    """Kind and options; of kinds that are there once with one task, no more."""
    tasks = [name for name in names if name.startswith("task.")]
    for subject in subjects:
        rivals = [
            s for s in subjects
            if s.kind == subject.kind and all(s.options[n] == subject.options[n] for n in tasks)
        ]  # fmt: skip
        told = [
            _told(name, subject.options[name]) for name in names
            if name in tasks or len({repr(s.options[name]) for s in rivals}) > 1
        ]  # fmt: skip
        subject.label = ", ".join((subject.kind, *filter(None, told)))


def _told(name: str, value: Any) -> str:
    """An option and its value; nothing of one that is off, and of files their names."""
    if value is None or value is False or value == "":
        return ""
    short = f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, str) and value.startswith("/"):
        short = Path(value).name
    if name == "task.name":
        return short
    if name == "gate.kind":
        return f"{short} gates"
    words = name.rpartition(".")[2].replace("_", " ")
    return words if value is True else f"{words} {short}"


def timed(call: Callable[[], Any]) -> float:
    """Seconds that a call takes, the second time: the first of all takes longer."""
    call()
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
