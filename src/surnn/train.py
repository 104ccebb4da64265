"""The training loop: plain, and able to stop and go on anywhere.

Batches are numbered, randomness is saved, and a checkpoint holds all that changes; so a run that
was killed and resumed is, on the CPU, bit for bit the run that was not.
"""

import math
import time
from pathlib import Path
from typing import Any, Protocol

import torch

from .board import board_class, scalars
from .checkpoints import random_states, restore, restore_random, whole_optimizer, whole_weights
from .config import RunConfig
from .data.where import find
from .devices import pick_device, unused_here
from .distributed import World
from .evaluate import evaluate, float32_products
from .finetune import weights_for
from .graphs import Ahead
from .models import SequenceModel
from .runs import RunError, RunFolder, config_to_dict
from .schedule import RESERVE, time_used
from .signals import Signals
from .tasks.base import Batch, Task
from .update import Reading, Updater

KEPT = (
    "step", "seconds", "starting", "best", "since_best", "logged", "evaluated", "evaluation_seconds"
)  # fmt: skip
"""What a checkpoint holds besides weights, optimizer and randomness."""
GO_ON, ENOUGH, INTERRUPTED = range(3)


class NotFinite(ArithmeticError):
    """The loss or a gradient is NaN or infinite; what was good is saved."""


class Reporter(Protocol):
    """Shows how training goes, while it is entered."""

    def update(self, step: int, values: dict[str, Any]) -> None: ...
    def message(self, text: str) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *_: object) -> None: ...


class Silent:
    """Shows nothing."""

    def update(self, step: int, values: dict[str, Any]) -> None:
        """Nothing."""

    def message(self, text: str) -> None:
        """Nothing."""

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""


class Trainer:
    """Trains one model on one task, in one folder.

    Args:
        config: every choice.
        folder: where the record is kept; None keeps none. Of several processes, that of the first.
        data: a folder with data sets.
        reporter: shows progress.
        world: the processes that train together; alone by default.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder | None = None,
        *,
        data: Path | None = None,
        reporter: Reporter | None = None,
        world: World | None = None,
    ) -> None:
        self.config, self.folder, self.world = config, folder, world or World()
        self.task: Task = config.task
        self.data: dict[str, str] = {}
        """Where each data set was found."""
        self.reporter: Reporter = reporter or Silent()
        self.device = pick_device(config.train.device, self.world)
        torch.manual_seed(config.train.seed)
        self._prepare(data)
        task = self.task
        model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
        self.model = model.to(self.device)
        self.updater = Updater(self.model, config, self.world)
        self.batches = Ahead(self._make_batch, self.device)
        self._board_class = board_class() if config.train.tensorboard else None
        self.board: Any = None
        self.step = 0
        self.seconds = 0.0
        """Of all sessions."""
        self.starting = 0.0
        """Seconds of first updates, in which kernels are compiled."""
        self.best: float | None = None
        """Metric of the best whole evaluation."""
        self.since_best = 0
        self.logged = 0
        self.evaluated = 0
        """Steps of the last line of the log and of the last evaluation."""
        self.evaluation_seconds: float | None = None
        """Of the longest evaluation."""
        self.interrupted = False
        """Whether a signal ended training, in any process."""
        self._signals = Signals()
        self._begin = time.perf_counter()
        self._session = 0, 0.0
        """Updates and seconds before this session."""
        self._used = 0.0
        self._saved: tuple[int, int] | None = None
        self._notes = unused_here(config, self.device)
        self._begun = config.train.start is None
        """Whether the weights are those that training begins or goes on with."""
        if self.world.size > 1:  # dropout and sampled gates: each process draws its own
            torch.manual_seed(config.train.seed + 7919 * self.world.rank)

    def _prepare(self, data: Path | None) -> None:
        """Data: first in the first process, which may keep them on disk for the others."""
        for turn in (True, False):
            with self.world.failing_together():
                if self.world.first == turn:
                    self.task.prepare(self.device, data)
        self._make_batch(0)  # what is wrong with its size is better said now
        found = {name: find(name, data) for name in self.task.needs}
        self.data = {k: str(v.folder.resolve()) for k, v in found.items() if v is not None}

    def _make_batch(self, number: int) -> Batch:
        train = self.config.train
        return self.task.batch("train", number, train.batch, train.seed, self.device)

    def keep(self, folder: RunFolder) -> None:
        """Keep the record in ``folder`` from now on."""
        self.folder = folder

    def _open_board(self) -> None:
        if self._board_class is None or self.folder is None or not self.world.first:
            return
        if self.board is not None:
            self.board.close()
        # What a killed process had written past the checkpoint will be made again.
        self.board = self._board_class(str(self.folder.path), purge_step=self.step + 1)

    # ------------------------------------------------------------ the loop

    def begin(self) -> None:
        """Take the weights of ``train.start``, if it names a run; once, and by itself in fit."""
        if self._begun:
            return
        weights, step = {}, 0
        with self.world.failing_together():
            weights, step = weights_for(self.model, self.config)
        restore(self.model, self.updater.optimizer, weights, {})
        self._notes.append(f"begins with the weights of {self.config.train.start}, update {step}")
        self.evaluated = -1  # what they do before any update is to be known, and may stay the best
        self._begun = True

    def fit(self) -> dict[str, Any]:
        """Train to the end, or until asked to stop; the last evaluation (of the mean of the
        weights, with ``train.average``; the model keeps the weights themselves)."""
        train = self.config.train
        self.begin()
        self._begin = time.perf_counter() - self.seconds
        self._session = self.step, self.seconds
        self.updater.done.zero_()  # counts from there
        self.interrupted = False
        self.model.train()
        with self.world.failing_together():
            if self.folder is not None and self.world.first:
                self.folder.lock()
                self.folder.change(config_to_dict(self.config))
                self.folder.forget_after(self.step, self.evaluated)
        if train.start is not None and self.step == 0:
            self.save()  # so that to go on nobody needs the other run
        self._open_board()
        while self._notes:
            self.reporter.message(self._notes.pop(0))
        result: dict[str, Any] = {}
        with self._signals, float32_products(self.device, train.tf32):
            while True:
                ended = self.step >= train.steps
                untold = self.step > max(self.logged, self._session[0])
                if untold and (ended or self.step % train.log_every == 0):
                    self._log()
                if self.evaluated < self.step and (ended or self.step % train.evaluate_every == 0):
                    result = self._evaluate() or result
                why = self._why_stop()
                if ended or why is not None:
                    break
                if self.step > 0 and self.step % train.checkpoint_every == 0:
                    self.save()
                self._update()
            if not self.interrupted:  # one that is will go on, and tell then
                if self.step > max(self.logged, self._session[0]):
                    self._log()
                if self.evaluated < self.step:
                    result = self._evaluate() or result  # a run without a number is none
            self.save()
        if why is not None:
            self.reporter.message(f"stopped at update {self.step}: {why}")
        return result

    def _update(self) -> None:
        train = self.config.train
        at = max(self.step, min(1.0, self._used) * train.steps)
        self.updater(at, self.batches.take(self.step))
        self.step += 1
        if self.step < train.steps:
            self.batches.prepare(self.step)
        first = self.step == self._session[0] + 1
        if first or (self.device.type == "cpu" and bool(self.updater.lost)):
            self._read()  # on a GPU a look is a wait, so it is taken only when something is told
        self.seconds = time.perf_counter() - self._begin
        if first:
            self.starting += self.seconds - self._session[1]

    def _why_stop(self) -> str | None:
        """The reason, if there is one, in any process; and how much of the time is used."""
        train, came = self.config.train, self._signals.came
        elapsed = time.perf_counter() - self._begin
        used = time_used(train, elapsed, self.starting, self.evaluation_seconds)
        impatient = train.patience is not None and self.since_best >= train.patience
        code = INTERRUPTED if came else ENOUGH if impatient or used >= 1 else GO_ON
        code, self._used = self.world.largest(code, used)
        if code == GO_ON:
            return None
        if code == INTERRUPTED:
            self.interrupted = True
            return f"{came or 'a signal to another process'} came"
        if impatient:
            return f"no improvement in {train.patience} evaluations"
        return f"{train.minutes:g} minutes are over"

    def _may_evaluate_on(self) -> bool:
        minutes = self.config.train.minutes
        elapsed = time.perf_counter() - self._begin
        # A little over time is better than a number of a part of the set, and its weights dropped.
        late = minutes is not None and elapsed > (1 + RESERVE) * 60 * minutes
        code = INTERRUPTED if self._signals.came else ENOUGH if late else GO_ON
        (code,) = self.world.largest(code)
        self.interrupted = self.interrupted or code == INTERRUPTED
        return code == GO_ON

    # ------------------------------------------------------------ what is told

    def _read(self) -> Reading:
        """What the device says. If an update was not finite, the state before it is kept."""
        reading = self.updater.read()
        if not reading.lost:
            return reading
        self.step = self._session[0] + reading.done
        self._save(reading.losses)
        how = "a smaller learning rate or --train.clip"
        if self.folder is not None:
            half = self.config.train.learning_rate / 2
            how += f": surnn resume {self.folder.path} --train.learning-rate {half:g}"
        if self.config.model.max_rate is not None:
            how += ". More updates than model.max_rate makes room for give NaN too"
        raise NotFinite(
            f"loss {reading.loss:g}, gradient norm {reading.norm:g} at update {self.step}; the "
            f"state before it is kept. Look at the data, or go on with {how}"
        )

    def _log(self) -> None:
        reading = self._read()
        self.seconds = time.perf_counter() - self._begin  # when the device had done it
        values: dict[str, Any] = {
            "loss": reading.losses / (self.step - self.logged),
            "gradient_norm": reading.norm,
            "learning_rate": self.updater.rate,
            "seconds": round(self.seconds, 3),
        }
        if reading.rates:
            values["update_rate"] = reading.rates
        if self.device.type == "cuda":
            values["peak_memory"] = torch.cuda.max_memory_allocated(self.device)
        self.updater.losses.zero_()
        self.logged = self.step
        self._record("train", values)
        self.reporter.update(self.step, values)

    def _evaluate(self) -> dict[str, Any] | None:
        """On the validation set; None if a signal came in between."""
        self._read()
        train, begin = self.config.train, time.perf_counter()
        with self.updater.uncompiled(), self.updater.averaged():
            found = evaluate(
                self.model, self.task, "valid", train.evaluation_batch or train.batch, self.device,
                batches=train.evaluation_batches, precision=train.precision, world=self.world,
                go_on=self._may_evaluate_on,
            )  # fmt: skip
        if self.interrupted:
            return None
        (took,) = self.world.largest(time.perf_counter() - begin)
        self.evaluation_seconds = max(took, self.evaluation_seconds or 0.0)
        self.seconds = time.perf_counter() - self._begin
        value = found[self.task.metric]
        self.evaluated = self.step
        shown = {f"valid {self.task.metric}": value}
        size = self.task.size("valid")
        if size is not None and found["sequences"] < size:
            shown["sequences"] = f"{found['sequences']}/{size}"
        if "of" in found:  # the time is over; such a part compares with no other evaluation
            if self.best is None:
                self._save_best(value)
        else:
            self.since_best += self.step > self.task.easy_batches
            if self._is_better(value):
                self.best, self.since_best = value, 0
                self._save_best(value)
        clock = {"seconds": round(begin - self._begin, 3), "took": round(took, 3)}
        self._record("valid", {**found, **clock})
        self.reporter.update(self.step, shown)
        return found

    def _is_better(self, value: float) -> bool:
        if self.best is None or not math.isfinite(value):
            return math.isfinite(value)
        return value > self.best if self.task.higher_is_better else value < self.best

    def _record(self, kind: str, values: dict[str, Any]) -> None:
        with self.world.failing_together():
            if self.folder is not None and self.world.first:
                self.folder.log(kind=kind, step=self.step, **values)
        if self.board is not None:
            for name, value in scalars(values):
                self.board.add_scalar(f"{kind}/{name}", value, self.step)

    # ------------------------------------------------------------ stopping and going on

    def save(self) -> None:
        """A checkpoint to go on from."""
        if self._saved != (self.step, self.evaluated):
            self._save(self._read().losses)

    def _save(self, losses: float) -> None:
        if not self.world.any(self.folder is not None):
            return
        weights = whole_weights(self.model)
        state = {name: getattr(self, name) for name in KEPT} | {
            "losses": losses,
            "optimizer": whole_optimizer(self.model, self.updater.optimizer),
            "random": random_states(self.world, self.device),
            "carried": self.world.gather([v.cpu() for v in self.updater.carried_tensors()]),
        }
        if self.updater.average is not None:
            state["average"] = self.updater.average.state()
        with self.world.failing_together():
            if self.folder is not None and self.world.first:
                self.folder.save(weights, state)
        self._saved = self.step, self.evaluated

    def _save_best(self, value: float) -> None:
        if not self.world.any(self.folder is not None):
            return
        with self.updater.averaged():
            weights = whole_weights(self.model)
            with self.world.failing_together():
                if self.folder is not None and self.world.first:
                    self.folder.save_best(weights, {"step": self.step, self.task.metric: value})

    def resume(self, checkpoint: str = "last") -> None:
        """Go on where ``checkpoint`` was, with this trainer's configuration."""
        weights, state = self._load(checkpoint)
        restore(self.model, self.updater.optimizer, weights, state["optimizer"])
        self._begun = True
        for name in KEPT:
            setattr(self, name, state[name])
        self._session = self.step, self.seconds
        self._saved = self.step, self.evaluated
        self.updater.begin(state["losses"])
        if self.updater.average is not None and "average" in state:  # otherwise it begins here
            self.updater.average.restore(state["average"])
        mixed = (self.config.train.seed + 7919 * self.world.rank) * 1_000_003 + self.step
        if not restore_random(state["random"], self.world, self.device, mixed):
            self._notes.append(
                f"saved by {len(state['random'])} process(es), goes on with {self.world.size} on "
                f"{self.device.type}: batches are the same, dropout and sampled gates draw anew"
            )
        if not self._restore_carried(state.get("carried", [])):
            self._notes.append("streams begin anew, where they stand in the text")
        with self.world.failing_together():
            if self.folder is not None and self.world.first:
                self.folder.note(step=self.step, data=self.data, notes=self._notes)

    def _restore_carried(self, saved: list[list[torch.Tensor]]) -> bool:
        """States that go on from batch to batch; not if they are of other parts of a batch."""
        mine = self.updater.carried_tensors()
        other = saved[self.world.rank] if len(saved) == self.world.size else []
        if [v.shape for v in mine] != [v.shape for v in other]:
            return False
        for part, value in zip(mine, other, strict=True):
            part.copy_(value)
        return True

    def _load(self, checkpoint: str) -> tuple[dict[str, Any], dict[str, Any]]:
        weights: dict[str, Any] = {}
        state: dict[str, Any] = {}
        with self.world.failing_together():
            assert self.folder is not None, "a run without a folder cannot be resumed"
            if self.world.first:
                self.folder.lock()
            weights, state = self.folder.load(checkpoint)
            missing = {*KEPT, "losses", "optimizer", "random"} - set(state)
            if missing:
                raise RunError(
                    f"checkpoint {checkpoint!r} of {self.folder.path} has weights but no "
                    f"{', '.join(sorted(missing))}: training cannot go on from it; use last or "
                    "previous"
                )
        return weights, state

    def close(self) -> None:
        """Let go of what ties this process to others and to files; the model stays."""
        self.updater.close()
        if self.board is not None:
            self.board.close()
        if self.folder is not None:
            self.folder.unlock()
