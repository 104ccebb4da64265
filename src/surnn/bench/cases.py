"""Cases and suites as plain data, the most important first. Does not import torch."""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

Mode = Literal["eager", "graph"]
EAGER: tuple[Mode, ...] = ("eager",)
BOTH: tuple[Mode, ...] = ("eager", "graph")

RATES = (1.0, 0.17)
OURS = {"gru": "SuGRU", "lstm": "SuLSTM", "rnn": "SuRNN", "alif": "SuSNN"}
SHORT = {"bfloat16": "bf16", "float32": "fp32"}
TORCH = {"gru": "nn.GRU", "lstm": "nn.LSTM", "rnn": "nn.RNN"}

GROUPS = {
    "layer": "training step against torch's layer of as many units (whose recurrence is dense)",
    "length": "training step over sequence length, as in the paper's figure",
    "long": "long sequences: time grows with the events of the busiest head",
    "spiking": "spiking layer (adaptive LIF) against an eager loop",
    "input": "gates that depend on the input against a clock",
    "dense": "one dense head with a gate for each unit",
    "peers": "recurrent layers of other packages",
}


@dataclass(frozen=True)
class Contestant:
    """A layer and its options; the case has widths and lengths."""

    name: str
    kind: Literal["ours", "torch", "peer"]
    cell: str = "gru"
    """The cell, or a peer's name in :mod:`surnn.bench.peers`."""
    heads: int = 1
    dtype: str = "bfloat16"
    rate: float | None = None
    gate: Literal["clock", "unit", "input"] = "clock"
    backend: str = "auto"
    modes: tuple[Mode, ...] = BOTH
    turns: int | None = None
    """The largest number of turns, for slow layers."""
    against: str | None = None
    """The contestant of the same case that it is compared with."""


@dataclass(frozen=True)
class Case:
    """Contestants that take turns on one shape."""

    name: str
    group: str
    steps: int
    batch: int
    hidden: int
    contestants: tuple[Contestant, ...]

    def __post_init__(self) -> None:
        names = [c.name for c in self.contestants]
        if len(set(names)) < len(names):
            raise ValueError(f"contestants of {self.name} share a name: {names}")


def select(cases: list[Case], patterns: list[str] | None) -> list[Case]:
    """The cases whose name matches any pattern; LookupError if a pattern matches none."""
    if not patterns:
        return cases
    for pattern in patterns:
        if not any(fnmatchcase(case.name, pattern) for case in cases):
            names = ", ".join(case.name for case in cases)
            raise LookupError(f"no case matches {pattern!r}; there are: {names}")
    return [case for case in cases if any(fnmatchcase(case.name, p) for p in patterns)]


def ours(
    cell: str,
    hidden: int,
    heads: int,
    rate: float,
    dtype: str,
    suffix: str = "",
    **options,
) -> Contestant:
    """One of this library's layers."""
    name = f"{OURS[cell]} {heads}x{hidden // heads} p={rate:g}{suffix}"
    return Contestant(name, "ours", cell, heads, dtype, rate, **options)


def torch_layer(cell: str, dtype: str, library: str) -> Contestant:
    """torch's layer: cuDNN's on a GPU, which never skips a time step."""
    return Contestant(f"{library} {TORCH[cell]}", "torch", cell, 1, dtype)


def layer_case(
    name: str,
    cell: str,
    shape: tuple[int, int, int],
    heads: int,
    *,
    dtypes: tuple[str, ...] = ("bfloat16",),
    rival: str = "bfloat16",
    library: str = "cuDNN",
) -> Case:
    """Ours at two rates against torch's layer, whose dtype is ``rival``."""
    theirs = torch_layer(cell, rival, library)
    mine = [
        ours(
            cell,
            shape[2],
            heads,
            rate,
            dtype,
            f" {SHORT[dtype]}" * (len(dtypes) > 1),
            against=theirs.name,
        )
        for dtype in dtypes
        for rate in RATES
    ]
    return Case(name, "layer", *shape, (theirs, *mine))


def length_case(
    shape: tuple[int, int, int], heads: int, dtype: str, stepwise_up_to: int, library: str
) -> Case:
    """The paper's figure at one length: a step at a time, one-pass, torch's layer, ours."""
    steps, hidden = shape[0], shape[2]
    theirs = torch_layer("gru", dtype, library)
    sparse = RATES[1]
    dense = [
        Contestant(
            name, "ours", "gru", 1, dtype, sparse, "unit", backend, EAGER, 5, against=theirs.name
        )
        for name, backend in (("stepwise (dense)", "reference"), ("one-pass (dense)", "onepass"))
        if backend == "onepass" or steps <= stepwise_up_to
    ]
    mine = [ours("gru", hidden, heads, rate, dtype, against=theirs.name) for rate in RATES]
    return Case(f"length-{steps}", "length", *shape, (theirs, *mine, *dense))


def long_case(
    shape: tuple[int, int, int], heads: int, dtype: str, rates: tuple[float, ...]
) -> Case:
    """One long sequence at ever lower update rates."""
    mine = tuple(ours("gru", shape[2], heads, rate, dtype) for rate in rates)
    return Case(f"long-{shape[0]}x{shape[1]}", "long", *shape, mine)


def spiking_case(shape: tuple[int, int, int], heads: int, dtypes: tuple[str, ...]) -> Case:
    """torch has no spiking layer: the rival is a plain loop."""
    rate, hidden = RATES[1], shape[2]
    loop = Contestant(
        "eager loop", "ours", "alif", heads, "float32", rate, "clock", "reference", EAGER, 3
    )
    mine = [
        ours("alif", hidden, heads, rate, dtype, f" {SHORT[dtype]}", against=loop.name)
        for dtype in dtypes
    ]
    return Case(f"snn-{shape[0]}x{shape[1]}", "spiking", *shape, (loop, *mine))


def input_case(shape: tuple[int, int, int], heads: int, dtype: str) -> Case:
    """The cost of one gate schedule per sequence over a shared one."""
    pairs = []
    for rate in RATES:
        clock = ours("gru", shape[2], heads, rate, dtype, " clock")
        sees = ours(
            "gru", shape[2], heads, rate, dtype, " input gate", gate="input", against=clock.name
        )
        pairs += [clock, sees]
    return Case(f"input-{shape[0]}x{shape[1]}", "input", *shape, tuple(pairs))


def dense_case(shape: tuple[int, int, int], dtype: str, library: str) -> Case:
    """No heads to compact: at every time step some unit updates."""
    theirs = torch_layer("gru", dtype, library)
    ways = (("auto", BOTH, None), ("onepass", EAGER, None))
    mine = [
        replace(
            ours("gru", shape[2], 1, rate, dtype, f" {backend}", gate="unit", backend=backend),
            modes=modes,
            turns=turns,
            against=theirs.name,
        )
        for rate in RATES
        for backend, modes, turns in ways
    ]
    return Case(f"dense-{shape[0]}x{shape[1]}", "dense", *shape, (theirs, *mine))


def peers_case(shape: tuple[int, int, int], heads: int, dtype: str, library: str) -> Case:
    """Installed peers; minGRU and HGRN have no recurrent matrix."""
    theirs = replace(torch_layer("gru", dtype, library), modes=EAGER)
    mine = ours("gru", shape[2], heads, RATES[1], dtype, modes=EAGER, against=theirs.name)
    others = [
        Contestant(name, "peer", key, heads, dtype, modes=EAGER, against=theirs.name)
        for name, key in (
            ("minGRU (torch scan)", "mingru"),
            ("FlashRNN LSTM (triton)", "flashrnn"),
            ("HGRN (fla)", "hgrn"),
        )
    ]
    return Case(f"peers-{shape[0]}x{shape[1]}", "peers", *shape, (theirs, mine, *others))


def full_suite() -> list[Case]:
    """The suite of the README. Few distinct layers, because each has kernels to compile."""
    both = ("bfloat16", "float32")
    lengths = (128, 256, 512, 1024, 2048, 4096)
    return [
        layer_case("gru-4096x256", "gru", (4096, 256, 256), 4),
        layer_case("gru-4096x16", "gru", (4096, 16, 256), 4),
        layer_case("gru-784x256", "gru", (784, 256, 256), 4),
        layer_case("gru16-784x256", "gru", (784, 256, 512), 32),
        layer_case("gru128-4096x256", "gru", (4096, 256, 128), 2, dtypes=both, rival="float32"),
        layer_case("lstm-4096x256", "lstm", (4096, 256, 256), 4),
        layer_case("rnn-4096x256", "rnn", (4096, 256, 256), 4),
        input_case((4096, 256, 256), 4, "bfloat16"),
        long_case((65536, 16, 256), 4, "bfloat16", (0.005, 0.01, 0.02, 0.05, 0.1)),
        spiking_case((784, 256, 256), 4, both),
        dense_case((784, 256, 256), "bfloat16", "cuDNN"),
        *(length_case((t, 64, 256), 4, "bfloat16", 512, "cuDNN") for t in lengths),
        peers_case((4096, 256, 256), 4, "bfloat16", "cuDNN"),
    ]


def quick_suite() -> list[Case]:
    """Two small shapes, to check whether a change made things faster."""
    return [
        layer_case("gru-784x256", "gru", (784, 256, 256), 4),
        layer_case("gru-1024x16", "gru", (1024, 16, 256), 4),
    ]


def smoke_suite() -> list[Case]:
    """Every kind of case on tiny shapes, on any device, to check that all run. Ignore the times."""
    shape, dtype, options = (24, 4, 32), "float32", {"rival": "float32", "library": "torch"}
    return [
        layer_case("gru-24x4", "gru", shape, 2, dtypes=(dtype,), **options),
        layer_case("lstm-24x4", "lstm", shape, 2, dtypes=("bfloat16", dtype), **options),
        long_case((256, 2, 32), 2, dtype, (0.05, 0.1, 0.2)),
        *(length_case((t, 4, 32), 2, dtype, 16, "torch") for t in (8, 16, 32)),
        input_case(shape, 2, dtype),
        spiking_case(shape, 2, (dtype,)),
        dense_case(shape, dtype, "torch"),
        peers_case(shape, 2, dtype, "torch"),
    ]


SUITES = {"full": full_suite, "quick": quick_suite, "smoke": smoke_suite}
