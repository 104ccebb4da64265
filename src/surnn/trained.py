"""A trained model back from its run's folder.

Not named after its function: a module ``surnn.load`` would stand in the way of ``surnn.load(RUN)``.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .config import RunConfig
from .models import SequenceModel
from .runs import RunError, RunFolder, config_from_dict
from .tasks.base import Task


class Trained(NamedTuple):
    """What a run has made."""

    model: SequenceModel
    """With the weights of the checkpoint, in eval mode."""
    task: Task
    """What it was trained on, without what was easier at first, in the tokens that the folder
    keeps; ``task.prepare(device)`` loads its data."""
    config: RunConfig
    """Every choice of the run. Backend ``"triton"`` has become ``"auto"``: exact backends compute
    the same, and there may be no GPU here."""
    step: int
    """The update that the weights are of."""


def load(run: str | Path, checkpoint: str = "best", device: torch.device | str = "cpu") -> Trained:
    """The model of a run's folder, ready to be used.

    Args:
        run: the folder, as ``surnn train`` names it at its end.
        checkpoint: ``"best"`` in validation, ``"last"`` or ``"previous"``.
        device: where the model shall be.
    """
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"no CUDA device is there for device={str(device)!r}; use device='cpu'")
    folder = RunFolder.open(Path(run))
    config = portable_config(folder)
    weights, state = folder.load(checkpoint)
    task = in_its_tokens(config.task.as_tested(), folder)
    model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise RunError(
            f"the weights in {folder.path / checkpoint} are not of the model that "
            f"{folder.path / 'config.json'} describes; was that edited, or is the run of another "
            f"version of surnn? {error}"
        ) from error
    return Trained(model.to(device).eval(), task, config, state["step"])


def in_its_tokens(task: Any, folder: RunFolder) -> Any:
    """The task in the encoding that a run's folder keeps, lest the file that it was named be gone,
    or another text give another one."""
    learned = folder.path / "tokenizer.json"
    if getattr(task, "tokens", "bytes") == "bytes" or not learned.exists():
        return task
    return replace(task, tokenizer=str(learned.resolve()))


def portable_config(folder: RunFolder) -> RunConfig:
    """Every choice of a run, with a backend that is there on any device."""
    config = config_from_dict(folder.config())
    if config.model.backend != "triton":
        return config
    return replace(config, model=replace(config.model, backend="auto"))
