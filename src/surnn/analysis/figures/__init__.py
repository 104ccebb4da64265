"""Figures of runs, by name: what ``surnn plot`` draws.

A figure is a function of some runs that gives a matplotlib figure. To add one, write it in the file
of its kind and enter it in ``PLOTS``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...tasks.base import Batch
from ..recording import record
from . import costs, gates, gradients, images, learning, signals, states
from .subjects import Subject, Unfit, name_all, timed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PLOTS", "Plot", "Subject", "Unfit", "name_all"]


def _a_moment(_subjects: Sequence[Subject]) -> float:
    return 1.0


def _recordings(
    sequences: int, batch: Callable[[Subject, int], Batch] = Subject.batch
) -> Callable[[Sequence[Subject]], float]:
    """Time of recordings of so many sequences each."""

    def seconds(subjects: Sequence[Subject]) -> float:
        return sum(
            _recording(subject, batch(subject, min(4, sequences)), sequences)
            for subject in subjects
        )

    return seconds


def _recordings_of_gates(sequences: int) -> Callable[[Sequence[Subject]], float]:
    return _recordings(sequences, Subject.batch_for_gates)


def _recordings_unless_tested(sequences: int) -> Callable[[Sequence[Subject]], float]:
    """If all have been tested, their numbers are known."""
    seconds = _recordings(sequences)
    return lambda subjects: (
        _a_moment(subjects) if all(s.tested is not None for s in subjects) else seconds(subjects)
    )


def _recording(subject: Subject, few: Batch, sequences: int) -> float:
    """One sequence is tried, and then a few, as a batch costs less than its parts."""

    def of(count: int) -> float:
        lengths = None if few.lengths is None else few.lengths[:count]
        return timed(lambda: record(subject.trained.model, few.x[:count], lengths))

    one = of(1)
    if one * sequences < 1:
        return one * sequences
    return one + (sequences - 1) * max(0.0, of(len(few.x)) - one) / max(1, len(few.x) - 1)


@dataclass(frozen=True)
class Plot:
    """A figure of runs: ``draw(runs, example)``, where the example is one sequence's number."""

    about: str
    draw: Callable[[Sequence[Subject], int], "Figure"]
    seconds: Callable[[Sequence[Subject]], float]
    """How long it will take, found out by trying a little of it."""
    several: bool = True
    """Whether it shows more than one run."""


@dataclass(frozen=True)
class BenchmarkPlot:
    """A figure of a benchmark's folder."""

    about: str
    draw: Callable[[Path], "Figure"]


PLOTS: dict[str, Plot | BenchmarkPlot] = {
    "learning-curves": Plot(
        "loss and metric against updates; runs that differ in their seed become one band",
        learning.learning_curves, _a_moment,
    ),
    "wall-clock": Plot(
        "metric against seconds of training, a panel for each task", learning.wall_clock, _a_moment
    ),
    "metric-by-rate": Plot(
        "metric on the test set against the update rate, a panel for each task",
        learning.metric_by_rate, _a_moment,
    ),
    "copying-loss": Plot(
        "copying: loss against updates, with the memoryless line", learning.copying_loss, _a_moment
    ),
    "gradients": Plot(
        "gradient norm against temporal distance, before and after training, with the fitted line",
        gradients.gradients, gradients.gradient_seconds,
    ),
    "proposition-1": Plot(
        "the constant that Proposition 1 needs, measured", gradients.proposition_1,
        gradients.proposition_seconds,
    ),
    "trajectories": Plot(
        "states along their two principal components", states.trajectories,
        _recordings(states.SEQUENCES),
    ),
    "gate-raster": Plot(
        "which gates are open when", gates.gate_raster, _recordings_of_gates(1), False
    ),
    "timescales": Plot(
        "steps between a unit's updates, layer by layer", gates.timescales,
        _recordings_of_gates(gates.SEQUENCES),
    ),
    "effective-depth": Plot(
        "updates taken against steps elapsed", gates.effective_depth,
        _recordings_of_gates(gates.SEQUENCES),
    ),
    "paths": Plot(
        "paths in the ensemble of sub-RNNs, by length", gates.paths, _recordings_of_gates(2), False
    ),
    "update-rates": Plot(
        "update rates before and after training", gates.update_rates_figure,
        _recordings_of_gates(2 * gates.SEQUENCES),
    ),
    "image-updates": Plot(
        "gates and changes of the state at each pixel, for each class", images.image_updates,
        _recordings(images.LOOKED_THROUGH), False,
    ),
    "depth-maps": Plot(
        "gates, states and outputs of every layer at each pixel", images.depth_maps,
        _recordings(1), False,
    ),
    "updates-on-signal": Plot(
        "a signal with its updates marked, and rate against the input's change",
        signals.updates_on_signal, _recordings(signals.SEQUENCES), False,
    ),
    "forecast-horizon": Plot(
        "Mackey-Glass: test error against steps ahead", learning.forecast_horizon,
        _recordings_unless_tested(learning.SERIES),
    ),
    "attractors": Plot(
        "Mackey-Glass: forecasts in the plane of x(t) and x(t - 17)", learning.attractors,
        _recordings(1),
    ),
    "trade-offs": Plot(
        "attention, convolution, RNN and suRNN: formulas, counts and a training step's time",
        costs.trade_offs_figure, costs.trade_offs_seconds, False,
    ),
    "run-time": BenchmarkPlot(
        "time of a training step against length; of a folder of surnn bench", costs.run_time
    ),
    "latency": BenchmarkPlot(
        "speed of the C engine; of a folder of surnn bench engine", costs.latency
    ),
}  # fmt: skip
