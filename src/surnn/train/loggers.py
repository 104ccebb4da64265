"""Loggers: where else the lines of a run's log go, such as TensorBoard, wandb or MLflow.

A logger is any object with the methods ``log`` and ``close``. ``Trainer(..., loggers=[mine])``
takes one. ``--train.loggers module:Class`` names a class, which is called with the run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from surnn.config import TrainConfig
from surnn.errors import ConfigError

TENSORBOARD = "surnn.train.tensorboard:TensorBoardLogger"


class Logger(Protocol):
    """Receives every line of the log. Its errors end training."""

    def log(self, record: dict[str, Any]) -> None:
        """One line, as ``metrics.jsonl`` has it.

        ``kind`` is "train" or "valid", ``step`` the optimizer steps so far. Among the other values
        are lists, with an entry for each layer, and dictionaries; :func:`flatten_scalars` names
        each number in them.
        """
        ...

    def close(self) -> None:
        """Training has ended, or failed."""
        ...


@dataclass(frozen=True)
class RunInfo:
    """The argument of a logger's class."""

    folder: Path | None
    """The run's folder. None: the run has none."""
    config: dict[str, Any]
    """All options of the run, as in ``config.json``."""
    step: int
    """Optimizer steps so far. Lines of later steps, from a process that was killed, come again."""


class Loggers:
    """All loggers of a run; only the first of several processes opens any.

    Args:
        train: names classes of loggers.
        given: loggers that exist already.
    """

    def __init__(self, train: TrainConfig, given: Sequence[Logger] = ()) -> None:
        names = (*train.loggers, TENSORBOARD) if train.tensorboard else train.loggers
        self._classes = [import_logger(name) for name in names]
        self._given = tuple(given)
        self._opened: list[Logger] = []

    def open(self, run: RunInfo) -> None:
        """Call the classes; those of an earlier session are closed."""
        self.close_opened()
        for each in self._classes:
            self._opened.append(each(run))

    def log(self, record: dict[str, Any]) -> None:
        """Pass on a line of the log."""
        for logger in (*self._given, *self._opened):
            logger.log(dict(record))

    def close(self) -> None:
        """Close all loggers."""
        self.close_opened()
        for logger in self._given:
            logger.close()

    def close_opened(self) -> None:
        """Close the loggers that :meth:`open` made."""
        while self._opened:
            self._opened.pop().close()


def import_logger(name: str) -> Any:
    """The class that ``module:Class`` names.

    If it has a function ``check``, that is called now, before the run begins.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigError(f"train.loggers names classes as module:Class, got {name!r}")
    try:
        logger = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the logger {name} cannot be imported: {error}; install its package, or add its "
            "folder to PYTHONPATH"
        ) from error
    if not isinstance(logger, type) or not all(hasattr(logger, each) for each in ("log", "close")):
        raise ConfigError(
            f"the logger {name} is {logger!r}; expected a class with the methods log and close"
        )
    if hasattr(logger, "check"):
        logger.check()  # type: ignore[attr-defined]
    return logger


def flatten_scalars(values: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Scalars by name; values of layers as ``update_rate/layer1``, values by kind below that."""
    for name, value in values.items():
        if isinstance(value, list):
            layers = {f"layer{number}": each for number, each in enumerate(value, 1)}
            yield from ((f"{name}/{below}", each) for below, each in flatten_scalars(layers))
        elif isinstance(value, dict):
            yield from ((f"{name}/{below}", each) for below, each in flatten_scalars(value))
        elif isinstance(value, float):
            yield name, value
