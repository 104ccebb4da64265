"""Flash, memory and instructions of models on an emulated Cortex-M4.

    python benchmarks/edge.py --out results/edge/result.json  # random weights
    python benchmarks/edge.py RUN --frames frames.npy           # a trained run; frames [n, inputs]

Needs gcc-arm-none-eabi and qemu-system-arm. Instructions are counted by the emulated machine's own
timer, see ``surnn.bench.firmware``. Each model runs with its gates and with all gates open (dense).
Random weights have no noise that they sleep through; the gates of these models are shifted so that
2 % of units update. Answers are compared with those of ``surnn.Engine`` (SURNN_SIMD=scalar).
"""

import argparse
import copy
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import surnn
from surnn.bench.firmware import Firmware
from surnn.deploy.export import to_c_folder, to_engine
from surnn.nn.layers import SelectiveLayer

INPUTS, CLASSES, FRAMES = 40, 12, 1000
OPEN = 0.02
CLOCKS = (0, 1000, 10**6, 10**9, 2**40, 2**50 - 200)
SAMPLES = 100 * 320


class Keyword(nn.Module):
    """The shape of a keyword model: two layers and a readout."""

    def __init__(self, width: int, gate: surnn.Gate) -> None:
        super().__init__()
        self.rnn = surnn.SuGRU(INPUTS, width, num_layers=2, gate=gate, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, 40] to [B, T, 12]."""
        return self.head(self.rnn(x)[0])


@torch.no_grad()
def shifted(model: nn.Module, frames: np.ndarray) -> nn.Module:
    """The model with the biases of its gates changed so that OPEN of them are open."""
    x = torch.as_tensor(frames)[None]
    for layer in layers(model):
        for index, gate in enumerate(layer.gates):
            sums: list[Any] = []

            def note(module: nn.Module, inputs: Any, out: Any, sums: list[Any] = sums) -> None:
                sums.append(out[0].g)

            handle = gate.register_forward_hook(note)
            low, high = -20.0, 20.0
            for _ in range(16):
                middle = (low + high) / 2
                gate.bias.fill_(middle)  # type: ignore[operator]
                sums.clear()
                model(x)
                low, high = (middle, high) if sums[0].mean() < OPEN else (low, middle)
            handle.remove()
            print(f"layer {index}: {float(sums[0].mean()):.1%} open", file=sys.stderr)
    return model


def layers(model: nn.Module) -> list[SelectiveLayer]:
    """The selective layers of a model."""
    return [module for module in model.modules() if isinstance(module, SelectiveLayer)]


def opened(model: nn.Module) -> nn.Module:
    """The model with all gates open."""
    dense = copy.deepcopy(model)
    for layer in layers(dense):
        for index, gate in enumerate(layer.gates):
            layer.gates[index] = surnn.AlwaysOpen().bind(layer.state_size, layer.heads)
            layer.gates[index].training = gate.training
    return dense


def measure(model: nn.Module, frames: np.ndarray, weights: Any, folder: Path) -> dict[str, Any]:
    """One model in one form."""
    path = to_engine(model, folder / "model.surnn", weights)
    firmware = Firmware(to_c_folder(model, folder / "c", weights))
    measured = firmware.run(frames)
    expected = surnn.Engine(path).stream().run(frames)
    flash, steps = firmware.flash, measured.instructions
    doubles = sorted(
        name for name in firmware.symbols if name.startswith(("__aeabi_d", "__aeabi_f2d"))
    )
    return {
        "weights": weights,
        "flash": flash._asdict(),
        "memory": measured.sizes._asdict(),
        "instructions": {
            "median": float(np.median(steps)),
            "mean": float(steps.mean()),
            "most": float(steps.max()),
        },
        "updates": float(measured.updates.mean()),
        "equal_answers": float((measured.outputs == expected).all(1).mean()),
        "frames": len(frames),
        "malloc": "malloc" in firmware.map,
        "doubles": doubles,
    }  # fmt: skip


def clocks(model: nn.Module, frames: np.ndarray, folder: Path) -> list[dict[str, float]]:
    """Instructions of a time step at different times."""
    firmware = Firmware(to_c_folder(model, folder / "clocks"))
    rows = []
    for clock in CLOCKS:
        steps = firmware.run(frames[:150], clock).instructions
        median, most = float(np.median(steps)), float(steps.max())
        rows.append({"clock": clock, "median": median, "most": most, "ratio": most / median})
    return rows


def front_end(model: nn.Module, folder: Path) -> dict[str, float]:
    """Instructions of the log-mel bands, 20 ms of sound each."""
    firmware = Firmware(to_c_folder(model, folder / "mel"))
    samples = (np.random.default_rng(0).normal(size=SAMPLES) * 1000).astype(np.int16)
    measured = firmware.listen(samples, 1 / 16, -8.0)
    return {
        "instructions": float(np.median(measured.mel_instructions)),
        "flash": firmware.flash.mel,
        "memory": measured.sizes.mel,
    }


def models(frames: np.ndarray) -> dict[str, nn.Module]:
    """Keyword models with random weights."""
    torch.manual_seed(0)
    kinds = {
        "2 x 64, a gate for each unit": (64, surnn.InputGate()),
        "2 x 64, gates for 8 units": (64, surnn.InputGate(granularity=8)),
        "2 x 128, gates for 8 units": (128, surnn.InputGate(granularity=8)),
    }
    found = {name: shifted(Keyword(*kind), frames) for name, kind in kinds.items()}
    return {name: model.eval() for name, model in found.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", nargs="?", type=Path, help="a run folder (default: random weights)")
    parser.add_argument("--frames", type=Path, help="an array [n, inputs] (default: random)")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    arguments = parser.parse_args()
    os.environ["SURNN_SIMD"] = "scalar"
    random = np.random.default_rng(0).normal(size=(FRAMES, INPUTS)).astype(np.float32)
    frames = np.load(arguments.frames).astype(np.float32) if arguments.frames else random
    if arguments.run:
        chosen = {arguments.run.name: surnn.load(arguments.run).model.eval()}
    else:
        chosen = models(frames[:300])
    result: dict[str, Any] = {"command": " ".join(["python", *sys.argv]), "models": {}}
    for name, model in chosen.items():
        for form, each in (("selective", model), ("dense", opened(model))):
            for weights in ("float32", "int8"):
                with tempfile.TemporaryDirectory() as folder:
                    row = measure(each, frames, weights, Path(folder))
                result["models"].setdefault(name, {})[f"{form}, {weights}"] = row
                print(name, form, weights, json.dumps(row))
    with tempfile.TemporaryDirectory() as folder:
        result["front_end"] = front_end(next(iter(chosen.values())), Path(folder))
        if not arguments.run:
            clock = surnn.Rhythm(rate=0.1, horizon=1000)
            torch.manual_seed(0)
            result["clocks"] = clocks(Keyword(64, clock).eval(), frames, Path(folder))
    print(json.dumps({k: v for k, v in result.items() if k != "models"}, indent=1))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
