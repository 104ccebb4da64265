"""Files of earlier versions load, and give the models that they described."""

import json
from dataclasses import asdict, fields, replace
from typing import Any, get_args

import pytest

from helpers.paths import ROOT
from surnn import Surrogate
from surnn.config import (
    GateKind,
    ModelConfig,
    RhythmConfig,
    RunConfig,
    TrainConfig,
    gate_config,
)
from surnn.config.gate import GATE_CONFIGS
from surnn.config.old_keys import RENAMED, check_renamed, current_flag, upgrade
from surnn.errors import ConfigError, RunError
from surnn.models.model import make_gate
from surnn.nn.gates import GATES, Gate
from surnn.runs.config_json import config_from_dict, config_to_dict
from surnn.runs.folder import RunFolder
from surnn.tasks.copying import Copying

FLAT_GATE: dict[str, Any] = {
    "kind": "rhythm", "rate": None, "target_rate": None, "granularity": "auto", "mode": None,
    "surrogate": "sigmoid", "slope": 4.0, "always_on": 0.0, "frozen": False, "horizon": None,
    "frequencies": None, "min_period": None, "max_period": None, "train_frequencies": False,
    "bins": None, "per_unit": False, "knots": None, "hidden": None, "modes": None, "source": None,
    "n": None, "staggered": False, "level": None, "seed": None,
}  # fmt: skip
"""The gate in a config.json of an earlier version, with its defaults."""
RECORDS = sorted((ROOT / "results").glob("**/config.json"))


def old_gate(options: dict[str, Any], steps: int) -> Gate:
    """The gate that earlier versions made of the options that differ from their defaults."""
    chosen = {n: v for n, v in options.items() if n != "kind" and v != FLAT_GATE[n]}
    shape = chosen.pop("surrogate", "sigmoid"), chosen.pop("slope", 4.0)
    if shape != ("sigmoid", 4.0):
        chosen["surrogate"] = Surrogate(*shape)
    kind = options["kind"]
    if kind in ("rhythm", "warped", "spline", "spectral", "table", "fixed_rhythm", "ssm", "full"):
        chosen.setdefault("horizon", steps)
    return GATES[kind](**chosen)


def described(gate: Gate) -> tuple[type, dict[str, Any]]:
    return type(gate), {n: v for n, v in vars(gate).items() if not n.startswith("_")}


def old_file(**gate: Any) -> dict[str, Any]:
    """A config.json of an earlier version."""
    values = config_to_dict(RunConfig(Copying(delay=9)))
    values["gate"] = {**FLAT_GATE, **gate}
    for old, new in RENAMED.items():
        (part, name), (_, new_name) = old.split("."), new.split(".")
        values[part][name] = values[part].pop(new_name)
    return json.loads(json.dumps(values))


@pytest.mark.parametrize("file", RECORDS, ids=lambda f: f"{f.parent.parent.name}-{f.parent.name}")
def test_recorded_runs_load_with_the_gates_that_they_had(file):
    values = json.loads(file.read_text())
    config = config_from_dict(values)
    written = json.loads(json.dumps(config_to_dict(config)))
    if set(values["gate"]) == set(FLAT_GATE):
        gates = (
            make_gate(config.gate, config.task.steps),
            old_gate(values["gate"], config.task.steps),
        )
        assert described(gates[0]) == described(gates[1])
    else:  # of this version
        assert written["gate"] == values["gate"]
    assert config_from_dict(written) == config
    assert set(written["gate"]) == {f.name for f in fields(config.gate)}


def test_there_are_recorded_runs():
    assert len(RECORDS) > 100


@pytest.mark.parametrize("kind", get_args(GateKind))
def test_the_old_default_of_every_kind_is_the_new_one(kind):
    config = config_from_dict(old_file(kind=kind))
    assert config.gate == gate_config(kind)
    assert described(make_gate(config.gate, 50)) == described(old_gate({"kind": kind}, 50))


def test_renamed_keys_are_read_and_new_ones_written():
    values = old_file(rate=0.2)
    values["model"].update(open_layers=1, tied_dropout=True, dropout=0.1)
    values["train"]["average"] = 0.9
    config = config_from_dict(values)
    assert config.model == ModelConfig(ungated_layers=1, sequence_dropout=True, dropout=0.1)
    assert (config.train, config.gate) == (TrainConfig(weight_ema=0.9), RhythmConfig(rate=0.2))
    written = config_to_dict(config)
    assert written["gate"] == asdict(RhythmConfig(rate=0.2))
    assert not {"open_layers", "tied_dropout", "average"} & {*written["model"], *written["train"]}
    assert upgrade(written) == written
    assert upgrade(values) == json.loads(json.dumps(written))


def test_the_renamed_option_of_spiking_models_is_read():
    values = old_file(rate=0.2)
    values["model"].update(kind="susnn", adaptation_goes_on=True)
    config = config_from_dict(values)
    assert config.model == ModelConfig("susnn", adaptation_always_decays=True)
    assert "adaptation_goes_on" not in config_to_dict(config)["model"]


def test_a_resumed_run_notes_the_options_that_changed_alone(tmp_path):
    folder = RunFolder.create(tmp_path / "run", old_file(rate=0.2))
    config = config_from_dict(folder.config())
    assert folder.set_config(config_to_dict(config)) == {}
    longer = replace(config, train=replace(config.train, steps=7, weight_ema=0.9))
    changes = {"train.steps": [1000, 7], "train.weight_ema": [0.0, 0.9]}
    assert folder.set_config(config_to_dict(longer)) == changes
    assert config_from_dict(folder.config()) == longer


def test_explicit_values_in_a_new_file_are_kept():
    values = config_to_dict(RunConfig(Copying(delay=9)))
    values["gate"] = {"kind": "open", "granularity": "auto", "always_on": 0.0}
    assert config_from_dict(values).gate == gate_config("open", granularity="auto")


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ({"n": 3}, "has n, which RhythmConfig"),
        ({"kind": "tempo"}, "gate 'tempo' is none of this version"),
        ({"rate": 0.1, "frozen": True, "target_rate": 0.2}, "target_rate"),
    ],
)
def test_an_option_that_a_gate_does_not_have_is_named(gate, message):
    with pytest.raises(RunError, match=message):
        config_from_dict(old_file(**gate))


@pytest.mark.parametrize("part", ["task", "model", "gate", "train"])
def test_a_damaged_file_is_named(part):
    values = old_file()
    for damage in (None, 3, []):
        with pytest.raises(RunError, match="configuration"):
            config_from_dict({**values, part: damage})
    del values[part]
    with pytest.raises(RunError, match="damaged"):
        config_from_dict(values)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--model.open-layers", "--model.ungated-layers"),
        ("--model.open_layers=2", "--model.ungated-layers=2"),
        ("--model.no-tied-dropout", "--model.no-sequence-dropout"),
        ("--model.no-adaptation-goes-on", "--model.no-adaptation-always-decays"),
        ("--train.average", "--train.weight-ema"),
        ("--train.average=0.9", "--train.weight-ema=0.9"),
    ],
)
def test_old_flags_are_refused_with_the_new_one(old, new):
    assert current_flag(old) == new
    name = new.partition("=")[0]
    with pytest.raises(ConfigError, match=f"renamed to {name}$"):
        check_renamed(["--train.steps", "3", old])


def test_other_words_are_left_alone():
    words = ["--train.steps", "3", "average", "--model.width=8", "--gate.no-frozen", "--out", "a.b"]
    assert [current_flag(word) for word in words] == words
    check_renamed(words)


def test_every_new_name_is_a_field():
    parts = {"model": ModelConfig, "train": TrainConfig}
    for old, new in RENAMED.items():
        part, _, name = new.partition(".")
        names = {f.name for f in fields(parts[part])}
        assert name in names
        assert old.partition(".")[2] not in names
    assert set(GATE_CONFIGS) == set(get_args(GateKind))
