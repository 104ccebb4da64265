"""Packages that bring recipes, gates and cells are found by their entry points."""

import json
import sys

import pytest
import torch

import surnn
from surnn.cli.main import main
from surnn.config import GATE_CONFIGS
from surnn.errors import ConfigError
from surnn.nn.cells import CELLS, load_cells
from surnn.nn.gates import GATES
from surnn.plugins import find_recipes, load_gates
from surnn_recipes import RECIPES

PLUGIN = "surnn_plugin_for_tests"


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """An installed package with one recipe: a module, and the metadata that names it."""
    (tmp_path / f"{PLUGIN}.py").write_text("RECIPES = {'their-recipe': 'a recipe'}\n")
    info = tmp_path / f"{PLUGIN}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[surnn.recipes]\ntheirs = {PLUGIN}:RECIPES\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop(PLUGIN, None)


def test_own_recipes_need_no_metadata(monkeypatch):
    """A source tree on PYTHONPATH has no metadata."""
    monkeypatch.setattr("surnn.plugins.metadata.entry_points", lambda **_: [])
    assert find_recipes() == RECIPES


def test_recipes_of_another_package_come_after_our_own(plugin):
    recipes = find_recipes()
    assert recipes["their-recipe"] == "a recipe"
    assert list(recipes) == [*RECIPES, "their-recipe"]


def test_the_library_works_without_its_recipes(plugin, monkeypatch):
    monkeypatch.setattr("surnn.plugins.find_spec", lambda name: None)
    assert list(find_recipes()) == ["their-recipe"]


# ---------------------------------------------------------------------------- gates and cells

SOURCE = """
from dataclasses import dataclass
from typing import ClassVar

import torch
import surnn
from surnn.config import GateConfig


class Weekend(surnn.Gate):
    def __init__(self, *, day: int = 5, **options):
        super().__init__(**options)
        self.day = day

    def setup(self, width, input_size):
        self.offset = torch.nn.Parameter(torch.zeros(width))

    def preactivation(self, t, x, memory):
        weekend = (t % 7 >= self.day).double().unsqueeze(-1)
        return weekend - 0.5 + self.offset, memory


@dataclass(frozen=True, kw_only=True)
class WeekendConfig(GateConfig):
    kind: str = "weekend"
    day: int = 5
    gate: ClassVar = Weekend


class Leaky(surnn.Cell):
    name = "leaky_for_tests"
    drives = 1
    components = ("h",)

    def update(self, drive, rec, state, unit):
        return 0.9 * state + 0.1 * torch.tanh(drive + rec)

    def linearize(self, drive, rec, state, unit):
        n = torch.tanh(drive + rec)
        slope = (0.1 * (1 - n * n)).unsqueeze(-3)
        return surnn.Linearization(slope, None, torch.full_like(state, 0.9).unsqueeze(-3), None)


LEAKY = Leaky()
"""


@pytest.fixture
def gate_plugin(tmp_path, monkeypatch):
    """An installed package with a gate and a cell; what it enters is removed again."""
    (tmp_path / f"{PLUGIN}.py").write_text(SOURCE)
    info = tmp_path / f"{PLUGIN}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 1.0\n")
    points = (
        f"[surnn.gates]\nweekend = {PLUGIN}:WeekendConfig\n[surnn.cells]\nleaky = {PLUGIN}:LEAKY\n"
    )
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    load_gates.cache_clear()
    load_cells.cache_clear()
    yield info
    sys.modules.pop(PLUGIN, None)
    GATE_CONFIGS.pop("weekend", None)
    GATES.pop("weekend", None)
    CELLS.pop("leaky_for_tests", None)
    load_gates.cache_clear()
    load_cells.cache_clear()


def test_a_gate_of_another_package_trains_from_the_command_line(gate_plugin, tmp_path, capsys):
    flags = [
        "--task.delay", "5", "--gate.kind", "weekend", "--gate.day", "3", "--model.width", "16",
        "--model.layers", "1", "--train.steps", "2", "--train.batch", "4", "--train.warmup", "1",
        "--train.evaluation-batches", "1", "--train.device", "cpu", "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    assert main(["train", "copying", *flags]) == 0
    gate = json.loads((tmp_path / "run/config.json").read_text())["gate"]
    assert (gate["kind"], gate["day"]) == ("weekend", 3)
    assert main(["eval", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["list", "gates", "weekend"]) == 0
    assert "weekend" in capsys.readouterr().out


def test_a_gate_that_is_none_is_explained(gate_plugin):
    (gate_plugin / "entry_points.txt").write_text(f"[surnn.gates]\nweekend = {PLUGIN}:Weekend\n")
    with pytest.raises(ConfigError, match=r"derived from surnn\.config\.GateConfig"):
        load_gates()


def test_a_cell_of_another_package_is_found_by_its_name(gate_plugin):
    layer = surnn.SelectiveLayer(2, 8, cell="leaky_for_tests")
    assert layer(torch.zeros(3, 1, 2))[0].shape == (3, 1, 8)
