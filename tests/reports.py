"""What tests of reports share: tiny runs, and what a page holds."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from surnn.config import GateConfig, ModelConfig, RunConfig, TrainConfig
from surnn.models import SequenceModel
from surnn.report import gather, page
from surnn.runs import RunFolder, config_to_dict
from surnn.tasks.base import Task
from training import trainer

TINY = ModelConfig(width=8, heads=2, layers=2)


def train_run(path: Path, config: RunConfig) -> Path:
    """Really trained, for a dozen updates."""
    run = trainer(path, config)
    run.fit()
    run.close()
    return path


def fresh_run(
    path: Path,
    task: Task,
    model: ModelConfig = TINY,
    gate: GateConfig = GateConfig(rate=0.3),  # noqa: B008 (frozen)
    *,
    checkpoint: bool = True,
    **train: Any,
) -> RunFolder:
    """The folder of a run that was not trained, with weights as if it had been."""
    config = RunConfig(task, model, gate, TrainConfig(**{"steps": 10, "device": "cpu", **train}))
    folder = RunFolder.create(path, config_to_dict(config))
    if checkpoint:
        weights = SequenceModel(model, gate, task.input, task.output, task.steps).state_dict()
        folder.save_best(weights, {"step": 7})
    return folder


class Parsed(HTMLParser):
    """A page's elements, and what its script elements and its title hold."""

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
        """The numbers that the page shows; strictly JSON."""

        def refuse(constant: str) -> None:
            raise ValueError(f"{constant} is no JSON")

        (text,) = [text for about, text in self.scripts if about.get("id") == "data"]
        return json.loads(text, parse_constant=refuse)


def points(run: dict[str, Any], chart: str, split: str, part: str = "", group: str = "") -> Any:
    """Updates and values of one curve of a page."""
    wanted = {"chart": chart, "split": split, "part": part, "group": group}
    (found,) = [curve for curve in run["curves"] if wanted.items() <= curve.items()]
    return found["points"]


def shown(*paths: Path, **options) -> dict:
    """What the page about these runs holds."""
    found = [gather(path, **options) for path in paths]
    return Parsed(page(found)).data
