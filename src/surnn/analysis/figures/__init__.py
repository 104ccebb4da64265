"""The figures of ``surnn plot``, by name.

A figure is a function from some runs to a matplotlib figure. To add one, write it in the file of
its topic and enter it in ``PLOTS``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from surnn.tasks.base import Batch

from ..recording import record
from . import costs, gates, gradients, images, learning, signals, states
from .subjects import NotApplicable, Subject, name_all, timed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PLOTS", "NotApplicable", "Plot", "Subject", "name_all"]


def _a_moment(_subjects: Sequence[Subject]) -> float:
    return 1.0


def _recordings(
    sequences: int, batch: Callable[[Subject, int], Batch] = Subject.batch
) -> Callable[[Sequence[Subject]], float]:
    """Estimated seconds to record this many sequences of each run."""

    def seconds(subjects: Sequence[Subject]) -> float:
        return sum(
            _recording(subject, batch(subject, min(4, sequences)), sequences)
            for subject in subjects
        )

    return seconds


def _recordings_of_gates(sequences: int) -> Callable[[Sequence[Subject]], float]:
    return _recordings(sequences, Subject.batch_for_gates)


def _recordings_unless_tested(sequences: int) -> Callable[[Sequence[Subject]], float]:
    """The same, but no time if the numbers are known because all runs have been tested."""
    seconds = _recordings(sequences)
    return lambda subjects: (
        _a_moment(subjects) if all(s.tested is not None for s in subjects) else seconds(subjects)
    )


def _recording(subject: Subject, few: Batch, sequences: int) -> float:
    """Estimated from one sequence and from a few, as a batch costs less than its parts."""

    def of(count: int) -> float:
        lengths = None if few.lengths is None else few.lengths[:count]
        return timed(lambda: record(subject.trained.model, few.x[:count], lengths))

    one = of(1)
    if one * sequences < 1:
        return one * sequences
    return one + (sequences - 1) * max(0.0, of(len(few.x)) - one) / max(1, len(few.x) - 1)


@dataclass(frozen=True)
class Plot:
    """A figure of runs: ``draw(runs, example)``, where ``example`` is the number of a sequence."""

    about: str
    draw: Callable[[Sequence[Subject], int], "Figure"]
    seconds: Callable[[Sequence[Subject]], float]
    """Estimates how long drawing takes, by running a small part of it."""
    several: bool = True
    """Whether it shows more than one run."""


@dataclass(frozen=True)
class BenchmarkPlot:
    """A figure of a benchmark, drawn from its folder."""

    about: str
    draw: Callable[[Path], "Figure"]


PLOTS: dict[str, Plot | BenchmarkPlot] = {
    "learning-curves": Plot(
        "loss and metric against optimizer steps; runs that differ only in the seed share a band",
        learning.learning_curves, _a_moment,
    ),
    "wall-clock": Plot(
        "metric against seconds of training, a panel for each task", learning.wall_clock, _a_moment
    ),
    "metric-by-rate": Plot(
        "metric on the test set against the update rate, a panel for each task",
        learning.metric_by_rate, _a_moment,
    ),
    "metric-by-work": Plot(
        "metric on the test set against multiply-accumulates per time step",
        learning.metric_by_work, _a_moment,
    ),
    "metric-by-length": Plot(
        "metric of the same weights on tests of several lengths", learning.metric_by_length,
        _a_moment,
    ),
    "copying-loss": Plot(
        "copying: loss against optimizer steps, with the memoryless line",
        learning.copying_loss, _a_moment,
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
        "open gates over time", gates.gate_raster, _recordings_of_gates(1), False
    ),
    "timescales": Plot(
        "time steps between a unit's updates, layer by layer", gates.timescales,
        _recordings_of_gates(gates.SEQUENCES),
    ),
    "effective-depth": Plot(
        "updates against elapsed time steps", gates.effective_depth,
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
        _recordings(images.IMAGES), False,
    ),
    "depth-maps": Plot(
        "gates, states and outputs of every layer at each pixel", images.depth_maps,
        _recordings(1), False,
    ),
    "updates-on-signal": Plot(
        "a signal with its updates marked, and rate against the input's change",
        signals.updates_on_signal, _recordings(signals.SEQUENCES), False,
    ),
    "updates-on-stream": Plot(
        "a stream of tokens with the updates of each gate, and with its events marked",
        signals.updates_on_stream, _recordings(1), False,
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
        "attention, convolution, RNN and suRNN: formulas, counts and the time of a training step",
        costs.trade_offs_figure, costs.trade_offs_seconds, False,
    ),
    "run-time": BenchmarkPlot(
        "time of a training step against length, from a folder of surnn bench", costs.run_time
    ),
    "latency": BenchmarkPlot(
        "speed of the C engine, from a folder of surnn bench engine", costs.latency
    ),
}  # fmt: skip
