"""Mackey-Glass: Figure A8, four layers of 48 by horizon.

One model per horizon; ``mackey-glass`` is one model for all, with as many outputs. The paper prints
no numbers. A true forecast must get worse with the horizon; the controls show other causes of a
flat curve. With a trained model: ``surnn eval RUN --task.control shift`` (the clock 137 time steps
ahead) and ``--task.control leak`` (the series it was trained on).
"""

from collections.abc import Callable
from functools import partial

from surnn.config import ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.tasks.mackey_glass import Control, MackeyGlass

from .base import add, recipe, with_task

FIGURE = "Figure A8"
HORIZONS = (10, 20, 50, 100, 200, 500, 1000)
SHORTER = with_task(length=2000)


def sugru(*horizons: int, always_on: float = 0.0, control: Control = "forecast") -> RunConfig:
    """One dense head, one gate per unit."""
    gate = RhythmConfig(rate=0.1, granularity="unit", frequencies=48, always_on=always_on)
    model = ModelConfig(layers=4, width=48, heads=1, block="stack")
    train = TrainConfig(
        steps=500, batch=32, learning_rate=2e-3, warmup=25, hold=0.0, evaluate_every=50,
        cuda_graph=True,
    )  # fmt: skip
    return RunConfig(MackeyGlass(horizons=horizons, control=control), model, gate, train)


def always_on(*horizons: int) -> RunConfig:
    """Always-on units, which help with short horizons according to the paper."""
    return sugru(*horizons, always_on=0.25)


def gru(*horizons: int) -> RunConfig:
    """As many units."""
    return sugru(*horizons).with_model("gru")


def lstm(*horizons: int) -> RunConfig:
    """As many units."""
    return sugru(*horizons).with_model("lstm")


def s4d(*horizons: int) -> RunConfig:
    """16 modes each, in blocks: the layers are linear and do not change the width."""
    return sugru(*horizons).with_model("s4d", block="residual", state=16)


ROWS: dict[str, tuple[str, Callable[..., RunConfig], str]] = {
    "": ("suGRU", sugru, "SuGRU"),
    "-always-on": ("suGRU, some always on", always_on, "SuGRU, a quarter of its units always on"),
    "-gru": ("GRU", gru, "GRU"),
    "-lstm": ("LSTM", lstm, "LSTM"),
    "-s4d": ("SSM", s4d, "diagonal state-space layers"),
}
for _ahead in ((), *((horizon,) for horizon in HORIZONS)):
    for _ending, (_paper_name, _make, _what) in ROWS.items():
        add(
            "-".join(("mackey-glass", *map(str, _ahead))) + _ending,
            partial(_make, *(_ahead or HORIZONS)),
            (f"{_ahead[0]} steps" if _ahead else "10 to 1000 steps") + f" ahead: {_what}.",
            paper_table=FIGURE,
            paper_name=_paper_name,
            shorten=SHORTER,
        )


@recipe(shorten=SHORTER)
def mackey_glass_recall() -> RunConfig:
    """All horizons backwards: recall, the direction of the LMU's published code."""
    return sugru(*HORIZONS, control="recall")


@recipe(shorten=SHORTER)
def mackey_glass_leak() -> RunConfig:
    """All horizons, evaluated on the training series: how much a clock can memorise."""
    return sugru(*HORIZONS, control="leak")
