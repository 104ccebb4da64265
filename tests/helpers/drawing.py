"""Small runs to draw, and figures as tests read them."""

from dataclasses import replace

from surnn.analysis.figures import PLOTS, Subject, name_all
from surnn.config import ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn.train.trainer import Trainer

BRIEF = TrainConfig(
    steps=2, batch=4, warmup=1, log_every=1, evaluate_every=1, evaluation_batches=1, device="cpu"
)
SMALL = ModelConfig(layers=2, width=8, heads=2, block="stack")
FIXED = RhythmConfig(rate=0.3, frozen=True)


def train_run(path, task, kind="sugru", data=None, gate=FIXED, model=SMALL, **options):
    """Train a small model for two optimizer steps; returns the run's folder."""
    ours = RunConfig(task, model, gate, replace(BRIEF, **options))
    config = ours if kind == "sugru" else ours.with_model(kind)
    Trainer(config, RunFolder.create(path, config_to_dict(config)), data=data).fit()
    return path


def draw(name, *paths, data=None):
    """A figure; its time is estimated first, as the command does."""
    subjects = [Subject(path, data=data) for path in paths]
    name_all(subjects)
    plot = PLOTS[name]
    assert plot.seconds(subjects) > 0
    return plot.draw(subjects, 0)


def texts(figure):
    """All text in a figure."""
    lines = [figure.get_suptitle()]
    lines += [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        legend = axes.get_legend()
        lines += [axes.get_title(), axes.get_title("left"), axes.get_xlabel(), axes.get_ylabel()]
        lines += [text.get_text() for text in (legend.get_texts() if legend else [])]
        lines += [text.get_text() for text in axes.texts]
    return "\n".join(lines)
