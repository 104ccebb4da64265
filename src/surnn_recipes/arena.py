"""Long Range Arena: Table 2, five tasks with different layers in the blocks.

Six causal layers of 256, as in the paper. Layers for images have convolutions before them, which
the paper does not mention; those of Image also have the regularisation of sCIFAR. Rows from the
literature see the whole sequence (Transformer, the later S4); our baselines are causal. GRUs, LSTMs
and minGRUs have as many parameters as ours, and therefore a smaller, dense state; so have
``lra-X-s4d-equal`` and ``lra-X-transformer-equal``, in our blocks. ``lra-X-s4d`` has
the sizes, batches, epochs and rates of S4's first release (its dynamics at 1e-3 at most, without
decay), with diagonal dynamics and our cosine schedule in place of its plateaus.

Pathfinder uses batch norm, as S4 does there: a norm at each time step would amplify black, which
fills most of its images, to the level of a line. Its lines grow over the first steps of training,
for all models, and so do the expressions of ListOps: models learn the meaning of a line or a
bracket from short ones in a fraction of the time. Published numbers are without this.

A clock treats a word differently at each position. ``lra-X-open`` has a first layer that does not,
because it updates at every time step; ``lra-X-input`` has gates that depend on the input.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from surnn.config import ModelConfig, ModelKind, RunConfig
from surnn.tasks import load_task

from .base import (
    IMAGE_OPTIONS,
    IMAGE_TRAINING,
    SELECTIVE,
    TRIANGLE_CLOCK,
    TWO_ROWS,
    Shorten,
    add,
    epochs,
    match_parameters,
    recipe,
    size_note,
    with_compile_and_graph,
    with_frozen_gates,
    with_soft_gates,
    with_task,
    with_transformer,
    with_ungated_first_layer,
)

TABLE = "Table 2"
Row = Literal[
    "binary", "sigmoid", "transformer", "s4d", "open", "input", "frozen", "gru", "lstm", "mingru",
    "s4d-equal", "transformer-equal",
]  # fmt: skip


@dataclass(frozen=True)
class Arena:
    """One of the five tasks, and its training."""

    task: str
    about: str
    sequences: int
    batch: int
    epochs: int
    paper: tuple[float, float, float, float]
    """The paper's numbers: suGRU (binary), suGRU (sigmoid), Transformer, S4 (bidirectional)."""
    s4: dict[str, Any]
    """S4's sizes."""
    s4_training: tuple[float, float, int, int]
    """S4's learning rate, weight decay, batch and epochs."""
    model: dict[str, Any] = field(default_factory=dict)
    """Further options of its blocks, for all layers but S4's."""
    train: dict[str, Any] = field(default_factory=dict)
    """Options of its training."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the task, for all models."""
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
        (0.8637, 0.5692, 0.4244, 0.8865),
        {"layers": 6, "width": 512, "prenorm": False, "dropout": 0.2, "sequence_dropout": True},
        (0.004, 0.01, 50, 100),
        model=IMAGE_OPTIONS, train=IMAGE_TRAINING,
    ),
    "pathfinder": Arena(
        "pathfinder", "Whether two dots are on one line, short ones first", 160_000, 128, 200,
        (0.8492, 0.7345, 0.7140, 0.9420),
        {"layers": 6, "width": 256, "dropout": 0.1, "pool": "last"}, (0.004, 0.0, 100, 200),
        model={"convolution": TWO_ROWS, "norm": "batch"}, train={"learning_rate": 2e-3},
        options={"growing": 3000}, shorten=with_task(images=40_000),
    ),
}  # fmt: skip


def sugru(name: str) -> RunConfig:
    """SuGRU, 32 heads of 16 in each of six blocks."""
    arena = TASKS[name]
    model = ModelConfig(layers=6, width=256, expand=2, pool="mean", **arena.model)
    options = {"learning_rate": 1e-3, "weight_decay": 0.01, **arena.train}
    train = epochs(arena.epochs, arena.sequences, arena.batch, **options)
    return RunConfig(load_task(arena.task)(**arena.options), model, TRIANGLE_CLOCK, train)


def binary(name: str) -> RunConfig:
    """The same in CUDA graphs, which need batches of one length."""
    config = sugru(name)
    if hasattr(config.task, "one_length"):
        config = replace(config, task=replace(config.task, one_length=True))
    return with_compile_and_graph(config)


def s4d(name: str) -> RunConfig:
    """Diagonal state-space layers with the sizes and rates of S4's first, causal release."""
    arena = TASKS[name]
    rate, decay, batch, count = arena.s4_training
    train = epochs(count, arena.sequences, batch, learning_rate=rate, weight_decay=decay)
    model = ModelConfig("s4d", **{"norm": "batch", "pool": "mean", **arena.s4})
    return RunConfig(load_task(arena.task)(**arena.options), model, train=train)


def with_layer(name: str, kind: ModelKind) -> RunConfig:
    """``binary`` with another layer in its blocks."""
    return match_parameters(binary(name), kind)


def attention(name: str) -> RunConfig:
    """A Transformer."""
    return with_transformer(sugru(name))


def with_input_gates(config: RunConfig) -> RunConfig:
    """Gates that depend on the input: sampled first, then hard."""
    train = replace(config.train, rate_penalty=0.1, anneal=(0.5, 0.75))
    return replace(config, gate=SELECTIVE, train=train)


def with_change(name: str, change: Callable[[RunConfig], RunConfig]) -> RunConfig:
    """``binary`` with one change."""
    return change(binary(name))


ROWS: dict[Row, tuple[str, Callable[[str], RunConfig], str]] = {
    "binary": ("suGRU(binary)", binary, ""),
    "sigmoid": ("suGRU(sigmoid)", partial(with_change, change=with_soft_gates), "soft gates"),
    "transformer": ("Transformer", attention, "causal attention"),
    "s4d": ("S4", s4d, "diagonal state-space layers"),
    "open": (
        "",
        partial(with_change, change=with_ungated_first_layer),
        "a first layer without gates",
    ),
    "input": ("", partial(with_change, change=with_input_gates), "gates that depend on the input"),
    "frozen": ("", partial(with_change, change=with_frozen_gates), "untrained rhythms"),
}
MATCHED: dict[Row, tuple[ModelKind, str]] = {
    "gru": ("gru", "GRUs"),
    "lstm": ("lstm", "LSTMs"),
    "mingru": ("mingru", "minGRUs"),
    "s4d-equal": ("s4d", "diagonal state-space layers in our blocks"),
    "transformer-equal": ("transformer", "causal attention"),
}
"""Rows with as many parameters as ours."""
for _name, _arena in TASKS.items():
    for _number, (_row, (_paper_name, _make, _what)) in enumerate(ROWS.items()):
        add(
            f"lra-{_name}" + ("" if _row == "binary" else f"-{_row}"),
            partial(_make, _name),
            _arena.about + (f": {_what}." if _what else "."),
            paper_table=TABLE if _paper_name else "",
            paper_name=_paper_name,
            paper=_arena.paper[_number] if _paper_name else None,
            shorten=_arena.shorten,
        )
    for _row, (_kind, _what) in MATCHED.items():
        _size = size_note(_kind, pairs=_name == "retrieval")
        add(
            f"lra-{_name}-{_row}",
            partial(with_layer, _name, _kind),
            f"{_arena.about}: {_what}, {_size}.",
            shorten=_arena.shorten,
        )


@recipe()
def lra_image_linear() -> RunConfig:
    """Grey CIFAR-10, pixel by pixel: maps of each time step, 480 wide, in place of recurrence."""
    return with_layer("image", "linear")


@recipe()
def lra_pathfinder_linear() -> RunConfig:
    """Pathfinder: maps of each time step, 480 wide, in place of recurrence."""
    return with_layer("pathfinder", "linear")


@recipe()
def lra_image_colour() -> RunConfig:
    """CIFAR-10 in colour, with crops and flips: the data of scifar. The paper's may be these."""
    return replace(binary("image"), task=load_task("lra_image")(grey=False, augment="crop_flip"))
