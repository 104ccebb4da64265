"""The runs of a figure: model, batches, recordings, and labels."""

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from surnn.config import OURS, RunConfig
from surnn.models.model import SequenceModel
from surnn.runs.config_json import config_from_dict, config_to_dict, flat
from surnn.runs.folder import RunFolder
from surnn.runs.loading import Trained, load
from surnn.tasks.base import Batch, Split

from ..inputs import CPU, blank, sees_input, why_not_prepared
from ..naming import names
from ..recording import LayerRecord, NotApplicable, Recording, record

KINDS = {
    "sugru": "SuGRU", "sulstm": "SuLSTM", "surnn": "SuRNN", "susnn": "SuSNN", "gru": "GRU",
    "lstm": "LSTM", "rnn": "RNN", "mingru": "minGRU", "delta": "DeltaNet", "deltagru": "DeltaGRU",
    "skipgru": "SkipGRU", "s4d": "S4D", "transformer": "Transformer", "linear": "without memory",
}  # fmt: skip


class Subject:
    """A run in a figure. Its parts are loaded when first used.

    Args:
        path: the run's folder.
        checkpoint: which weights.
        data: folder with data sets, searched first.
    """

    def __init__(self, path: Path, checkpoint: str = "best", data: Path | None = None) -> None:
        self.path, self.checkpoint, self.data = path, checkpoint, data
        self.label = path.name
        self.shown_blank = False
        """Whether its gates were drawn without data."""

    @cached_property
    def trained(self) -> Trained:
        """Model, task, configuration."""
        return load(self.path, self.checkpoint)

    @cached_property
    def config(self) -> RunConfig:
        """The configuration, also of a run without weights."""
        return config_from_dict(RunFolder.open(self.path).config())

    @cached_property
    def options(self) -> dict[str, Any]:
        """Options by name, with defaults for those that are newer than the run. Seeds that start
        with weights of their own (``clips-seed0``, ``clips-seed1``) have the same options."""
        options = flat(config_to_dict(self.config))
        if options["train.start"] is not None:
            seed = f"seed{options['train.seed']}"
            options["train.start"] = options["train.start"].replace(seed, "seed*")
        return options

    @property
    def kind(self) -> str:
        """Name of the model in labels."""
        return KINDS[self.options["model.kind"]]

    @property
    def gated(self) -> bool:
        """Whether it has surnn's layers."""
        return self.options["model.kind"] in OURS

    @property
    def validated(self) -> bool:
        """Whether it has been validated at least once."""
        return any(line["kind"] == "valid" for line in RunFolder.open(self.path).metrics())

    @property
    def tested(self) -> dict[str, Any] | None:
        """Metrics of its weights on the test set; None if they have not been tested."""
        return RunFolder.open(self.path).test_metrics(self.checkpoint)

    @cached_property
    def task(self) -> Any:
        """The task with its data."""
        if self.without_data is not None:
            raise NotApplicable(
                f"{self.path} cannot be drawn without its data: {self.without_data}"
            )
        return self.trained.task

    @cached_property
    def without_data(self) -> str | None:
        """Why the data cannot be loaded; None if they can."""
        return why_not_prepared(self.trained.task, self.data)

    def batch(self, size: int, split: Split = "valid") -> Batch:
        """The first sequences of a split; fewer if it has fewer."""
        return self.task.batch(split, 0, size, 0, CPU)

    def batch_with(self, example: int, split: Split = "valid", least: int = 1) -> Batch:
        """The first sequences, up to ``example`` at least."""
        batch = self.batch(max(least, example + 1), split)
        if example >= len(batch.x):
            raise NotApplicable(
                f"{self.options['task.name']} has {len(batch.x)} {split} sequences, counted from "
                f"0; there is no number {example}"
            )
        return batch

    def batch_for_gates(self, size: int, example: int = 0) -> Batch:
        """The same for figures of gates: without data, a blank sequence if gates see no input."""
        if example == 0 and self.without_data is not None and not sees_input(self.trained.model):
            self.shown_blank = True
            return blank(self.trained.task)
        return self.batch_with(example, least=size)

    def record(self, batch: Batch) -> Recording:
        """The trained model on a batch."""
        return record(self.trained.model, batch.x, batch.lengths)

    def untrained(self) -> SequenceModel:
        """The model before the first optimizer step."""
        config, task = self.trained.config, self.trained.task
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.train.seed)
            model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
        return model.eval()

    def selective(self, recording: Recording) -> tuple[LayerRecord, ...]:
        """The layers that have gates."""
        layers = tuple(layer for layer in recording.layers if layer.granularity != "none")
        if not layers:
            raise NotApplicable(f"{self.path} is a {self.kind}, which has no gates")
        return layers


def need_task(subjects: Sequence[Subject], *names: str) -> None:
    """Raise NotApplicable for runs of other tasks."""
    for subject in subjects:
        if subject.options["task.name"] not in names:
            raise NotApplicable(
                f"this figure needs {' or '.join(names)}, but {subject.path} was trained on "
                f"{subject.options['task.name']}"
            )


def length_of(batch: Batch, example: int) -> int:
    """Time steps of one sequence, without padding."""
    return batch.x.shape[1] if batch.lengths is None else int(batch.lengths.flatten()[example])


def one_size(subjects: Sequence[Subject]) -> None:
    """Raise NotApplicable if sequences differ in length."""
    for subject in subjects:
        if subject.batch(1).lengths is not None:
            raise NotApplicable(
                f"{subject.path} has sequences of unequal length; this figure needs equal ones"
            )


def name_all(subjects: Sequence[Subject], *but: str, seeds_together: bool = False) -> None:
    """Label runs by kind, options of the task, and as few other options as distinguish them.

    Options in ``but`` and seeds are ignored. Runs that are otherwise equal get the names of their
    folders. With ``seeds_together`` they share one label if all seeds differ.
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
    """Runs by label; runs of one label are seeds of the same configuration."""
    by_label: dict[str, list[Subject]] = {}
    for subject in subjects:
        by_label.setdefault(subject.label, []).append(subject)
    return by_label


def _order(name: str) -> tuple[int, str]:
    """Sort key: the most informative options first, those of the computation last."""
    if name in ("gate.kind", "model.attention_every"):
        return 0, name
    if name in ("model.max_rate", "model.backend", "model.recompute"):
        return 4, name
    return 1 + ("model", "gate", "train").index(name.partition(".")[0]), name


def _label(subjects: Sequence[Subject], names: Sequence[str]) -> None:
    """Label runs by kind and by those options that differ among runs of the same kind and task."""
    tasks = [name for name in names if name.startswith("task.")]
    for subject in subjects:
        rivals = [
            s for s in subjects
            if s.kind == subject.kind and all(s.options[n] == subject.options[n] for n in tasks)
        ]  # fmt: skip
        words = [
            _format_option(name, subject.options[name]) for name in names
            if name in tasks or len({repr(s.options[name]) for s in rivals}) > 1
        ]  # fmt: skip
        subject.label = ", ".join((subject.kind, *filter(None, words)))


def _format_option(name: str, value: Any) -> str:
    """An option and its value; empty if it is off. Files are shortened to their names."""
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
    """Seconds of the second of two calls, because the first one is slower."""
    call()
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
