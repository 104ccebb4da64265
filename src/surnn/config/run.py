"""A run: its task, model, gates and training."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from surnn.errors import ConfigError

from .gate import GateConfig, RhythmConfig
from .model import MODELS_WITH, OURS, ModelConfig, ModelKind
from .train import TrainConfig


@dataclass(frozen=True)
class RunConfig:
    """A run: its task, model, gates and training."""

    task: Any
    """The task, with its own options."""
    model: ModelConfig = field(default_factory=ModelConfig)
    gate: GateConfig = field(default_factory=RhythmConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.model.kind not in OURS:
            self._check_without_gates()
        self._check_model()
        self._check_gate()

    def _check_model(self) -> None:
        model, task = self.model, self.task
        if model.pool == "mean" and task.output.per == "step":
            raise ConfigError(
                f"model.pool needs one prediction per sequence, and {task.name} has one at each "
                "time step: leave it out"
            )
        if model.bidirectional and task.looks_ahead:
            raise ConfigError(
                f"{task.name} predicts later inputs, which model.bidirectional would read: leave "
                "it out"
            )
        if model.half_state and self.train.precision != "bfloat16":
            raise ConfigError("model.half_state needs train.precision bfloat16: set both or none")
        if self.gate.kind == "open" and (model.ungated_layers or model.max_rate is not None):
            raise ConfigError(
                "gate.kind open updates all layers at all time steps: leave out "
                "model.ungated_layers and model.max_rate"
            )

    def _check_gate(self) -> None:
        gate, train = self.gate, self.train
        if train.rate_penalty and not gate.has_target:
            raise ConfigError("train.rate_penalty pulls towards gate.target_rate: set both")
        if gate.has_target and not train.rate_penalty:
            raise ConfigError("gate.target_rate has no effect without train.rate_penalty: set both")
        if train.rate_ramp is not None and not train.rate_penalty:
            raise ConfigError("train.rate_ramp moves the target of train.rate_penalty: set both")
        if train.rate_penalty and train.accumulate > 1:
            raise ConfigError(
                "train.rate_penalty needs the update rate of the whole batch, and "
                "train.accumulate divides the batch: leave it out, or use several processes"
            )
        if train.margin_penalty and not gate.has_margin:
            raise ConfigError("train.margin_penalty pushes out of gate.margin: set both")
        if gate.has_margin and not train.margin_penalty:
            raise ConfigError("gate.margin has no effect without train.margin_penalty: set both")
        if train.calibrate and not gate.sees_input:
            raise ConfigError(
                f"train.calibrate is for gates that see the input, and {gate.kind!r} does not: its "
                "rate is exact already; leave it out"
            )
        if train.calibrate and train.start is not None:
            raise ConfigError(
                "train.calibrate sets biases of new gates, and those of train.start are trained: "
                "leave one out"
            )
        if train.anneal is not None and not gate.anneals:
            raise ConfigError(
                "train.anneal hardens sampled or relaxed gates: set gate.mode to one of these too"
            )
        self._check_target_rates()
        if train.gate_learning_rate is not None and not gate.learned:
            raise ConfigError("the gate is not learned: leave out train.gate_learning_rate")

    def _check_target_rates(self) -> None:
        """One target for each gated layer, if there are several."""
        targets = getattr(self.gate, "target_rate", None)
        gated = self.model.layer_count - self.model.ungated_layers
        if isinstance(targets, tuple) and len(targets) != gated:
            raise ConfigError(
                f"gate.target_rate has {len(targets)} rates, and there are {gated} gated layers: "
                "give one rate, or one for each"
            )

    def _check_without_gates(self) -> None:
        defaults = UNGATED_TRAINING.items()
        unused = [
            f"train.{name}" for name, default in defaults if getattr(self.train, name) != default
        ]
        if self.gate != RhythmConfig():
            unused += [f"gate.{name}" for name in self.gate.changed() or ("kind",)]
        check_gated(self.model.kind, unused)

    def with_model(self, kind: ModelKind, **model: Any) -> "RunConfig":
        """The same run with another kind of model, without the options that this kind lacks."""
        unused = {name for name, users in MODELS_WITH.items() if kind not in users}
        if kind != "transformer" and self.model.attention_every is None:
            unused.add("window")
        defaults = {f.name: f.default for f in fields(ModelConfig) if f.name in unused}
        changed = replace(self.model, **{**defaults, **model, "kind": kind})
        if kind in OURS:
            return replace(self, model=changed)
        train = replace(self.train, **UNGATED_TRAINING)
        return RunConfig(self.task, changed, RhythmConfig(), train)


UNGATED_TRAINING: dict[str, Any] = {
    "rate_penalty": 0.0, "margin_penalty": 0.0, "anneal": None, "calibrate": False,
    "gate_learning_rate": None, "rate_ramp": None,
}  # fmt: skip
"""Options of training that need gates, with their defaults."""


def check_gated(kind: ModelKind, options: list[str]) -> None:
    """Refuse options of gates for a kind of model that has none."""
    if options and kind not in OURS:
        raise ConfigError(
            f"{kind} has no gates and no use for {', '.join(options)}; kinds with gates are "
            f"{', '.join(OURS)}"
        )
