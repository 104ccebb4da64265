"""A user's own sequences: classes, labels at each time step, numbers, or forecasts."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from surnn.data.series import Columns, Series, load_series
from surnn.data.series.read import join_series
from surnn.data.text_files import read_text

from .base import Batch, Output, Score, Split, Task, Values
from .batching import get_data, row_numbers, set_data
from .sequence_data import Missing, SequenceData, fill_missing, match_channels, moments
from .sequence_facts import SequenceFacts, sequence_facts
from .sequence_goals import Goal, check_goal, class_names, class_numbers, class_texts, find_goal
from .sequence_scores import SequenceScores
from .sequence_splits import How, check_different, cut_windows, split_series

PATHS = ("path", "valid_path", "test_path")
ON_RECORD = "sequences.json"
"""File in a run's folder: checksums of the data, sizes of the parts, and the scale of inputs."""
LONGEST = 1024
"""Window of sequences with targets at each time step, if none is given."""
_EMPTY = (
    "the {0} part has no sequences; give it a share with --task.shares, or a file with "
    "--task.{0}-path"
)
Metric = Literal["auto", "accuracy", "balanced accuracy", "F1", "R2"]


@dataclass(frozen=True)
class Sequences(SequenceScores, Task):  # type: ignore[misc]  # kinds depend on the goal
    """Your own data: CSV, Parquet, npz, npy, .ts or wav files, or a folder of such files.

    The goal is found in the data: one class or number for each sequence, one at each time step, or,
    without a target, a forecast. Inputs are standardised inside the model, by means and deviations
    of the training part; an exported model takes raw values. Options that the data determine
    (channels, classes, length, and so on) are stored in the run.

    Args:
        path: a file, or a folder of files of one format.
        valid_path: another file or folder for validation; ``path`` is then not used for it.
        test_path: another file or folder for the test.
        goal: ``auto``; ``classify`` or ``regress`` sequences; ``classify_steps`` or
            ``regress_steps``: a target at each time step; ``forecast`` later inputs.
        id: column whose values separate sequences. Without one, a file is one sequence.
        time: column that orders the time steps of a sequence: numbers or ISO dates.
        features: columns of the input; for npz the name of the array. Default: all columns of
            numbers that have no other meaning.
        target: columns of the target; for npz the name of the array. For a forecast, the inputs to
            predict; default: all.
        group: column, or field of ``names``, that identifies patients, speakers or machines: each
            group is in one part only.
        layout: ``long`` has a row for each time step, ``wide`` a row for each sequence.
        labels: file in the folder with the label of each file: a CSV of names and labels. For npy a
            .npy file of labels.
        names: how files are named, such as ``{class}_{speaker}_{take}.wav``.
        ahead: time steps from an input to the forecast.
        window: time steps of the windows into which sequences with a target at each step are cut.
            None: up to 1024.
        shares: shares of training, validation and test, of what ``valid_path`` and ``test_path``
            leave.
        split: ``random`` distributes sequences or groups, ``time`` divides each sequence, the end
            for the test. ``auto``: time if there are fewer than ten sequences with a target
            at each step, and no groups.
        split_seed: seed of the random distribution.
        missing: missing values: an ``error``, the ``previous`` value, or the ``mean``.
        weights: class weights in the loss. ``auto``: balanced if a class is more than twice as
            frequent as another.
        metric: ``auto``: balanced accuracy with class weights, F1 of all classes but the most
            common for time steps, otherwise accuracy; R2 for numbers.
        scale: standardise inputs, and numbers to predict, inside the model.
        one_length: pad all batches to the longest sequence, so that training steps can be captured
            (--train.cuda-graph).
        bands: wav files: number of mel bands; 0 gives frames of raw samples.
        frame: wav files: milliseconds of a frame.
        hop: wav files: milliseconds between frames.
        channels: names of the features. Found in the data.
        classes: names of the classes. Found in the data.
        balance: share of each class in the training part. Found in the data.
        outputs: names of the predicted numbers. Found in the data.
        output_mean: mean of each predicted number in the training part. Found in the data.
        output_std: standard deviation of each in the training part. Found in the data.
        length: time steps of the longest sequence or window. None: found in the data.
    """

    path: str = ""
    valid_path: str = ""
    test_path: str = ""
    goal: Goal = "auto"
    id: str = ""
    time: str = ""
    features: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    group: str = ""
    layout: Literal["long", "wide"] = "long"
    labels: str = ""
    names: str = ""
    ahead: int = 1
    window: int | None = None
    shares: tuple[float, float, float] = (0.7, 0.15, 0.15)
    split: How = "auto"
    split_seed: int = 0
    missing: Missing = "error"
    weights: Literal["auto", "none", "balanced"] = "auto"
    metric: Metric = "auto"  # type: ignore[assignment]  # it depends on the goal
    scale: bool = True
    one_length: bool = False
    bands: int = 40
    frame: float = 25.0
    hop: float = 10.0
    channels: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    balance: tuple[float, ...] = ()
    outputs: tuple[str, ...] = ()
    output_mean: tuple[float, ...] = ()
    output_std: tuple[float, ...] = ()
    length: int | None = None

    name: ClassVar[str] = "sequences"

    def __post_init__(self) -> None:
        if min(self.shares) < 0 or abs(sum(self.shares) - 1) > 1e-6:
            raise ValueError(
                f"shares are {' '.join(f'{share:g}' for share in self.shares)}; expected three "
                "that add up to 1, such as 0.7 0.15 0.15"
            )
        low = {"ahead": 1, "window": 2, "bands": 0, "length": 1}
        for option, least in low.items():
            value = getattr(self, option)
            if value is not None and value < least:
                raise ValueError(f"{option} is {value}; expected at least {least}")
        if self.hop <= 0 or self.frame <= 0:
            raise ValueError("frame and hop are milliseconds; expected more than 0")
        if self.window is not None and self.goal in ("classify", "regress"):
            raise ValueError(
                f"window cuts streams with targets at each time step, and the goal is {self.goal}: "
                "leave it out"
            )
        sizes = {len(self.output_mean), len(self.output_std), len(self.outputs)}
        if len(sizes) > 1 or len(self.balance) not in (0, len(self.classes)):
            raise ValueError("outputs, output_mean and output_std must have the same length")

    # ------------------------------------------------------------ input and output

    @property
    def input(self) -> Values:
        return Values(max(1, len(self.channels)), scaled=self.scale)

    @property
    def output(self) -> Output:
        per = "step" if self.per_step else "sequence"
        if self.is_classification:
            return Output(max(1, len(self.classes)), per)
        return Output(max(1, len(self.outputs)), per, scaled=self.scale)

    @property
    def steps(self) -> int:
        return self.length or 1

    @property
    def looks_ahead(self) -> bool:  # type: ignore[override]
        return self.goal == "forecast"

    def named_files(self) -> tuple[str, ...]:
        return tuple(getattr(self, name) for name in PATHS if getattr(self, name))

    # ------------------------------------------------------------ its data

    def _copy(self, **changes: Any) -> Any:
        """This task with other options."""
        return replace(self, **changes)

    def complete(self, data: Path | None = None) -> Any:
        if self.channels and self.length and (self.classes or self.outputs):
            return self
        series, given, _ = self._read(data)
        return self._complete(series, given)

    def _complete(self, series: Series, given: np.ndarray) -> "Sequences":
        goal = find_goal(series) if self.goal == "auto" else self.goal
        check_goal(goal, series)
        task = self._copy(goal=goal, channels=self.channels or series.channels)
        if task.is_classification and not task.classes:
            assert series.target is not None
            task = task._copy(classes=class_names(class_texts(series.target)))
            if len(task.classes) < 2:
                only = f"are {task.classes[0]!r}" if task.classes else "are missing"
                raise ValueError(
                    f"all targets {only}; expected at least two classes: check --task.target, or "
                    "use --task.goal forecast"
                )
        if not task.is_classification:
            names = task.outputs or _output_names(task, series)
            zeros, ones = (0.0,) * len(names), (1.0,) * len(names)
            task = task._copy(outputs=names, output_mean=zeros, output_std=ones)
        spans = task._split(series, given)
        longest = max((int(part.lengths.max(initial=0)) for part in spans.values()), default=0)
        if task.per_step and task.window is None and longest > LONGEST:
            task = task._copy(window=LONGEST)
        task = task._copy(length=1)
        stored = task._encode(series, given)
        task._check_parts(stored)
        return task._with_statistics(stored)

    def _check_parts(self, data: SequenceData) -> None:
        """Training needs sequences to learn from, and others to validate on."""
        for split in ("train", "valid"):
            if len(data.windows[split].starts):
                continue
            if data.ahead and not any(len(part.starts) for part in data.windows.values()):
                raise ValueError(
                    f"a forecast {data.ahead} time steps ahead needs sequences of at least "
                    f"{data.ahead + 2}; the longest has {data.series.lengths.max(initial=0)}: "
                    "use a smaller --task.ahead"
                )
            raise ValueError(_EMPTY.format(split))

    def _with_statistics(self, data: SequenceData) -> "Sequences":
        """The task with everything that depends on the training part."""
        train = data.windows["train"]
        length = max(int(part.lengths.max(initial=1)) for part in data.windows.values())
        if self.is_classification:
            balance = self._class_shares(data)
            task = self._copy(balance=balance, length=length)
            return task.with_metric()
        if data.per == "sequence":
            known = data.target[train.sequence].astype(np.float64)
            mean, std = np.nanmean(known, 0), np.nanstd(known, 0)
            std = np.where(std > 0, std, 1.0)
        else:
            shifted = train._replace(starts=train.starts + data.ahead)
            mean, std = moments(data.target, shifted)
        return self._copy(
            output_mean=tuple(mean.tolist()), output_std=tuple(std.tolist()), length=length
        ).with_metric()

    def _class_shares(self, data: SequenceData) -> tuple[float, ...]:
        train = data.windows["train"]
        if data.per == "sequence":
            labels = data.target[train.sequence]
        else:
            pairs = zip(train.starts, train.lengths, strict=True)
            labels = np.concatenate([data.target[s : s + n] for s, n in pairs])
        counts = np.bincount(labels[labels >= 0], minlength=len(self.classes))
        if lost := [c for c, n in zip(self.classes, counts, strict=True) if n == 0]:
            raise ValueError(
                f"the class {lost[0]!r} does not occur in the training part: bring more sequences "
                "of it, leave it out, or use another --task.split-seed"
            )
        return tuple((counts / counts.sum()).tolist())

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        series, given, about = self._read(data)
        task = self.complete(data)
        stored = task._encode(series, given)
        set_data(self, stored)
        object.__setattr__(self, "_about", about)

    def _read(self, data: Path | None) -> tuple[Series, np.ndarray, dict[str, Any]]:
        """All sequences, the part of each that has its own file, and fingerprints of the files."""
        if not self.path:
            raise ValueError("which data? For example: surnn train sequences --task.path data.csv")
        columns = Columns(
            self.id, self.time, self.features, () if self.goal == "forecast" else self.target,
            self.group, self.goal != "forecast", self.layout, self.labels, self.names, self.bands,
            self.frame, self.hop,
        )  # fmt: skip
        parts, given, about = [], [], {}
        for number, option in enumerate(PATHS):
            named = getattr(self, option)
            if not named:
                continue
            path = Path(named).expanduser()
            if data is not None and not path.exists():
                path = data / path
            series, about[option] = load_series(path, columns)
            parts.append(series)
            given.append(np.full(len(series.lengths), number))
        if self.shares[0] > 0:
            check_different(about)
        return self._joined(parts), np.concatenate(given), about

    def _joined(self, parts: list[Series]) -> Series:
        return match_channels(join_series(parts) if len(parts) > 1 else parts[0], self.channels)

    def _split(self, series: Series, given: np.ndarray) -> dict:
        strata = None
        if self.goal == "classify":
            assert series.target is not None
            strata = class_numbers(class_texts(series.target), self.classes)
            if (strata < 0).any():
                row = int(np.flatnonzero(strata < 0)[0])
                raise ValueError(f"{series.names[row]} has no label; add it, or remove the row")
        whole = not self.per_step
        return split_series(series, given, self.shares, self.split, self.split_seed, strata, whole)

    def _encode(self, series: Series, given: np.ndarray) -> SequenceData:
        check_goal(self.goal, series)
        spans = self._split(series, given)
        series = fill_missing(series, spans["train"], self.missing)
        ahead = self.ahead if self.goal == "forecast" else 0
        least = 1 if self.goal != "forecast" else 2
        windows = {s: cut_windows(part, self.window, ahead, least) for s, part in spans.items()}
        if self.is_classification:
            assert series.target is not None
            target = class_numbers(class_texts(series.target), self.classes)
        elif self.goal == "forecast":
            index = [series.channels.index(name) for name in self.outputs]
            every = index == list(range(len(series.channels)))
            target = series.values if every else series.values[:, index]
        else:
            target = _numbers(series)
        return SequenceData(series, windows, target, "step" if self.per_step else "sequence", ahead)

    def input_scale(self) -> tuple[np.ndarray, np.ndarray]:
        return get_data(self).input_scale()

    def output_scale(self) -> tuple[Any, Any] | None:
        return None if self.is_classification else (self.output_mean, self.output_std)

    def files(self) -> dict[str, str]:
        if "_about" not in vars(self):
            return {}
        data: SequenceData = get_data(self)
        mean, std = data.input_scale()
        sizes = {split: len(part.starts) for split, part in data.windows.items()}
        scale = {"mean": mean.tolist(), "std": std.tolist()}
        about = {"files": vars(self)["_about"], "sequences": sizes, "input_scale": scale}
        return {ON_RECORD: json.dumps(about, indent=1) + "\n"}

    def check_data_unchanged(self, run: Path) -> None:
        if not (run / ON_RECORD).is_file():
            return
        before = json.loads(read_text(run / ON_RECORD))["files"]
        for option, was in before.items():
            now = vars(self)["_about"].get(option)
            if was != now:
                raise ValueError(
                    f"task.{option} {getattr(self, option)!r} is not the data that {run} was "
                    "trained on: a file has changed, was added or removed. Bring them back; or "
                    f"evaluate on these under another name, with surnn eval --task.path OTHER "
                    "--task.shares 0 0 1 --split test; or train again"
                )

    def facts(self) -> SequenceFacts:
        events = self.per_step and self.metric == "F1"
        return sequence_facts(self.goal, len(self.classes), events, get_data(self))

    def size(self, split: Split) -> int:
        return len(get_data(self).windows[split].starts)

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        data: SequenceData = get_data(self)
        count = self.size(split)
        if count == 0:
            raise ValueError(_EMPTY.format(split))
        rows = row_numbers(split, count, number, size, seed)
        batch = data.batch(split, rows, device, self.steps if self.one_length else None)
        return self.with_kinds(batch)

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        more = super().details(prediction, batch)
        if self.goal == "forecast":
            index = [self.channels.index(name) for name in self.outputs]
            more["skill over no change"] = self.skill(prediction, batch, batch.x[..., index])
        return more


def _output_names(task: Sequences, series: Series) -> tuple[str, ...]:
    if task.goal != "forecast":
        return series.target_names
    for name in task.target:
        if name not in series.channels:
            raise ValueError(
                f"task.target {name!r} is none of the inputs, {', '.join(series.channels)}; a "
                "forecast predicts inputs"
            )
    return task.target or series.channels


def _numbers(series: Series) -> np.ndarray:
    assert series.target is not None
    if series.target.dtype.kind != "f":
        raise ValueError(
            "the goal is to predict numbers, and the target has texts: use --task.goal classify"
        )
    if not series.per_step and np.isnan(series.target).any():
        row = int(np.flatnonzero(np.isnan(series.target).any(1))[0])
        raise ValueError(f"{series.names[row]} has no target; add it, or remove the row")
    return series.target.astype(np.float32)
