"""A model as a folder for browsers: the engine as WebAssembly, a JavaScript module, a page."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

import surnn

from .engine import engine_bytes
from .engine_builder import Activations, Weights

if TYPE_CHECKING:
    from surnn.tasks.sound import Sound

ASSETS = Path(__file__).parents[1] / "web"
"""The files that are the same for all models. ``make wasm`` builds two of them."""
NOT_EXPORTED = ("sources.sha256",)


def to_web(
    model: nn.Module,
    folder: str | Path,
    weights: Weights = "float32",
    activations: Activations = "int16",
    *,
    title: str = "surnn",
    classes: Sequence[str] = (),
    sound: "Sound | None" = None,
) -> Path:
    """Write a folder that runs ``model`` in a browser. No compiler is needed.

    ``python -m http.server`` in the folder serves a page that listens to the microphone or, for
    models without ``sound``, takes numbers or text. Other pages and programs import ``surnn.js``;
    its types are in ``surnn.d.ts``.

    Args:
        model: see :func:`~surnn.export.to_engine`.
        folder: created if needed; files of the same names are replaced.
        weights: see :func:`~surnn.export.to_engine`.
        activations: see :func:`~surnn.export.to_engine`.
        title: the page's heading.
        classes: names of the model's outputs.
        sound: how the model listens; a task of sounds has it as ``task.sound``.

    Returns:
        the folder.
    """
    content = engine_bytes(model, weights, activations)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(ASSETS.iterdir()):
        if source.is_file() and source.name not in NOT_EXPORTED:
            shutil.copyfile(source, folder / source.name)
    package = folder / "package.json"
    package.write_text(package.read_text().replace("@VERSION@", npm_version(surnn.__version__)))
    (folder / "model.surnn").write_bytes(content)
    about = {
        "surnn": surnn.__version__,
        "model": "model.surnn",
        "title": title,
        "classes": list(sound.words if sound else classes),
        "sound": sound and {k: v for k, v in asdict(sound).items() if k != "words"},
    }
    (folder / "model.json").write_text(json.dumps(about, indent=2) + "\n")
    return folder


def npm_version(version: str) -> str:
    """A version in npm's form: 0.2.0.dev1 is 0.2.0-dev1."""
    release, _, rest = version.partition(".dev")
    return f"{release}-dev{rest}" if rest else release
