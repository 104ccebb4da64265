"""The training loop: plain, and able to stop and go on anywhere.

Batches are numbered, randomness is saved, and a checkpoint holds all that changes; so a run that
was killed and resumed is, on the CPU, bit for bit the run that was not.
"""

import math
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .config import RunConfig
from .distributed import World
from .evaluate import autocast, evaluate
from .models import SequenceModel
from .runs import RunFolder
from .schedule import gate_noise, learning_rate
from .tasks.base import Batch, Task


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
        folder: where the record is kept; None keeps none.
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
        self.reporter: Reporter = reporter or Silent()
        self.device = pick_device(config.train.device, self.world)
        torch.manual_seed(config.train.seed)
        self.task.prepare(self.device, data)
        task = self.task
        model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
        self.model = model.to(self.device)
        self.optimizer = make_optimizer(self.model, config)
        self.wrapped: nn.Module = self.world.wrap(self.model)
        if config.train.compile:
            self.wrapped = torch.compile(self.wrapped)  # type: ignore[assignment]
        self.board = self._open_board()
        self.step = 0
        self.seconds = 0.0
        self.best: float | None = None
        self.since_best = 0
        self._asked_to_stop: str | None = None
        self._deadline = math.inf
        self.interrupted = False
        """Whether a signal ended training."""
        self._saved_at: int | None = None
        self._check_batch()
        if self.world.size > 1:  # dropout and sampled gates: each process draws its own
            torch.manual_seed(config.train.seed + 7919 * self.world.rank)

    def _check_batch(self) -> None:
        parts = self.config.train.accumulate * self.world.size
        if self.config.train.batch % parts:
            raise ValueError(
                f"a batch of {self.config.train.batch} cannot be divided among {self.world.size} "
                f"process(es) and {self.config.train.accumulate} accumulated part(s); use a "
                f"multiple of {parts}"
            )

    def keep(self, folder: RunFolder) -> None:
        """Keep the record in ``folder`` from now on."""
        self.folder = folder
        self.board = self._open_board()

    def _open_board(self) -> Any:
        if not self.config.train.tensorboard or self.folder is None or not self.world.first:
            return None
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
        except ImportError as error:
            raise ValueError("tensorboard is not installed: pip install surnn[log]") from error
        return SummaryWriter(str(self.folder.path))

    # ------------------------------------------------------------ the loop

    def fit(self) -> dict[str, Any]:
        """Train to the end, or until asked to stop; the last evaluation."""
        train = self.config.train
        begin, before = time.perf_counter(), self.seconds
        self._deadline = begin + 60 * (math.inf if train.minutes is None else train.minutes)
        result: dict[str, Any] = {}
        evaluated = None
        losses: list[Tensor] = []
        with self._heeding_signals():
            while self.step < train.steps:
                losses.append(self._update())
                self.step += 1
                self.seconds = before + time.perf_counter() - begin
                if self.step % train.log_every == 0 or self.step == train.steps:
                    self._log(losses)
                    losses = []
                if self.step % train.evaluate_every == 0 or self.step == train.steps:
                    result, evaluated = self._evaluate(), self.step
                    if train.patience is not None and self.since_best >= train.patience:
                        self._stop(f"no improvement in {train.patience} evaluations")
                if self._out_of_time():
                    self._stop(f"{train.minutes:g} minutes are over")
                if self.world.any(self._asked_to_stop is not None):
                    break
                if self.step % train.checkpoint_every == 0:
                    self.save()
            if evaluated != self.step and not self.interrupted:  # a run without a number is none
                result = self._evaluate()
        self.save()
        if self._asked_to_stop is not None:
            self.reporter.message(f"stopped at update {self.step}: {self._asked_to_stop}")
        return result

    def _update(self) -> Tensor:
        """One update; the loss."""
        train = self.config.train
        for group in self.optimizer.param_groups:
            group["lr"] = group["full"] * learning_rate(train, self.step)
        for layer in self.model.selective_layers():
            for gate in layer.gates:
                gate.noise = gate_noise(train, self.step)  # type: ignore[assignment]
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        whole = self.task.batch("train", self.step, train.batch, train.seed, self.device)
        total = torch.zeros((), device=self.device)
        for part in range(train.accumulate):
            with self.world.accumulating(self.wrapped, part + 1 < train.accumulate):
                loss = self._loss(rows(whole, part, train.accumulate, self.world))
                (loss / train.accumulate).backward()
            total += loss.detach() / train.accumulate
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), train.clip)
        if self.device.type == "cpu" or self.step % train.log_every == 0:
            self._check_finite(total, norm)
        self.optimizer.step()
        return total

    def _loss(self, batch: Batch) -> Tensor:
        with autocast(self.device, self.config.train.precision):
            prediction = self.wrapped(batch.x, batch.lengths)
        loss = self.task.loss(prediction.float(), batch)
        if self.config.train.rate_penalty:
            layers = self.model.selective_layers()
            penalty = torch.stack([layer.rate_penalty() for layer in layers]).sum()
            loss = loss + self.config.train.rate_penalty * penalty
        return loss

    def _check_finite(self, loss: Tensor, norm: Tensor) -> None:
        if bool(loss.isfinite()) and bool(norm.isfinite()):
            return
        self.optimizer.zero_grad(set_to_none=True)
        self.save()  # the weights are those before this update
        raise NotFinite(
            f"loss {loss.item():g}, gradient norm {norm.item():g} at update {self.step}; the state "
            "before it is saved. A smaller learning rate, clipping or a look at the data may help"
        )

    # ------------------------------------------------------------ what is told

    def _log(self, losses: list[Tensor]) -> None:
        loss = self.world.mean(torch.stack(losses).mean()).item()
        if not math.isfinite(loss):
            raise NotFinite(
                f"the loss is {loss:g} around update {self.step}; resume from the last checkpoint "
                "with a smaller learning rate"
            )
        values: dict[str, Any] = {"loss": loss, "seconds": round(self.seconds, 3)}
        values["learning_rate"] = self.optimizer.param_groups[0]["lr"]
        layers = self.model.selective_layers()
        if layers:
            values["update_rate"] = [layer.update_rate.mean().item() for layer in layers]
        self._record("train", values)
        self.reporter.update(self.step, values)

    def _evaluate(self) -> dict[str, Any]:
        train = self.config.train
        batches = train.evaluation_batches
        found = evaluate(
            self.model, self.task, "valid", train.batch, self.device, batches=batches,
            precision=train.precision,
        )  # fmt: skip
        value = found[self.task.metric]
        if math.isfinite(value) and self._is_better(value):
            self.best, self.since_best = value, 0
            if self.folder is not None and self.world.first:
                self.folder.save_best(
                    self.model.state_dict(), {"step": self.step, self.task.metric: value}
                )
        else:
            self.since_best += 1
        self._record("valid", found)
        self.reporter.update(self.step, {f"valid {self.task.metric}": value})
        return found

    def _is_better(self, value: float) -> bool:
        if self.best is None:
            return True
        return value > self.best if self.task.higher_is_better else value < self.best

    def _record(self, kind: str, values: dict[str, Any]) -> None:
        if self.folder is not None and self.world.first:
            self.folder.log(kind=kind, step=self.step, **values)
        if self.board is not None:
            for name, value in values.items():
                if isinstance(value, float):
                    self.board.add_scalar(f"{kind}/{name}", value, self.step)

    # ------------------------------------------------------------ stopping and going on

    def _out_of_time(self) -> bool:
        """Of this session, so that a resumed run has its time too."""
        if self.config.train.minutes is None:
            return False
        return self.world.any(time.perf_counter() > self._deadline)

    def _stop(self, why: str) -> None:
        self._asked_to_stop = why

    @contextmanager
    def _heeding_signals(self):
        """SIGINT and SIGTERM end the loop after the update at hand, with a checkpoint."""
        handlers: dict[int, Any] = {}

        def stop(number: int, frame: Any) -> None:
            if self.interrupted:  # a second time: at once
                raise KeyboardInterrupt
            self.interrupted = True
            self._stop(f"{signal.Signals(number).name} came")

        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                handlers[number] = signal.signal(number, stop)
            except ValueError:  # not in the main thread: whoever is there heeds signals
                break
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def save(self) -> None:
        """A checkpoint to go on from."""
        if self.folder is None or not self.world.first or self._saved_at == self.step:
            return
        random: dict[str, Tensor] = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "best": self.best,
            "since_best": self.since_best,
            "optimizer": self.optimizer.state_dict(),
            "random": random,
        }
        self.folder.save(self.model.state_dict(), state)
        self._saved_at = self.step

    def close(self) -> None:
        """Let go of what ties this process to others and to files; the model stays."""
        self.wrapped = self.model
        if self.board is not None:
            self.board.close()

    def resume(self, checkpoint: str = "last") -> None:
        """Go on where ``checkpoint`` was."""
        assert self.folder is not None
        weights, state = self.folder.load(checkpoint)
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]
        self.best, self.since_best = state["best"], state["since_best"]
        torch.set_rng_state(state["random"]["cpu"].cpu())
        if self.device.type == "cuda" and "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"].cpu(), self.device)
        if self.world.first:
            self.folder.forget_after(self.step)


# ---------------------------------------------------------------------------- parts


def pick_device(wanted: str, world: World) -> torch.device:
    """The device of this process."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ValueError("no CUDA device is there; use --train.device cpu")
    return torch.device(wanted, world.local_rank) if wanted == "cuda" else torch.device("cpu")


def make_optimizer(model: SequenceModel, config: RunConfig) -> torch.optim.AdamW:
    """AdamW in three groups: matrices decay; vectors and gates do not; gates have a rate."""
    train = config.train
    gates = {id(p) for p in model.gate_parameters()}
    trained = [p for p in model.parameters() if p.requires_grad]
    own = [p for p in trained if id(p) in gates]
    rest = [p for p in trained if id(p) not in gates]
    rate = train.learning_rate
    gate_rate = rate if train.gate_learning_rate is None else train.gate_learning_rate
    matrices = [p for p in rest if p.dim() > 1 and not getattr(p, "is_dynamics", False)]
    decayed = {id(p) for p in matrices}
    groups = [
        {"params": matrices, "weight_decay": train.weight_decay, "lr": rate},
        {"params": [p for p in rest if id(p) not in decayed], "weight_decay": 0.0, "lr": rate},
        {"params": own, "weight_decay": 0.0, "lr": gate_rate},
    ]
    groups = [{**g, "full": g["lr"]} for g in groups if g["params"]]
    return torch.optim.AdamW(groups, fused=next(model.parameters()).is_cuda)


def rows(batch: Batch, part: int, parts: int, world: World) -> Batch:
    """This process's rows of one accumulated part of a batch."""
    if parts * world.size == 1:
        return batch
    begin = part * world.size + world.rank
    share = len(batch.x) // (parts * world.size)
    chosen = slice(begin * share, (begin + 1) * share)
    lengths = None if batch.lengths is None else batch.lengths[chosen]
    kinds = None if batch.kinds is None else batch.kinds[chosen]
    return Batch(batch.x[chosen], batch.target[chosen], lengths, kinds)
