"""The training loop, which can stop and resume at any step.

Batches are numbered, random states are saved, and a checkpoint holds everything that changes. On
the CPU a run that was killed and resumed equals, bit for bit, the run that was not.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from surnn.config import RunConfig
from surnn.data.locate import find
from surnn.errors import SurnnError, option_errors
from surnn.models.scaling import set_scales
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn.runs.loading import build_model
from surnn.runs.time_budget import EVALUATION_SHARE, time_used
from surnn.tasks.base import Batch, Task

from . import checkpoint as checkpoints
from .devices import pick_device, unused_options
from .distributed import World
from .evaluate import evaluate, float32_products
from .finetune import StartWeights, load_weights
from .loggers import Logger, Loggers, RunInfo
from .optimizer_step import OptimizerStep, StepReading
from .prefetch import BatchPrefetcher
from .progress import Reporter, SilentReporter
from .signals import Signals

CONTINUE, END, INTERRUPTED = range(3)
"""Decisions of the processes; the largest wins."""


class NotFinite(SurnnError, ArithmeticError):
    """The loss or a gradient is NaN or infinite; the state before it is saved."""


class Trainer:
    """Trains one model on one task, in one folder.

    Args:
        config: every option of the run.
        folder: where the record is written; None writes none. Of several processes the first
            writes it.
        data: a folder with data sets.
        reporter: shows progress.
        loggers: receive the lines of the log, besides those that ``config`` names, until
            :meth:`close`.
        world: the processes that train together; this one alone by default.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder | None = None,
        *,
        data: Path | None = None,
        reporter: Reporter | None = None,
        loggers: Sequence[Logger] = (),
        world: World | None = None,
    ) -> None:
        self.config, self.folder, self.world = config, folder, world or World()
        self.task: Task = config.task
        self.data: dict[str, str] = {}
        """The folder of each data set."""
        self.reporter: Reporter = reporter or SilentReporter()
        self.device = pick_device(config.train.device, self.world)
        torch.manual_seed(config.train.seed)
        with option_errors():  # of the task and of layers
            self._prepare(data)
            config = self.config
            self.model = build_model(config).to(self.device)
            set_scales(self.model, self.task.input_scale(), self.task.output_scale())
            if config.train.calibrate:  # before processes share the weights
                first = self._make_batch(0)
                self.model.calibrate(first.x, first.lengths)
            self.optimizer_step = OptimizerStep(self.model, config, self.world)
        self.batches = BatchPrefetcher(self._make_batch, self.device)
        self._loggers = Loggers(config.train, loggers)
        self.step = 0
        """Optimizer steps so far."""
        self.seconds = 0.0
        """Time of all sessions."""
        self.startup_seconds = 0.0
        """Time of the first step of each session, in which kernels are compiled."""
        self.best: float | None = None
        """Metric of the best complete evaluation."""
        self.evaluations_since_best = 0
        self.logged_step = 0
        self.evaluated_step = 0
        """Steps of the last log line and of the last evaluation."""
        self.evaluation_seconds: float | None = None
        """Time of the longest evaluation."""
        self.interrupted = False
        """Whether a signal to any process ended training."""
        self._signals = Signals()
        self._start_time = time.perf_counter()
        self._session_start = 0, 0.0
        """Steps and seconds before this session."""
        self._time_used = 0.0
        self._saved_at: tuple[int, int] | None = None
        self._notes = unused_options(config, self.device)
        self._weights_ready = config.train.start is None
        """Whether the weights are those to start or resume with."""
        if self.world.size > 1:  # each process draws its own dropout and sampled gates
            torch.manual_seed(config.train.seed + checkpoints.RANK_SEED * self.world.rank)

    def _prepare(self, data: Path | None) -> None:
        """Load the data, in the first process first: it may cache them on disk for the others."""
        for turn in (True, False):
            with self.world.fail_together():
                if self.world.is_main == turn:
                    self.task = self.task.complete(data)
                    self.task.prepare(self.device, data)
        if self.task is not self.config.task:
            self.config = replace(self.config, task=self.task)
        self._make_batch(0)  # a wrong batch size is reported before anything is written
        places = {name: find(name, data) for name in self.task.needs}
        self.data = {k: str(v.folder.resolve()) for k, v in places.items() if v is not None}

    def _make_batch(self, number: int) -> Batch:
        train = self.config.train
        return self.task.batch("train", number, train.batch, train.seed, self.device)

    def use_folder(self, folder: RunFolder) -> None:
        """Write the record to ``folder`` from now on."""
        self.folder = folder

    def _open_loggers(self) -> None:
        with self.world.fail_together():
            if self.world.is_main:
                folder = None if self.folder is None else self.folder.path
                self._loggers.open(RunInfo(folder, config_to_dict(self.config), self.step))

    # ------------------------------------------------------------ the loop

    def load_start_weights(self) -> None:
        """Load the weights of ``train.start``, if it names a run. :meth:`fit` does it if needed."""
        if self._weights_ready:
            return
        start = StartWeights({}, 0, False)
        with self.world.fail_together():
            start = load_weights(self.model, self.config)
        checkpoints.restore_model(self.model, self.optimizer_step.optimizer, start.weights, {})
        note = f"starts with the weights of {self.config.train.start}, step {start.step}"
        if start.new_readout:
            note += "; the readout is new, because this task has other answers"
        self._notes.append(note)
        self.evaluated_step = -1  # evaluated before the first step too; it may stay the best
        self._weights_ready = True

    def fit(self) -> dict[str, Any]:
        """Train to the end, or until a signal comes.

        Returns the metrics of the last evaluation. With ``train.weight_ema`` these are for the mean
        of the weights; the model keeps the weights themselves. The folder is locked meanwhile.
        """
        try:
            metrics = self._fit()
        except BaseException:
            if self.folder is not None:
                self.folder.unlock(ended=False)
            self._loggers.close_opened()
            raise
        if self.folder is not None:
            self.folder.unlock()
        return metrics

    def _fit(self) -> dict[str, Any]:
        train = self.config.train
        self.load_start_weights()
        self._start_time = time.perf_counter() - self.seconds
        self._session_start = self.step, self.seconds
        self.optimizer_step.done.zero_()  # counts the steps of this session
        self.interrupted = False
        self.model.train()
        with self.world.fail_together():
            if self.folder is not None and self.world.is_main:
                self.folder.lock()
                self.folder.set_config(config_to_dict(self.config))
                self.folder.drop_lines_after(self.step, self.evaluated_step)
        if train.start is not None and self.step == 0:
            self.save()  # from here on the run does not depend on the other one
        self._open_loggers()
        while self._notes:
            self.reporter.message(self._notes.pop(0))
        metrics: dict[str, Any] = {}
        with self._signals, float32_products(self.device, train.tf32):
            while True:
                at_end = self.step >= train.steps
                if self._has_unlogged_steps() and (at_end or self.step % train.log_every == 0):
                    self._log()
                due = at_end or self.step % train.evaluate_every == 0
                if due and self.evaluated_step < self.step:
                    metrics = self._evaluate() or metrics
                reason = self._stop_reason()
                if at_end or reason is not None:
                    break
                if self.step > 0 and self.step % train.checkpoint_every == 0:
                    self.save()
                self._train_step()
            if not self.interrupted:  # an interrupted run logs and evaluates when it resumes
                if self._has_unlogged_steps():
                    self._log()
                if self.evaluated_step < self.step:
                    metrics = self._evaluate() or metrics
            self.save()
        if reason is not None:
            self.reporter.message(f"stopped at step {self.step}: {reason}")
        return metrics

    def _has_unlogged_steps(self) -> bool:
        return self.step > max(self.logged_step, self._session_start[0])

    def _train_step(self) -> None:
        train = self.config.train
        progress = max(self.step, min(1.0, self._time_used) * train.steps)
        self.optimizer_step(progress, self.batches.take(self.step))
        self.step += 1
        if self.step < train.steps:
            self.batches.prepare(self.step)
        first = self.step == self._session_start[0] + 1
        if first or (self.device.type == "cpu" and bool(self.optimizer_step.failed)):
            self._read()  # reading waits for a GPU, so there it is done only for log lines
        self.seconds = time.perf_counter() - self._start_time
        if first:
            self.startup_seconds += self.seconds - self._session_start[1]

    def _stop_reason(self) -> str | None:
        """Why to stop, if any process has a reason; also measures the time used."""
        train, signal = self.config.train, self._signals.name
        elapsed = time.perf_counter() - self._start_time
        used = time_used(train, elapsed, self.startup_seconds, self.evaluation_seconds)
        impatient = train.patience is not None and self.evaluations_since_best >= train.patience
        code = INTERRUPTED if signal else END if impatient or used >= 1 else CONTINUE
        code, self._time_used = self.world.largest(code, used)
        if code == CONTINUE:
            return None
        if code == INTERRUPTED:
            self.interrupted = True
            return f"received {signal or 'a signal in another process'}"
        if impatient:
            return f"no improvement in {train.patience} evaluations"
        return f"{train.minutes:g} minutes are over"

    def _may_continue_evaluation(self) -> bool:
        minutes = self.config.train.minutes
        elapsed = time.perf_counter() - self._start_time
        # Better a little late than metrics of a part of the set, which cannot be the best.
        late = minutes is not None and elapsed > (1 + EVALUATION_SHARE) * 60 * minutes
        code = INTERRUPTED if self._signals.name else END if late else CONTINUE
        (code,) = self.world.largest(code)
        self.interrupted = self.interrupted or code == INTERRUPTED
        return code == CONTINUE

    # ------------------------------------------------------------ logging and evaluating

    def _read(self) -> StepReading:
        """Read the device's counters. After a step that was not finite, save and raise."""
        reading = self.optimizer_step.read()
        if not reading.failed:
            return reading
        self.step = self._session_start[0] + reading.steps
        self._save(reading.loss_sum)
        advice = "with a smaller learning rate or --train.clip"
        if self.folder is not None:
            half = self.config.train.learning_rate / 2
            advice += f": surnn resume {self.folder.path} --train.learning-rate {half:g}"
        if self.config.model.max_rate is not None:
            advice += ". More events than model.max_rate allows give NaN too"
        raise NotFinite(
            f"loss {reading.loss:g}, gradient norm {reading.norm:g} at step {self.step}; the state "
            f"before it is saved. Check the data, or resume {advice}"
        )

    def _log(self) -> None:
        reading = self._read()
        self.seconds = time.perf_counter() - self._start_time  # after the device has finished
        values: dict[str, Any] = {
            "loss": reading.loss_sum / (self.step - self.logged_step),
            "gradient_norm": reading.norm,
            "learning_rate": self.optimizer_step.learning_rate,
            "seconds": round(self.seconds, 3),
        }
        if reading.rates:
            values["update_rate"] = reading.rates
        if self.device.type == "cuda":
            values["peak_memory"] = torch.cuda.max_memory_allocated(self.device)
        self.optimizer_step.loss_sum.zero_()
        self.logged_step = self.step
        self._record("train", values)
        self.reporter.report(self.step, values)

    def _evaluate(self) -> dict[str, Any] | None:
        """Metrics on the validation set; None if a signal interrupted the evaluation."""
        self._read()
        train, begin = self.config.train, time.perf_counter()
        with self.optimizer_step.eager(), self.optimizer_step.averaged_weights():
            metrics = evaluate(
                self.model, self.task, "valid", train.evaluation_batch or train.batch, self.device,
                batches=train.evaluation_batches, precision=train.precision, world=self.world,
                may_continue=self._may_continue_evaluation,
            )  # fmt: skip
        if self.interrupted:
            return None
        (took,) = self.world.largest(time.perf_counter() - begin)
        self.evaluation_seconds = max(took, self.evaluation_seconds or 0.0)
        self.seconds = time.perf_counter() - self._start_time
        value = metrics[self.task.metric]
        self.evaluated_step = self.step
        shown = {f"valid {self.task.metric}": value}
        size = self.task.size("valid")
        if size is not None and metrics["sequences"] < size:
            shown["sequences"] = f"{metrics['sequences']}/{size}"
        if "of" in metrics:  # cut short: not comparable with a complete evaluation
            if self.best is None:
                self._save_best(value)
        else:
            self.evaluations_since_best += self.step > self.task.easy_batches
            if self._is_better(value):
                self.best, self.evaluations_since_best = value, 0
                self._save_best(value)
            elif value == self.best:  # as good, and trained for longer
                self._save_best(value)
        times = {"seconds": round(begin - self._start_time, 3), "took": round(took, 3)}
        self._record("valid", {**metrics, **times})
        self.reporter.report(self.step, shown)
        return metrics

    def _is_better(self, value: float) -> bool:
        if self.best is None or not math.isfinite(value):
            return math.isfinite(value)
        return value > self.best if self.task.higher_is_better else value < self.best

    def _record(self, kind: str, values: dict[str, Any]) -> None:
        with self.world.fail_together():
            if self.folder is not None and self.world.is_main:
                self.folder.log(kind=kind, step=self.step, **values)
            if self.world.is_main:
                self._loggers.log({"kind": kind, "step": self.step, **values})

    # ------------------------------------------------------------ checkpoints

    def save(self) -> None:
        """Write a checkpoint, unless the last one is up to date."""
        if self._saved_at != (self.step, self.evaluated_step):
            self._save(self._read().loss_sum)

    def _save(self, loss_sum: float) -> None:
        if not self.world.any(self.folder is not None):
            return
        weights, state = checkpoints.capture(self, loss_sum)
        with self.world.fail_together():
            if self.folder is not None and self.world.is_main:
                self.folder.save(weights, state)
        self._saved_at = self.step, self.evaluated_step

    def _save_best(self, value: float) -> None:
        if not self.world.any(self.folder is not None):
            return
        with self.optimizer_step.averaged_weights():
            weights = checkpoints.full_weights(self.model)
            with self.world.fail_together():
                if self.folder is not None and self.world.is_main:
                    self.folder.save_best(weights, {"step": self.step, self.task.metric: value})

    def resume(self, checkpoint: str = "last") -> None:
        """Continue from ``checkpoint``, with this trainer's configuration."""
        weights, state = checkpoints.load(self, checkpoint)
        self._notes += checkpoints.restore(self, weights, state)
        self._weights_ready = True
        self._session_start = self.step, self.seconds
        self._saved_at = self.step, self.evaluated_step
        with self.world.fail_together():
            if self.folder is not None and self.world.is_main:
                self.folder.log_session(step=self.step, data=self.data, notes=self._notes)

    def close(self) -> None:
        """Release files and the lock, and detach the model from other processes."""
        self.optimizer_step.close()
        if self.folder is not None:
            self.folder.unlock()
        if self.world.is_main:
            self._loggers.close()
