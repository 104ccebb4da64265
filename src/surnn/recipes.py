"""One named, typed function for each row of the paper's tables; ``surnn reproduce NAME`` runs it.

A recipe returns the whole configuration at full size. Widths, rates and learning rates are those
that trained well here where the paper is silent; what each row is, and how it is judged, is its
task's business. ``in_budget`` makes the same run short.
"""

from collections.abc import Callable
from dataclasses import replace

from .config import GateConfig, ModelConfig, RunConfig, TrainConfig
from .tasks import load_task

Recipe = Callable[[], RunConfig]
RECIPES: dict[str, Recipe] = {}


def recipe(function: Recipe) -> Recipe:
    """Make ``function`` known by its name, with dashes."""
    RECIPES[function.__name__.replace("_", "-")] = function
    return function


def in_budget(config: RunConfig, minutes: float) -> RunConfig:
    """The same run, stopped after some minutes."""
    return replace(config, train=replace(config.train, minutes=minutes))


# ---------------------------------------------------------------------------- building blocks

HEADS_OF_16 = ModelConfig(layers=3, width=256, heads=16, dropout=0.1)
"""Head-wise gates, the form that trains fastest."""
STEPWISE = ModelConfig(layers=2, width=256, heads=1, block="stack")
"""The paper's stepwise models: no blocks, one dense head, a gate for each unit."""
CLOCK = GateConfig(rate=0.1)
PER_UNIT = GateConfig(rate=0.1, granularity="unit")


def _copying(delay: int, steps: int, kind: str = "sugru", **options) -> RunConfig:
    task = load_task("copying")(delay=delay, **options)
    model = ModelConfig(kind=kind, layers=2, width=256, heads=32, block="stack")  # type: ignore[arg-type]
    train = TrainConfig(
        steps=steps, batch=64, learning_rate=2e-3, warmup=200, hold=0.7, evaluate_every=200
    )
    return RunConfig(task, model, GateConfig(rate=0.05), train)


def _psmnist(model: ModelConfig, gate: GateConfig, epochs: int, permutation: str) -> RunConfig:
    task = load_task("psmnist")(permutation=permutation)
    return RunConfig(task, model, gate, _epochs(54_000, 256, epochs))


def _epochs(sequences: int, batch: int, epochs: int, **options) -> TrainConfig:
    steps = sequences // batch
    return TrainConfig(
        **{
            "steps": epochs * steps, "batch": batch, "learning_rate": 2e-3, "warmup": 200,
            "hold": 0.6, "evaluate_every": steps, "checkpoint_every": steps,
            "precision": "bfloat16", **options,
        }
    )  # fmt: skip


# ---------------------------------------------------------------------------- copying


@recipe
def copying_1000() -> RunConfig:
    """Copying Memory, delay 1000."""
    return _copying(1000, 3000)


@recipe
def copying_5000() -> RunConfig:
    """Copying Memory, delay 5000: the paper's learning curves."""
    return _copying(5000, 5000)


@recipe
def copying_5000_gru() -> RunConfig:
    """The plain GRU beside it."""
    return _copying(5000, 5000, "gru")


@recipe
def copying_5000_chrono() -> RunConfig:
    """The GRU that is told to hold on: the fair control."""
    config = _copying(5000, 5000, "gru")
    return replace(config, model=replace(config.model, chrono=True))


@recipe
def copying_variable() -> RunConfig:
    """Delays of 500 to 1000, which a clock cannot learn by heart."""
    return _copying(1000, 5000, variable=True)


# ---------------------------------------------------------------------------- selective copy


@recipe
def selective_copy() -> RunConfig:
    """Body 4096, clock gates."""
    model = replace(HEADS_OF_16, layers=2, dropout=0.0)
    return RunConfig(load_task("selective_copy")(), model, CLOCK, TrainConfig(steps=10_000))


@recipe
def selective_copy_input() -> RunConfig:
    """Body 1024, gates that see the input: sampled, then hardened."""
    gate = GateConfig(kind="input", rate=0.3, target_rate=0.05)
    train = TrainConfig(steps=10_000, rate_penalty=1.0, anneal=(0.5, 0.75))
    model = replace(HEADS_OF_16, layers=2, dropout=0.0)
    return RunConfig(load_task("selective_copy")(body=1024), model, gate, train)


# ---------------------------------------------------------------------------- images


@recipe
def smnist() -> RunConfig:
    """Sequential MNIST, one-pass stack."""
    return RunConfig(load_task("smnist")(), HEADS_OF_16, CLOCK, _epochs(54_000, 256, 40))


@recipe
def psmnist() -> RunConfig:
    """Permuted sequential MNIST, one-pass stack (bit-reversal, as in the paper's Table 4)."""
    return _psmnist(replace(HEADS_OF_16, dropout=0.2), CLOCK, 40, "bitreversal")


@recipe
def psmnist_stepwise() -> RunConfig:
    """The stepwise table: two dense layers of 256, a gate for each unit."""
    return _psmnist(STEPWISE, PER_UNIT, 40, "nru")


@recipe
def psmnist_gru() -> RunConfig:
    """The GRU of the stepwise table."""
    return _psmnist(replace(STEPWISE, kind="gru"), CLOCK, 40, "nru")


@recipe
def psmnist_sigmoid() -> RunConfig:
    """The gate ablation with a continuous gate."""
    return _psmnist(STEPWISE, replace(PER_UNIT, mode="soft"), 40, "nru")


@recipe
def psmnist_frozen() -> RunConfig:
    """The gate ablation with a rhythm that is never trained."""
    return _psmnist(STEPWISE, replace(PER_UNIT, kind="fixed_rhythm"), 40, "nru")


@recipe
def spiking_psmnist() -> RunConfig:
    """Adaptive spiking neurons with learned rhythms."""
    model = ModelConfig(kind="susnn", layers=2, width=256, heads=1, block="stack", pool="mean")
    train = _epochs(54_000, 256, 150, learning_rate=5e-3, precision="float32")
    return RunConfig(load_task("spiking_psmnist")(), model, PER_UNIT, train)


@recipe
def scifar() -> RunConfig:
    """Sequential CIFAR-10 with crops and flips, six layers."""
    model = replace(HEADS_OF_16, layers=6, dropout=0.2, pool="mean")
    train = _epochs(45_000, 128, 200, weight_decay=0.05)
    return RunConfig(load_task("scifar")(augment="crop_flip"), model, CLOCK, train)


# ---------------------------------------------------------------------------- long range arena


def _lra(name: str, epochs: int, sequences: int, batch: int, **options) -> RunConfig:
    model = replace(HEADS_OF_16, layers=6, pool="mean")
    train = _epochs(sequences, batch, epochs, learning_rate=1e-3, weight_decay=0.01)
    return RunConfig(load_task(name)(**options), model, CLOCK, train)


@recipe
def lra_listops() -> RunConfig:
    """Nested operations on lists of digits."""
    return _lra("listops", 40, 96_000, 128)


@recipe
def lra_text() -> RunConfig:
    """Film reviews, byte by byte."""
    return _lra("lra_text", 32, 22_500, 64)


@recipe
def lra_image() -> RunConfig:
    """Grey CIFAR-10, pixel by pixel."""
    return _lra("lra_image", 200, 45_000, 128)


@recipe
def lra_pathfinder() -> RunConfig:
    """Are the two dots on one line?"""
    return _lra("pathfinder", 200, 160_000, 256)


# ---------------------------------------------------------------------------- series


@recipe
def mackey_glass() -> RunConfig:
    """A chaotic series, 15 steps ahead and more."""
    model = ModelConfig(layers=4, width=48, heads=3, block="stack")
    train = TrainConfig(steps=500, batch=32, evaluate_every=50)
    return RunConfig(load_task("mackey_glass")(), model, replace(CLOCK, always_on=0.25), train)
