"""Train from Python on any torch Dataset: the same trainer, run folder and report."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from surnn.config import GateConfig, ModelConfig, RunConfig, TrainConfig
from surnn.errors import ConfigError, option_errors
from surnn.models.model import SequenceModel
from surnn.runs.loading import Trained, load
from surnn.tasks.python_data import PythonData, series_of

from .automatic import choose, with_choices
from .session import resume_run, start_run


def fit(
    model: RunConfig | ModelConfig | SequenceModel | None,
    train_set: Any,
    valid_set: Any = None,
    test_set: Any = None,
    *,
    gate: GateConfig | None = None,
    train: TrainConfig | None = None,
    goal: str = "auto",
    out: str | Path | None = None,
    resume: str | Path | None = None,
) -> Trained:
    """Train a model on data sets whose items are (x, y), in a run folder.

    x is [T] or [T, features]; lengths may differ. y is a class, a number, several numbers, or a
    target at each time step. Without y, the model forecasts the next x. All items are read into
    memory once. Options that are not given are chosen from the data.

    Args:
        model: the options of the model or of the whole run; a ``SequenceModel``, which is trained
            in place; None chooses from the data.
        train_set: a torch Dataset, or a list, of items.
        valid_set: another for validation; by default 15 % of ``train_set``.
        test_set: another for ``surnn.train.evaluate``, optional.
        gate: the options of the gates.
        train: the options of training.
        goal: as in ``surnn train sequences``.
        out: the new run folder; by default ``runs/fit/TIME``.
        resume: an earlier run of ``fit`` to continue, with the same data.

    Returns:
        the best model with its task and options, as :func:`surnn.load` returns it.

    Example:
        >>> import tempfile, torch, surnn
        >>> from surnn.config import ModelConfig, TrainConfig
        >>> items = [(torch.randn(20) + n % 2, n % 2) for n in range(40)]
        >>> folder = tempfile.TemporaryDirectory()
        >>> brief = TrainConfig(steps=2, batch=8, warmup=1, device="cpu")
        >>> small = ModelConfig(width=16, pool="mean")
        >>> trained = surnn.fit(small, items, train=brief, out=folder.name)  # doctest: +ELLIPSIS
        python_data: ...
        >>> trained.model(torch.randn(1, 20, 1)).shape
        torch.Size([1, 2])
        >>> folder.cleanup()
    """
    sets = [None if each is None else series_of(each) for each in (train_set, valid_set, test_set)]
    first = sets[0]
    assert first is not None
    if resume is not None:
        resume_run(
            Path(resume),
            change_train=lambda old: train or old,
            attach_data=lambda task: task.attach(*sets),
        )
        return load(resume)
    with option_errors():
        shares = (1.0, 0.0, 0.0) if valid_set is not None else (0.85, 0.15, 0.0)
        scale = not isinstance(model, SequenceModel) or getattr(model.inputs, "scaled", False)
        options: Any = {"goal": goal, "shares": shares, "scale": scale}
        task = PythonData(**options).attach(first, sets[1], sets[2]).complete()
        config = run_config(model, task, gate, train)
    weights = model.state_dict() if isinstance(model, SequenceModel) else None
    session = start_run("fit", config, None if out is None else Path(out), weights=weights)
    trained = load(session.path)
    if isinstance(model, SequenceModel):
        model.load_state_dict(trained.model.state_dict())
    return trained


def run_config(
    model: RunConfig | ModelConfig | SequenceModel | None,
    task: PythonData,
    gate: GateConfig | None = None,
    train: TrainConfig | None = None,
) -> RunConfig:
    """A complete configuration: the given options, the others chosen from the data of ``task``."""
    if isinstance(model, RunConfig):
        changes = {"gate": gate, "train": train}
        return replace(model, task=task, **{k: v for k, v in changes.items() if v is not None})
    task.prepare(torch.device("cpu"))
    chosen = with_choices(RunConfig(task), choose(task.facts()))
    if isinstance(model, SequenceModel):
        _check_fits(model, task)
        model, gate = model.model_config, gate or model.gate_config
    return RunConfig(task, model or chosen.model, gate or chosen.gate, train or chosen.train)


def _check_fits(model: SequenceModel, task: PythonData) -> None:
    here, there = (model.inputs, model.output), (task.input, task.output)
    if here != there:
        raise ConfigError(
            f"the model has {here[0]} and {here[1]}, and the data need {there[0]} and {there[1]}"
        )
    if model.steps != task.steps and getattr(model.gate_config, "horizon", 0) is None:
        raise ConfigError(
            f"the model was built for {model.steps} time steps, and the data have {task.steps}: "
            f"build it with steps={task.steps}, or with gates that have a horizon"
        )
