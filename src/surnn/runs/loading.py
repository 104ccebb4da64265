"""Load a trained model from its run folder."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from surnn.config import RunConfig
from surnn.errors import ConfigError, RunError, option_errors
from surnn.models.model import SequenceModel
from surnn.tasks.base import Task
from surnn.tasks.outside import load_outside

from .config_json import config_from_dict
from .folder import RunFolder


class Trained(NamedTuple):
    """A trained model, its task and its configuration; :func:`load` returns it.

    Example:
        >>> import surnn
        >>> surnn.Trained._fields
        ('model', 'task', 'config', 'step')
        >>> model, task, config, step = surnn.load("runs/mine")  # doctest: +SKIP
    """

    model: SequenceModel
    """With the weights of the checkpoint, in eval mode."""
    task: Task
    """The task of training at its full difficulty, with the tokens that the folder holds;
    ``task.prepare(device)`` loads its data."""
    config: RunConfig
    """Every option of the run. Backend ``"triton"`` becomes ``"auto"``: exact backends compute the
    same, and this machine may have no GPU."""
    step: int
    """The optimizer step of the weights."""


def load(
    run: str | Path,
    checkpoint: str = "best",
    device: torch.device | str = "cpu",
    *,
    task_from: str | None = None,
) -> Trained:
    """The model of a run folder, ready for use.

    Args:
        run: the folder, as ``surnn train`` prints it at its end.
        checkpoint: ``"best"`` in validation, ``"last"`` or ``"previous"``.
        device: the device of the model.
        task_from: the run's task as FILE.py:CLASS or module:CLASS, for a task of your own that has
            moved, has changed, or comes with a run from somebody else. It is imported.

    Example:
        >>> import surnn, tempfile, torch
        >>> from surnn.config import ModelConfig, TrainConfig
        >>> items = [(torch.randn(20) + n % 2, n % 2) for n in range(40)]
        >>> brief = TrainConfig(steps=2, batch=8, warmup=1, device="cpu")
        >>> small = ModelConfig(width=16, pool="mean")
        >>> folder = tempfile.TemporaryDirectory()
        >>> _ = surnn.fit(small, items, train=brief, out=folder.name)  # doctest: +ELLIPSIS
        python_data: ...
        >>> trained = surnn.load(folder.name)
        >>> trained.model(torch.randn(1, 20, 1)).shape, trained.config.train.steps
        (torch.Size([1, 2]), 2)
        >>> folder.cleanup()
    """
    if task_from is not None:
        load_outside(task_from)
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"there is no CUDA device for device={str(device)!r}; use device='cpu'")
    folder = RunFolder.open(Path(run))
    config = portable_config(folder)
    weights, state = folder.load(checkpoint)
    task = with_run_tokenizer(config.task.as_tested(), folder)
    check_sizes(config, weights, folder.path)
    model = build_model(config, task)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise RunError(
            f"the weights in {folder.path / checkpoint} do not fit the model that "
            f"{folder.path / 'config.json'} describes; was it edited, or is the run of another "
            f"version of surnn? {error}"
        ) from error
    return Trained(model.to(device).eval(), task, config, state["step"])


def check_sizes(config: RunConfig, weights: dict[str, torch.Tensor], path: Path) -> None:
    """Raise if the weights cannot be those of so large a model, before it is built."""
    model = config.model
    widths = model.widths or (model.width,) * model.layers
    sizes = [size for tensor in weights.values() for size in tensor.shape]
    if len(widths) > len(weights) or max(widths) > max(sizes, default=0):
        raise RunError(
            f"the weights in {path} are not those of {len(widths)} layers of {max(widths)} units, "
            f"which {path / 'config.json'} describes; was it edited?"
        )


def build_model(config: RunConfig, task: Task | None = None) -> SequenceModel:
    """The configured model with random weights, for ``task`` or else the configured task."""
    target: Task = config.task if task is None else task
    with option_errors():
        return SequenceModel(config.model, config.gate, target.input, target.output, target.steps)


def with_run_tokenizer(task: Any, folder: RunFolder) -> Any:
    """The task with the tokenizer of a run's folder.

    The file that the task names may have been deleted, and another text gives other tokens.
    """
    tokenizer = folder.path / "tokenizer.json"
    if getattr(task, "tokens", "bytes") == "bytes" or not tokenizer.exists():
        return task
    return replace(task, tokenizer=str(tokenizer.resolve()))


def portable_config(folder: RunFolder) -> RunConfig:
    """Every option of a run, with a backend that runs on any device."""
    config = config_from_dict(folder.config())
    if config.model.backend != "triton":
        return config
    return replace(config, model=replace(config.model, backend="auto"))
