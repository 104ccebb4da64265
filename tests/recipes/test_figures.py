"""The figures of RESULTS.md."""

import subprocess

import pytest

from helpers.paths import ROOT
from surnn_recipes import RECIPES
from surnn_recipes.results import figures
from surnn_recipes.results.figures import FIGURES, draw_figures
from surnn_recipes.results.page import page


def test_figures_are_drawn_when_all_their_recipes_have_been_run(tmp_path, rows, capsys):
    assert {row for figure in FIGURES for row in figure.rows} <= set(RECIPES)
    assert "![" not in page(rows)
    draw_figures(rows, tmp_path)
    assert capsys.readouterr().out.count("not all of its rows have been run") == len(FIGURES)
    shown = page(ROOT / "results" / "rows")
    for figure in FIGURES:
        here = (ROOT / "results" / "figures" / figure.file).exists()
        assert here == (f"](results/figures/{figure.file})" in shown), figure.name


def test_a_figure_is_drawn_by_the_command_below_it(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    (speech,) = (figure for figure in FIGURES if figure.name == "spoken-digits")
    monkeypatch.setattr(figures, "FIGURES", (speech,))
    draw_figures(ROOT / "results" / "rows", tmp_path)
    assert (tmp_path / "spoken-digits.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_shell_expands_the_command_below_a_figure(tmp_path, figure):
    for row in figure.rows:
        for seed in (0, 1):
            (tmp_path / "results" / "rows" / row / f"seed{seed}").mkdir(parents=True)
    command = figure.markdown()[-1].partition("`")[2].partition("`")[0]
    pattern = command.partition(f"surnn plot {figure.plot} ")[2]
    words = ["bash", "-c", f"printf '%s\\n' {pattern}"]
    named = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    runs = figure.runs(tmp_path / "results" / "rows")
    assert named.split() == [str(run.relative_to(tmp_path)) for run in runs]
