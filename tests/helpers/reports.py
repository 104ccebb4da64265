"""Tiny runs, and the data of a report's page."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from helpers.training import trainer
from surnn.config import GateConfig, ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.models.model import SequenceModel
from surnn.report import gather, page
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn.tasks.base import Task

TINY = ModelConfig(width=8, heads=2, layers=2)


def train_run(path: Path, config: RunConfig) -> Path:
    """A run trained for a dozen steps."""
    run = trainer(path, config)
    run.fit()
    run.close()
    return path


def fresh_run(
    path: Path,
    task: Task,
    model: ModelConfig = TINY,
    gate: GateConfig = RhythmConfig(rate=0.3),  # noqa: B008 (frozen)
    *,
    checkpoint: bool = True,
    **train: Any,
) -> RunFolder:
    """The folder of a run that was never trained, with fresh weights as its checkpoint."""
    config = RunConfig(task, model, gate, TrainConfig(**{"steps": 10, "device": "cpu", **train}))
    folder = RunFolder.create(path, config_to_dict(config))
    if checkpoint:
        weights = SequenceModel(model, gate, task.input, task.output, task.steps).state_dict()
        folder.save_best(weights, {"step": 7})
    return folder


class Parsed(HTMLParser):
    """A page's elements, title and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self.title = ""
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data
        elif self._inside == "title":
            self.title += data

    @property
    def data(self) -> dict[str, Any]:
        """The page's data, read as strict JSON."""

        def refuse(constant: str) -> None:
            raise ValueError(f"{constant} is no JSON")

        (text,) = [text for about, text in self.scripts if about.get("id") == "data"]
        return json.loads(text, parse_constant=refuse)


def points(run: dict[str, Any], chart: str, split: str, part: str = "", group: str = "") -> Any:
    """Steps and values of one curve of a page."""
    keys = {"chart": chart, "split": split, "part": part, "group": group}
    (match,) = [curve for curve in run["curves"] if keys.items() <= curve.items()]
    return match["points"]


def shown(*paths: Path, **options) -> dict:
    """The data of the page about these runs."""
    return Parsed(page([gather(path, **options) for path in paths])).data
