"""One class of options per kind of gate, with the names, types and defaults of the gate itself."""

import inspect
import subprocess
import sys
from dataclasses import asdict, fields
from typing import get_args, get_type_hints

import pytest

from surnn import Surrogate
from surnn.config import (
    GATE_CONFIGS,
    AlwaysOpenConfig,
    EveryNConfig,
    GateConfig,
    GateKind,
    RhythmConfig,
    gate_config,
)
from surnn.errors import ConfigError
from surnn.nn.gates import GATES

KINDS = get_args(GateKind)


def test_every_kind_of_gate_has_its_config():
    assert KINDS == tuple(GATE_CONFIGS) == tuple(GATES)
    for kind, config in GATE_CONFIGS.items():
        assert config().kind == kind
        assert config.__name__ == f"{GATES[kind].__name__}Config"


def config_options(kind: str) -> dict[str, tuple[object, object]]:
    """Type and default of each option of a config; the surrogate and its slope as one."""
    config = GATE_CONFIGS[kind]
    types = get_type_hints(config)
    options = {f.name: (types[f.name], f.default) for f in fields(config) if f.name != "kind"}
    if "slope" in options:
        shape = Surrogate(options["surrogate"][1], options.pop("slope")[1])
        options["surrogate"] = (Surrogate, shape)
    return options


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_has_the_options_of_its_gate(kind):
    signature = inspect.signature(GATES[kind]).parameters
    options = config_options(kind)
    assert set(options) == set(signature)
    for name, (hint, default) in options.items():
        gate = signature[name]
        if name == "target_rate":  # a run may have one for each layer
            assert hint == gate.annotation | tuple[float, ...]
        elif default is None:  # the gate's own default, or for a horizon the task's length
            assert hint in (gate.annotation, gate.annotation | None), name
        else:
            assert (hint, default) == (gate.annotation, gate.default), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_is_written_with_its_own_options_alone(kind):
    values = asdict(gate_config(kind))
    assert next(iter(values.items())) == ("kind", kind)
    assert gate_config(**values) == gate_config(kind)


@pytest.mark.parametrize(
    ("kind", "option", "message"),
    [
        ("rhythm", "n", "'rhythm' has no option 'n'; gates with that option: every_n"),
        ("every_n", "hidden", "'every_n' has no option 'hidden'; gates with that option: input"),
        ("open", "min_period", "rhythm, warped, full, cycles, fixed_rhythm"),
        ("rhythm", "frequncies", "did you mean 'frequencies'"),
        ("open", "zzz", "it has granularity, always_on"),
    ],
)
def test_an_option_of_another_kind_is_refused_with_the_kinds_that_have_it(kind, option, message):
    with pytest.raises(ConfigError, match=message):
        gate_config(kind, **{option: 1})


def test_a_config_is_of_one_kind():
    with pytest.raises(ConfigError, match="gate_config"):
        RhythmConfig(kind="input")


def test_which_gates_learn_and_which_are_drawn():
    def kinds(name: str) -> set[str]:
        return {kind for kind in KINDS if getattr(gate_config(kind), name)}

    clocks = {"rhythm", "warped", "spline", "spectral", "table"}
    assert kinds("learned") == {*clocks, "input", "ssm", "full"}
    assert kinds("anneals") == kinds("sees_input") == {"input", "ssm", "full"}
    assert kinds("soft") == kinds("has_target") == set()
    assert not RhythmConfig(frozen=True).learned
    assert RhythmConfig(mode="soft").soft
    assert RhythmConfig(mode="relaxed").anneals
    assert RhythmConfig(target_rate=0.1).has_target


def test_changed_options():
    assert EveryNConfig(n=5).changed() == {"n": 5}
    assert AlwaysOpenConfig(granularity="layer").changed() == {}
    assert isinstance(AlwaysOpenConfig(), GateConfig)


def test_configs_do_not_need_torch():
    code = "import sys; sys.modules['torch'] = None; import surnn.config, surnn.config.old_keys"
    subprocess.run([sys.executable, "-c", code], check=True)
