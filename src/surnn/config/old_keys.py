"""Options that had another name or another form in files of earlier versions.

Files are read through :func:`upgrade` and written with the current names. The command line refuses
an old flag and names the new one.
"""

from dataclasses import fields
from typing import Any

from surnn.errors import ConfigError

from .gate import GATE_CONFIGS

RENAMED = {
    "model.open_layers": "model.ungated_layers",
    "model.tied_dropout": "model.sequence_dropout",
    "model.adaptation_goes_on": "model.adaptation_always_decays",
    "train.average": "train.weight_ema",
}
"""Old name to new name."""
FLAT_GATE_DEFAULTS = {"surrogate": "sigmoid", "slope": 4.0}
"""Earlier files hold the options of all kinds of gates. Those of other kinds than the file's own
are at a default: None, False, or these values."""


def upgrade(values: dict[str, Any]) -> dict[str, Any]:
    """A run's configuration, as any version wrote it, with the current names.

    Everything that is unknown is left as it is.
    """
    return {part: upgrade_part(part, options) for part, options in values.items()}


def upgrade_part(part: str, options: Any) -> Any:
    """The options of the part ``model``, ``gate``, ``train`` or ``task``, with current names."""
    if not isinstance(options, dict):
        return options
    names = {name: RENAMED.get(f"{part}.{name}", f"{part}.{name}") for name in options}
    renamed = {names[name].removeprefix(f"{part}."): value for name, value in options.items()}
    return _one_gate(renamed) if part == "gate" else renamed


def _one_gate(options: dict[str, Any]) -> dict[str, Any]:
    """The options of one kind of gate, from a file with these or with the options of all kinds."""
    kind = options.get("kind", "rhythm")
    if kind not in GATE_CONFIGS:
        return options
    own = {field.name: field.default for field in fields(GATE_CONFIGS[kind])}
    others = {name: value for name, value in options.items() if name not in own}
    if not others:
        return {"kind": kind, **options}
    chosen = {name: value for name, value in options.items() if name in own and value is not None}
    if chosen.get("granularity") == "auto":  # it stood for the default of the gate
        del chosen["granularity"]
    if kind == "fixed_rhythm":
        others.pop("frozen", None)  # had no effect
    unknown = {n: v for n, v in others.items() if v not in (None, False, FLAT_GATE_DEFAULTS.get(n))}
    return {**own, **chosen, **unknown}


# ---------------------------------------------------------------------------- flags


def check_renamed(flags: list[str]) -> None:
    """Refuse a flag with an old name; the message has the new one."""
    for flag in flags:
        old, new = (each.partition("=")[0] for each in (flag, current_flag(flag)))
        if old != new:
            raise ConfigError(f"{old} was renamed to {new}")


def current_flag(word: str) -> str:
    """A word of a command with the current name, if it is a flag with an old one."""
    flag, equals, value = word.partition("=")
    negated = ".no-" in flag.replace("_", "-")
    option = flag.removeprefix("--").replace("-", "_").replace(".no_", ".")
    if not flag.startswith("--") or option not in RENAMED:
        return word
    new = RENAMED[option].replace("_", "-")
    return f"--{new.replace('.', '.no-') if negated else new}{equals}{value}"
