"""Long Range Arena: Table 2, five tasks by what stands in the blocks.

Six causal layers of 256, as the paper has it; those of images have convolutions before them, of
which it does not tell, and those of Image all that those of sCIFAR have against over-fitting. The
rows from the literature see the whole sequence (Transformer, the later S4); those beside ours here
are causal too. GRUs, LSTMs and minGRUs have as many parameters as ours, and so a smaller, dense
state.
``lra-X-s4d`` has the sizes, batches, epochs and rates of S4's first release (its dynamics at 1e-3
at most, without decay), but diagonal dynamics, and the cosine of all runs here in place of its
plateaus.

Pathfinder's norms are of the batch, as S4's are there: those of each step would make the black that
its images mostly are as loud as a line. Its lines grow in the first updates, whatever is trained on
it, and so do the expressions of ListOps: what a line or a bracket means is learned from short ones
in a fraction of the time. Published numbers are without such.

Clocks do not treat a word alike wherever it stands. ``lra-X-open`` has a first layer that does, for
it updates at every step, and ``lra-X-input`` gates that see the input.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from ..config import ModelConfig, ModelKind, RunConfig
from ..tasks import load_task
from .base import (
    NATURAL,
    NEAR,
    SELECTIVE,
    SMOOTHED,
    TWO_ROWS,
    Shorten,
    add,
    as_many,
    at_once,
    epochs,
    frozen,
    in_words,
    read_first,
    recipe,
    sigmoid,
    transformer,
    with_task,
)

TABLE = "Table 2"
Row = Literal[
    "binary", "sigmoid", "transformer", "s4d", "open", "input", "frozen", "gru", "lstm", "mingru"
]  # fmt: skip


@dataclass(frozen=True)
class Arena:
    """One of the five tasks, and how it is trained."""

    task: str
    about: str
    sequences: int
    batch: int
    epochs: int
    paper: tuple[float | None, float, float, float]
    """suGRU (binary), suGRU (sigmoid), Transformer, S4."""
    s4: dict[str, Any]
    """S4's sizes."""
    s4_training: tuple[float, float, int, int]
    """S4's learning rate, weight decay, batch and epochs."""
    model: dict[str, Any] = field(default_factory=dict)
    """What else its blocks have, whatever layer stands in them (but S4's)."""
    train: dict[str, Any] = field(default_factory=dict)
    """How its training differs."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the task, whatever is trained on it."""
    shorten: Shorten | None = None


TASKS = {
    "listops": Arena(
        "listops", "Nested operations on lists of digits, short ones first", 96_000, 128, 40,
        (0.4493, 0.3945, 0.3637, 0.5960),
        {"layers": 6, "width": 128, "prenorm": False}, (0.01, 0.01, 50, 50),
        train={"learning_rate": 2e-3}, options={"growing": 4000},
    ),
    "text": Arena(
        "lra_text", "Film reviews, byte by byte", 22_500, 64, 32,
        (0.6442, 0.6417, 0.6427, 0.8682),
        {"layers": 4, "width": 128, "pool": "last", "dropout": 0.0}, (0.01, 0.0, 50, 40),
        model={"dropout": 0.1}, shorten=with_task(max_length=2048),
    ),
    "retrieval": Arena(
        "lra_retrieval", "Whether one paper cites the other", 147_086, 64, 20,
        (0.7754, 0.6323, 0.5746, 0.9090),
        {"layers": 6, "width": 256}, (0.002, 0.0, 64, 25),
        shorten=with_task(max_length=1000),
    ),
    "image": Arena(
        "lra_image", "Grey CIFAR-10, pixel by pixel", 45_000, 128, 200,
        (0.7121, 0.5692, 0.4244, 0.8865),
        {"layers": 6, "width": 512, "prenorm": False, "dropout": 0.2, "tied_dropout": True},
        (0.004, 0.01, 50, 100),
        model=NATURAL, train=SMOOTHED,
    ),
    "pathfinder": Arena(
        "pathfinder", "Whether two dots are on one line, short ones first", 160_000, 128, 200,
        (0.8492, 0.7345, 0.7140, 0.9420),
        {"layers": 6, "width": 256, "dropout": 0.1, "pool": "last"}, (0.004, 0.0, 100, 200),
        model={"convolution": TWO_ROWS, "norm": "batch"}, train={"learning_rate": 2e-3},
        options={"growing": 3000}, shorten=with_task(images=40_000),
    ),
}  # fmt: skip


def plain(name: str) -> RunConfig:
    """SuGRU, 32 heads of 16 in each of six blocks."""
    arena = TASKS[name]
    model = ModelConfig(layers=6, width=256, expand=2, pool="mean", **arena.model)
    options = {"learning_rate": 1e-3, "weight_decay": 0.01, **arena.train}
    train = epochs(arena.epochs, arena.sequences, arena.batch, **options)
    return RunConfig(load_task(arena.task)(**arena.options), model, NEAR, train)


def binary(name: str) -> RunConfig:
    """The same with updates captured, for which all batches must be of one length."""
    config = plain(name)
    if hasattr(config.task, "one_length"):
        config = replace(config, task=replace(config.task, one_length=True))
    return at_once(config)


def s4d(name: str) -> RunConfig:
    """Diagonal state-space layers, of the sizes and rates of S4's first, causal release."""
    arena = TASKS[name]
    rate, decay, batch, count = arena.s4_training
    train = epochs(count, arena.sequences, batch, learning_rate=rate, weight_decay=decay)
    model = ModelConfig("s4d", **{"norm": "batch", "pool": "mean", **arena.s4})
    return RunConfig(load_task(arena.task)(**arena.options), model, train=train)


def other(name: str, kind: ModelKind) -> RunConfig:
    """Another layer in such blocks."""
    return as_many(binary(name), kind)


def attention(name: str) -> RunConfig:
    """A Transformer in its place."""
    return transformer(plain(name))


def seeing(config: RunConfig) -> RunConfig:
    """The same with gates that see the input: sampled, then hardened."""
    train = replace(config.train, rate_penalty=0.1, anneal=(0.5, 0.75))
    return replace(config, gate=SELECTIVE, train=train)


def changed(name: str, change: Callable[[RunConfig], RunConfig]) -> RunConfig:
    """Ours with something changed."""
    return change(binary(name))


ROWS: dict[Row, tuple[str, Callable[[str], RunConfig], str]] = {
    "binary": ("suGRU(binary)", binary, ""),
    "sigmoid": ("suGRU(sigmoid)", partial(changed, change=sigmoid), "gates that are sigmoids"),
    "transformer": ("Transformer", attention, "causal attention"),
    "s4d": ("S4", s4d, "diagonal state-space layers"),
    "open": ("", partial(changed, change=read_first), "a first layer that updates at every step"),
    "input": ("", partial(changed, change=seeing), "gates that see the input"),
    "frozen": ("", partial(changed, change=frozen), "rhythms that are not trained"),
    "gru": ("", partial(other, kind="gru"), f"GRUs, {in_words('gru')}"),
    "lstm": ("", partial(other, kind="lstm"), f"LSTMs, {in_words('lstm')}"),
    "mingru": ("", partial(other, kind="mingru"), f"minGRUs, {in_words('mingru')}"),
}
for _name, _arena in TASKS.items():
    for _number, (_row, (_called, _make, _what)) in enumerate(ROWS.items()):
        _commented_out = _name == "image" and _row == "binary"
        add(
            f"lra-{_name}" + ("" if _row == "binary" else f"-{_row}"),
            partial(_make, _name),
            _arena.about + (f": {_what}." if _what else "."),
            where=TABLE if _called else "",
            called=_called + (" (commented out)" if _commented_out else ""),
            paper=_arena.paper[_number] if _called else None,
            shorten=_arena.shorten,
        )


@recipe()
def lra_image_linear() -> RunConfig:
    """Grey CIFAR-10, pixel by pixel: no recurrence but maps of each step, 480 wide."""
    return other("image", "linear")


@recipe(TABLE, "suGRU(binary)", 0.8637)
def lra_image_colour() -> RunConfig:
    """CIFAR-10 in colour, with crops and flips: what the printed number may be of."""
    return replace(binary("image"), task=load_task("lra_image")(grey=False, augment="crop_flip"))
