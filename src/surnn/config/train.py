"""The training of a run."""

from dataclasses import dataclass
from typing import Literal

from surnn.errors import ConfigError

from .checks import check_at_least, check_share


@dataclass(frozen=True)
class TrainConfig:
    """Optimizer, learning-rate schedule, evaluations, checkpoints and device."""

    steps: int = 1000
    """Optimizer steps in all."""
    batch: int = 64
    """Sequences per optimizer step, over all processes and accumulated parts."""
    learning_rate: float = 2e-3
    """Highest learning rate of AdamW (--train.lr for short)."""
    gate_learning_rate: float | None = None
    """Learning rate of the gates. None: train.learning_rate."""
    weight_decay: float = 0.0
    """Weight decay of weight matrices; gates, biases and norms have none."""
    warmup: int = 100
    """Optimizer steps over which the learning rate rises."""
    hold: float = 0.5
    """Share of optimizer steps at the full learning rate before it decays."""
    lr_decay: Literal["cosine", "linear"] = "cosine"
    """How the learning rate decays after that."""
    final: float = 0.05
    """Final learning rate of the decay, as a share of the highest one."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of AdamW's running means of the gradient and of its square."""
    clip: float = 1.0
    """Largest norm of the gradient; larger gradients are scaled down."""
    weight_ema: float = 0.0
    """Decay of an exponential moving average (EMA) of the weights. The EMA weights are evaluated
    and saved as best. 0 disables it."""
    label_smoothing: float = 0.0
    """Share of a label that is spread over all classes, in tasks with one label per sequence."""
    mixup: float = 0.0
    """Mix pairs of sequences and labels with weights from Beta(mixup, mixup), in tasks with values
    as input and one label per sequence. 0 disables it."""
    rate_penalty: float = 0.0
    """Weight of |update rate - gate.target_rate|, summed over layers, in the loss."""
    rate_ramp: tuple[float, float] | None = None
    """Start and end, as shares of the optimizer steps, between which the target of
    train.rate_penalty moves from gate.rate to gate.target_rate: the model first learns, then saves
    updates. None: gate.target_rate from the first step."""
    margin_penalty: float = 0.0
    """Weight of the mean of max(0, 1 - |pre-activation| / gate.margin), summed over layers, in the
    loss."""
    anneal: tuple[float, float] | None = None
    """Start and end, as shares of the optimizer steps, of annealing sampled or relaxed gates to
    hard ones. Until the start they are fully random or smooth. None: no annealing."""
    calibrate: bool = False
    """Set the biases of gates that see the input on the first batch, so that they open at
    gate.rate on it."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: autocast on a GPU. Gates stay in float32, and so do states (but see
    model.half_state)."""
    tf32: bool = True
    """Use TF32 for float32 products on a GPU, in evaluations too: several times faster, less
    precise."""
    accumulate: int = 1
    """Number of parts of a batch that are computed one after another; not with rate_penalty."""
    evaluate_every: int = 200
    """Optimizer steps between evaluations on the validation set."""
    evaluation_batches: int | None = None
    """Number of validation batches per evaluation. None: all of them."""
    evaluation_batch: int | None = None
    """Sequences per batch in evaluations and tests, which need no memory for gradients. None:
    train.batch."""
    patience: int | None = None
    """Evaluations without improvement before training stops. None: no early stop."""
    checkpoint_every: int = 500
    """Optimizer steps between checkpoints."""
    log_every: int = 20
    """Optimizer steps between lines of the log."""
    minutes: float | None = None
    """Time limit for the run, including the last evaluation. If it is too short for train.steps,
    the learning-rate schedule is rescaled to it. None: no limit."""
    seed: int = 0
    """Seed of weights, batches and sampled gates."""
    start: str | None = None
    """Folder of another run, whose best weights are the initial weights of this one; a task with
    other answers gets a new readout. None: random weights."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device to train on; auto is cuda if there is a GPU, else cpu. mps is an Apple GPU."""
    compile: bool = False
    """Compile the blocks with torch.compile; blocks with the same shapes are compiled once."""
    cuda_graph: bool = False
    """Capture an optimizer step as a CUDA graph and replay it; for batches of one shape or a few,
    on one GPU."""
    shard: bool = False
    """Divide weights and optimizer state among the processes, block by block (FSDP2)."""
    timeout: float = 1800.0
    """Several processes: seconds after which one that waits for another ends with an error. The
    first process prepares data while the others wait."""
    tensorboard: bool = False
    """Write the log for TensorBoard too, into the run's folder."""
    loggers: tuple[str, ...] = ()
    """Classes that receive the lines of the log too, each as module:Class, for wandb, MLflow and
    others; see surnn.train.loggers."""

    def __post_init__(self) -> None:
        counts = ("steps", "batch", "accumulate", "evaluate_every", "checkpoint_every", "log_every")
        optional_counts = ("evaluation_batches", "evaluation_batch", "patience")
        check_at_least(self, "train", 1, *counts, *optional_counts)
        check_at_least(self, "train", 0, "warmup", "weight_decay", "rate_penalty", "minutes")
        check_at_least(self, "train", 0, "margin_penalty")
        check_at_least(self, "train", 0, "mixup")
        check_share(self, "train", "hold", "final", "label_smoothing", "weight_ema")
        for name in ("learning_rate", "gate_learning_rate", "clip", "timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"train.{name} must be more than 0, got {value}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"train.betas must be at least 0 and less than 1, got {self.betas}")
        for name in ("anneal", "rate_ramp"):
            shares = getattr(self, name)
            if shares is not None and not 0 <= shares[0] <= shares[1] <= 1:
                raise ConfigError(
                    f"train.{name} is two shares, the first at most the second, got {shares}"
                )
