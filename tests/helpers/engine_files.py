"""Small engine files that together contain every operation, and builds of the engine's C tests."""

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn

from helpers.paths import ROOT
from surnn.config import (
    CyclesConfig,
    EveryNConfig,
    FixedRandomConfig,
    InputGateConfig,
    ModelConfig,
    RhythmConfig,
    SSMGateConfig,
    TableConfig,
    ThresholdConfig,
    WarpedRhythmConfig,
)
from surnn.deploy.export import to_engine
from surnn.models.model import SequenceModel
from surnn.tasks import Output, Tokens, Values

SOURCES = ROOT / "csrc"


def every_operation(folder: Path) -> list[Path]:
    """Small models that together contain every operation."""
    kinds = [
        ("clocks", "sugru", RhythmConfig(horizon=5, frequencies=3), {"heads": 2}),
        ("warped", "sulstm", WarpedRhythmConfig(horizon=5, frequencies=3, bins=3), {}),
        ("each", "surnn", WarpedRhythmConfig(horizon=5, frequencies=3, per_unit=True), {}),
        ("spiking", "susnn", FixedRandomConfig(), {"adaptation_always_decays": True}),
        ("input", "sugru", InputGateConfig(hidden=3), {"norm": "batch", "pool": "mean"}),
        ("ssm", "sugru", SSMGateConfig(modes=3), {"norm": "rms", "glu": "gelu"}),
        ("level", "surnn", ThresholdConfig(source="layer"), {"expand": 2, "groups": 2}),
        ("table", "sugru", TableConfig(horizon=5), {"block": "feedforward"}),
        ("convolved", "sulstm", EveryNConfig(), {"convolution": 4}),
        ("cycles", "susnn", CyclesConfig(min_period=2, max_period=7), {}),
    ]
    files = []
    for name, kind, gate, options in kinds:
        for weights in ("float32", "int8"):
            inputs = Tokens(5) if name == "table" else Values(2)
            config = ModelConfig(kind=kind, width=12, layers=1, **options)  # type: ignore[arg-type]
            model = SequenceModel(config, gate, inputs, Output(3, "sequence"), 5).eval()
            files.append(to_engine(model, folder / f"{name}-{weights}.surnn", weights))  # type: ignore[arg-type]
    return files


def convolutions() -> nn.Module:
    """A module with the operations that surnn's own models do not have."""
    pad, conv = nn.ZeroPad1d((4, 0)), nn.Conv1d(8, 8, 3, dilation=2, groups=2)
    return nn.Sequential(nn.Conv1d(3, 8, 1), nn.PReLU(), pad, conv, nn.Softmax(1))


def seed_files(folder: Path) -> list[Path]:
    """Those files, made anew with the same weights each time, for fuzzing."""
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    return [*every_operation(folder), to_engine(convolutions(), folder / "convolutions.surnn")]


def build_objects(
    folder: Path, *flags: str, compiler: str = "gcc", sources: Sequence[Path] | None = None
) -> list[Path]:
    """Object files of ``sources``, by default of the whole library, built with these flags.

    Those that are up to date are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    objects = {
        path: folder / f"{path.stem}.o"
        for path in sources or SOURCES.glob("*.c")
        if path.suffix == ".c" and path.name != "main.c"
    }

    def compile_source(source: Path) -> None:
        command = [compiler, "-g", *flags, "-I", SOURCES, "-c", source, "-o", objects[source]]
        subprocess.run([str(word) for word in command], check=True)

    old = [p for p, o in objects.items() if not o.exists() or o.stat().st_mtime <= newest]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_source, old))
    return sorted(objects.values())


def link(
    program: Path, source: Path, objects: list[Path], *flags: str, compiler: str = "gcc"
) -> Path:
    """A program of a C file and the engine's objects."""
    command = [compiler, "-g", *flags, "-I", SOURCES, source, *objects, "-lm", "-pthread"]
    subprocess.run([*map(str, command), "-o", str(program)], check=True)
    return program
