"""Every figure of ``surnn plot``, drawn from small runs."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from helpers.drawing import BRIEF, FIXED, SMALL, draw, texts, train_run
from helpers.paths import ROOT
from helpers.tiny_sets import article
from surnn import analysis
from surnn.analysis.figures import PLOTS, BenchmarkPlot
from surnn.analysis.figures.gates import update_rate_table
from surnn.analysis.figures.states import time_colours
from surnn.analysis.figures.subjects import KINDS, NotApplicable, Subject, groups, name_all
from surnn.config import InputGateConfig, ModelKind, RhythmConfig, RunConfig
from surnn.plotting import COLOURS, line_styles, styled, theme_colour
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn.tasks import load_task
from surnn.tasks.copying import Copying
from surnn.tasks.state_tracking import StateTracking
from surnn.tasks.text_file import TextFile
from surnn.train.trainer import Trainer

pytest.importorskip("matplotlib")


SHOWS = {
    "learning-curves": (("sugru", "again", "gru"), "SuGRU (2 seeds)\nGRU\nchance"),
    "wall-clock": (
        ("sugru", "again", "gru", "chaos"),
        "copying\n\nseconds of training\nvalidation accuracy\nSuGRU (2 seeds)\nGRU\nmackey_glass",
    ),
    "metric-by-rate": (
        ("sugru", "again", "gru"),
        "copying\n\nupdate rate [% of time steps]\ntest accuracy\nSuGRU (2 seeds)\nGRU",
    ),
    "metric-by-work": (
        ("sugru", "again", "gru"),
        "copying\n\nthousand multiply-accumulates per time step\ntest accuracy\nSuGRU (2 seeds)",
    ),
    "metric-by-length": (("sugru", "again", "gru"), "SuGRU (2 seeds)\nGRU\nchance"),
    "copying-loss": (("sugru", "gru"), "memoryless, delay 10: 0.6931"),
    "gradients": (("sugru", "gru"), "GRU: p = 1.00, ρ ="),
    "proposition-1": (("sugru",), "updates of the unit in 30 steps"),
    "trajectories": (("sugru", "gru"), "path in the delay"),
    "gate-raster": (("sugru",), "layer 2: a gate for 4 units, 30.0% open"),
    "timescales": (("sugru",), "layer 2, median"),
    "effective-depth": (("sugru",), "every step (dense)"),
    "paths": (("sugru",), "layer 1: 512 in total"),  # nine updates of a head
    "update-rates": (("sugru",), "30.0% → 30.0%"),
    "updates-on-signal": (("sugru",), "layer 1, 30.0 % in total"),
    "forecast-horizon": (("chaos", "calm"), "SuGRU\nGRU\nconstant mean"),
    "attractors": (("chaos", "calm"), "5 steps ahead"),
    "trade-offs": (("sugru",), "SuGRU, 2 heads, p = 0.3\n"),
}


@pytest.mark.parametrize("name", SHOWS)
def test_figures_of_generated_tasks(name, runs):
    which, shown = SHOWS[name]
    figure = draw(name, *(runs[run] for run in which))
    assert shown in texts(figure)
    for axes in figure.axes:
        if axes.lines and axes.get_visible() and axes.axison:
            assert axes.get_xlabel() or axes.get_shared_x_axes().get_siblings(axes)[1:], name
            named = axes.get_ylabel() or axes is not figure.axes[0]
            assert named or name == "update-rates"  # whose ticks have names


@pytest.mark.parametrize(
    ("name", "task", "shown"),
    [
        ("image-updates", "smnist", "layer 2:\nopen gates\n\nr = "),
        ("depth-maps", "psmnist", "open gates"),
        ("depth-maps", "scifar", "state"),
        ("updates-on-signal", "ecg_beats", "beat"),
        ("updates-on-signal", "spoken_digits", "digit"),
    ],
)
def test_figures_of_real_data(name, task, shown, data, tmp_path):
    options = {"ecg_beats": {"window": 300}, "spoken_digits": {"seconds": 1.0}}.get(task, {})
    gate = InputGateConfig(rate=0.3) if name == "updates-on-signal" else FIXED
    run = train_run(tmp_path / "run", load_task(task)(**options), data=data, gate=gate)
    assert shown in texts(draw(name, run, data=data))


def test_updates_on_a_stream_of_tokens(runs, tmp_path):
    task = StateTracking("S3", length=40, events=3)
    run = train_run(tmp_path / "run", task, gate=InputGateConfig(rate=0.3))
    subject = Subject(run)
    figure = draw("updates-on-stream", run)
    assert "layer 2, updates at event " in texts(figure)
    batch = subject.batch(1)
    events = (batch.kinds[0] == 0).nonzero().flatten() + 1
    for axes, layer in zip(figure.axes[::2], subject.record(batch).layers, strict=True):
        *gates, marked = axes.collections
        steps = [[int(line[0, 0]) for line in gate.get_segments()] for gate in gates]
        assert steps == [(gate.nonzero().flatten() + 1).tolist() for gate in layer.by_gate[0].T]
        assert [int(line[0, 0]) for line in marked.get_segments()] == events.tolist()
    with pytest.raises(NotApplicable, match="copying has no tokens of several kinds"):
        draw("updates-on-stream", runs["sugru"])


def test_every_figure_is_tested():
    real = {"image-updates", "depth-maps", "updates-on-stream"}
    benchmarks = {name for name, plot in PLOTS.items() if isinstance(plot, BenchmarkPlot)}
    assert set(PLOTS) == {*SHOWS, *real, *benchmarks}


def test_every_figure_is_in_the_documents_and_small():
    text = (ROOT / "docs" / "analysis.md").read_text()
    shown = set(re.findall(r"\((.*?figures/.*?\.png)\)", text))
    assert all((ROOT / "docs" / path).exists() for path in shown)
    there = {path.name: path.stat().st_size for path in (ROOT / "docs" / "figures").glob("*.png")}
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    in_pages = set(re.findall(r"figures/([\w.-]+\.png)", pages))
    assert {name for name in there if not name.endswith("-dark.png")} <= in_pages
    assert max(there.values()) < 150_000
    assert max(p.stat().st_size for p in (ROOT / "results" / "figures").glob("*.png")) < 150_000
    assert all(f"surnn plot {name} " in text for name in PLOTS)
    functions = [name for name in analysis.__all__ if name.islower()]
    assert [name for name in functions if f"`{name}`" not in text] == []


def test_rates_are_of_the_first_update_and_of_the_best(runs):
    rows = update_rate_table([Subject(runs["learned"])])
    assert [name.split(", ")[-1] for name, _, _ in rows] == ["layer 1", "layer 2"]
    assert [before for _, before, _ in rows] == pytest.approx([0.3, 0.3])
    valid = [line for line in RunFolder.open(runs["learned"]).metrics() if line["kind"] == "valid"]
    best = max(reversed(valid), key=lambda line: line["accuracy"])  # the last of equals
    assert [after for _, _, after in rows] == pytest.approx(best["update_rate"])


def test_runs_that_are_shown_apart_have_names_of_their_own(runs):
    shown = draw("update-rates", runs["sugru"], runs["again"])
    rows = [label.get_text() for label in shown.axes[0].get_yticklabels()]
    assert rows == [f"SuGRU ({name}), layer {number}" for name in "ab" for number in (1, 2)]


def test_the_untrained_model_is_what_training_began_with(runs):
    subject = Subject(runs["again"])
    first = Trainer(subject.trained.config).model.state_dict()
    untrained = subject.untrained().state_dict()
    assert all(torch.equal(value, untrained[name]) for name, value in first.items())


def test_sequences_of_unequal_length(tmp_path, data):
    run = train_run(tmp_path / "run", load_task("listops")(train=40, valid=8, test=8))
    assert "chance" not in texts(draw("learning-curves", run))  # it takes the data
    shortest = Subject(run).batch(1).lengths[0]
    assert draw("gate-raster", run).axes[0].images[0].get_array().shape[1] == shortest
    for name in ("gradients", "trajectories"):
        with pytest.raises(NotApplicable, match="unequal length"):
            draw(name, run)


def test_paths_go_through_all_units_of_a_head(tmp_path):
    run = train_run(tmp_path / "run", Copying(delay=10), gate=replace(FIXED, granularity="unit"))
    layer = Subject(run).record(Subject(run).batch(1)).layers[0]
    assert layer.heads == 2
    figure = draw("paths", run)
    longest = [int(line.get_xdata()[-1]) for line in figure.axes[0].lines]
    updates = int(layer.gate[0].sum(0).max())
    assert updates < longest[0] < longest[-1] == 30  # of which the last is dense


def test_no_layer_and_no_run_is_left_out(tmp_path):
    deep = replace(SMALL, layers=len(COLOURS) + 2)
    run = train_run(tmp_path / "run", Copying(delay=10), model=deep)
    for name in ("timescales", "effective-depth", "paths", "updates-on-signal"):
        assert f"layer {deep.layers}" in texts(draw(name, run)), name
    styles = [tuple(style.values()) for style, _ in zip(line_styles(), range(24), strict=False)]
    assert len(set(styles)) == 24


def test_a_run_that_was_not_validated_yet(tmp_path, runs):
    config = RunConfig(Copying(delay=10), SMALL, FIXED, BRIEF)
    young = RunFolder.create(tmp_path / "young", config_to_dict(config))
    young.log(kind="train", step=1, loss=2.0)
    alone = draw("learning-curves", young.path)
    assert [axes.get_visible() for axes in alone.axes] == [True, False]
    beside = draw("learning-curves", runs["gru"], young.path)
    assert [len(axes.lines) for axes in beside.axes] == [2, 2]  # the second of GRU, and chance


def test_every_kind_of_model_has_a_name():
    assert set(KINDS) == set(get_args(ModelKind))


def test_a_raster_begins_with_the_busiest_gate(runs):
    figure = draw("gate-raster", runs["learned"])
    black = [1 - axes.images[0].get_array().mean(1) for axes in figure.axes]
    assert all((rates[:-1] >= rates[1:]).all() for rates in black)


def test_a_raster_of_soft_gates_shows_how_far_they_are_open(tmp_path):
    model = replace(SMALL, block="residual", ungated_layers=1)
    run = train_run(
        tmp_path / "run", Copying(delay=10), gate=RhythmConfig(mode="soft"), model=model
    )
    figure = draw("gate-raster", run)
    first, second = (1 - axes.images[0].get_array() for axes in figure.axes)
    assert (first == 1).all()
    assert ((second > 0.01) & (second < 0.99)).any()
    assert "layer 1: one gate, 100.0% open" in texts(figure)
    assert f"a gate for 4 units, open by {second.mean():.2f} on average" in texts(figure)


def test_gates_are_counted_in_whole_numbers(runs, tmp_path):
    run = train_run(tmp_path / "run", Copying(delay=10), gate=replace(FIXED, granularity="layer"))
    for figure in (draw("gate-raster", run), draw("gate-raster", runs["sugru"])):
        for axes in figure.axes:
            low, high = sorted(axes.get_ylim())
            ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
            assert ticks
            assert all(tick == round(tick) for tick in ticks)


def test_no_legend_covers_trajectories(runs):
    figure = draw("trajectories", runs["sugru"], runs["chaos"])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["first step", "signal", "last step"]
    figure.draw_without_rendering()
    under = legend.get_window_extent()
    assert not any(under.overlaps(axes.get_tightbbox()) for axes in figure.axes)


def labels(*paths, **options):
    subjects = [Subject(path) for path in paths]
    name_all(subjects, **options)
    return [subject.label for subject in subjects], groups(subjects)


def test_labels_tell_runs_apart(runs, tmp_path):
    three = runs["sugru"], runs["again"], runs["gru"]
    assert labels(*three)[0] == ["SuGRU (a)", "SuGRU (b)", "GRU"]
    found, together = labels(*three, seeds_together=True)
    assert found == ["SuGRU", "SuGRU", "GRU"]
    assert [len(same) for same in together.values()] == [2, 1]
    twice = Path(shutil.copytree(runs["sugru"], tmp_path / "b"))  # which is no second seed
    assert labels(runs["sugru"], twice, seeds_together=True)[0] == ["SuGRU (a)", "SuGRU (b)"]
    assert labels(runs["again"], twice)[0] == [
        f"SuGRU ({path.parent.name}/b)" for path in (runs["again"], twice)
    ]
    longer = train_run(tmp_path / "longer", Copying(delay=20))
    assert labels(runs["sugru"], longer)[0] == ["SuGRU, delay 10", "SuGRU, delay 20"]
    sparse = train_run(tmp_path / "sparse", Copying(delay=10), gate=replace(FIXED, rate=0.1))
    assert labels(runs["sugru"], sparse)[0] == ["SuGRU, rate 0.3", "SuGRU, rate 0.1"]
    rows = ROOT / "results" / "rows"  # which differ in a dozen options
    names = ("sugru", "sugru-input", "hybrid", "transformer")
    assert labels(*(rows / f"enwik8-{name}" / "seed0" for name in names))[0] == [
        "SuGRU, rhythm gates", "SuGRU, input gates", "SuGRU, rhythm gates, attention every 2",
        "Transformer",
    ]  # fmt: skip


def test_seeds_that_start_with_weights_of_their_own_are_one_row(runs, tmp_path):
    paths = []
    for seed in (0, 1):
        path = Path(shutil.copytree(runs["sugru"], tmp_path / f"run{seed}"))
        config = json.loads((path / "config.json").read_text())
        config["train"] |= {"seed": seed, "start": f"runs/clips-seed{seed}"}
        (path / "config.json").write_text(json.dumps(config))
        paths.append(path)
    found, together = labels(*paths, seeds_together=True)
    assert found == ["SuGRU", "SuGRU"]
    assert [len(same) for same in together.values()] == [2]


def test_an_evaluation_before_the_first_update_has_no_place_on_a_clock(runs, tmp_path):
    run = train_run(tmp_path / "run", Copying(delay=10), start=str(runs["sugru"]))
    valid = [v for v in RunFolder(run).metrics() if v["kind"] == "valid"]
    assert valid[0]["step"] == 0
    (line,) = draw("wall-clock", run).axes[0].lines
    assert len(line.get_xdata()) == len(valid) - 1 > 0
    assert min(line.get_xdata()) > valid[0]["seconds"]


def test_labels_of_texts_have_names_of_files_and_leave_room(tmp_path):
    runs = []
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text(article(60 if name == "one" else 70))
        other = {"valid_path": str(tmp_path / "one.txt")} if name == "two" else {}
        task = TextFile(16, path=str(tmp_path / f"{name}.txt"), **other)
        runs.append(train_run(tmp_path / f"run-{name}", task, seed=len(other)))
    assert labels(*runs)[0] == ["SuGRU, path one.txt", "SuGRU, path two.txt, valid path one.txt"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, "sugru", "a very long name " * 5)
        figure = draw("wall-clock", *runs)
        figure.draw_without_rendering()
    assert figure.axes[0].get_position().width > 0.3


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_colours_of_time_stand_out_from_the_page(theme):
    """Contrast as WCAG defines it; the dark end of viridis has 1.1 on a dark page."""

    def luminance(colours):
        linear = np.where(colours <= 0.03928, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
        return linear @ (0.2126, 0.7152, 0.0722)

    from matplotlib.colors import to_rgb  # noqa: PLC0415 (optional)

    with styled(theme):
        paper = luminance(np.array(to_rgb(theme_colour("paper"))))
        curve = luminance(time_colours()(np.linspace(0, 1, 50))[:, :3])
    high, low = np.maximum(curve, paper), np.minimum(curve, paper)
    assert ((high + 0.05) / (low + 0.05)).min() > 1.5
