"""Whether an exported file computes what the model in Python does: random steps of both."""

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..engine import Engine
from ..gates import SeesInput
from ..layers import SelectiveLayer
from ..models import SequenceModel
from .graph import quiet
from .step import CLOCK, State, StreamingStep

Run = Callable[[Tensor, State], tuple[Tensor, State]]
LATE = 10**9
"""Half of the streams begin at t = 0, the others here, where a clock in float32 has lost count."""
TOLERANCE = 1e-4


class Agreement(NamedTuple):
    """Of a file with its model."""

    largest: float
    """Largest difference of a prediction or state, as a share of 1 + |value|."""
    left_out: int
    """Steps not counted in it: rounding, which is not the same in any two programs, took a number
    across a threshold. It happens to spikes and to gates that see the input, very rarely."""
    steps: int

    @property
    def good(self) -> bool:
        return self.largest <= TOLERANCE

    def __str__(self) -> str:
        told = f"{self.steps} random steps, largest difference from Python {self.largest:.1e}"
        if self.left_out:
            told += f" (but for {self.left_out} steps, after rounding changed a decision)"
        return told


@torch.no_grad()
def compare(step: StreamingStep, run: Run, streams: int = 4, steps: int = 100) -> Agreement:
    """A step at a time, each from Python's state, so that what rounding did is not passed on."""
    state = late(step.init_state(streams))
    generator = torch.Generator().manual_seed(0)
    differences = []
    for _ in range(steps):
        x = step.random_input(streams, generator)
        found, found_state = run(x, state)
        wanted, state = step(x, state)
        pairs = [(found, wanted), *((found_state[name], state[name]) for name in state)]
        differences.append(torch.stack([difference(a, b) for a, b in pairs]).amax(0))
    off = torch.stack(differences)
    return judge(step, off, off > TOLERANCE)


Stream = Callable[[np.ndarray, int], np.ndarray]
"""Inputs [steps, ...] and the clock before the first, to predictions [steps, outputs]."""


@torch.no_grad()
def compare_streams(
    step: StreamingStep, run: Stream, from_late: bool, streams: int = 20, steps: int = 20
) -> Agreement:
    """Whole streams of predictions, of those who keep their state to themselves."""
    state = step.init_state(streams)
    if from_late:
        state = late(state)
    generator = torch.Generator().manual_seed(0)
    x = torch.stack([step.random_input(streams, generator) for _ in range(steps)])
    clocks = state[CLOCK].tolist()
    found = [torch.from_numpy(run(x[:, i].numpy(), clocks[i])) for i in range(streams)]
    wanted = []
    for frame in x:
        prediction, state = step(frame, state)
        wanted.append(prediction)
    off = torch.stack([difference(torch.stack(found, 1)[t], wanted[t]) for t in range(steps)])
    return judge(step, off, (off > TOLERANCE).any(0).expand_as(off))


def compare_engine(step: StreamingStep, path: Path) -> Agreement:
    """The engine's file, run by the library of this installation."""
    engine = Engine(path)

    def run(x: np.ndarray, clock: int) -> np.ndarray:
        stream = engine.stream()
        stream.clock = clock
        return stream.run(x)

    return compare_streams(step, run, from_late=True)


def compare_c(step: StreamingStep, folder: Path, compiler: str) -> Agreement:
    """A folder of C files, built as its users will build it. The program always begins at t = 0.

    Raises:
        subprocess.CalledProcessError: it cannot be built.
    """
    with tempfile.TemporaryDirectory() as place:
        program = Path(place) / "model"
        sources = sorted(str(source) for source in folder.glob("*.c"))
        command = [compiler, "-O2", *sources, "-lm", "-o", str(program)]
        subprocess.run(command, check=True, capture_output=True, text=True)

        def run(x: np.ndarray, clock: int) -> np.ndarray:
            text = "\n".join(repr(v) for v in x.ravel().tolist())
            done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
            rows = [line.split() for line in done.stdout.splitlines()]
            return np.array(rows, np.float32)

        return compare_streams(step, run, from_late=False)


@torch.no_grad()
def compare_hf(model: SequenceModel, folder: Path) -> Agreement:
    """A folder of Hugging Face's, loaded as its users will load it. All that it computes is done by
    the same torch, so no rounding can change a decision."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 (an extra)

    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.wanted.size, (4, 100), generator=generator)
    found = AutoModelForCausalLM.from_pretrained(folder)(tokens).logits
    off = difference(found.flatten(0, 1), model(tokens).flatten(0, 1))
    return Agreement(off.max().item(), 0, len(off))


def late(state: State) -> State:
    """With half of the clocks far on."""
    state[CLOCK][len(state[CLOCK]) // 2 :] = LATE
    return state


def difference(found: Tensor, wanted: Tensor) -> Tensor:
    """The largest of each stream, [B]; infinite where only one of the two is a number."""
    found, wanted = found.double(), wanted.double()
    off = (found - wanted).abs() / (1 + wanted.abs())
    same = (found == wanted) | (found.isnan() & wanted.isnan())
    return torch.where(same, 0.0, off).nan_to_num(nan=torch.inf).reshape(len(off), -1).amax(1)


def judge(step: StreamingStep, off: Tensor, crossed: Tensor) -> Agreement:
    """Of differences [steps, streams], without those due to a changed decision, if they are few."""
    few = crossed.double().mean() <= 0.05 and decides_by_rounding(step)
    counted = off[~crossed] if few else off.flatten()
    return Agreement(counted.max().item(), off.numel() - counted.numel(), off.numel())


def decides_by_rounding(step: StreamingStep) -> bool:
    """Whether numbers in float32 are compared with a threshold somewhere."""
    layers = [m for m in step.modules() if isinstance(m, SelectiveLayer)]
    return any(
        isinstance(gate, SeesInput) or layer.cell.components[0] == "s"
        for layer in layers
        for gate in layer.gates
    )


# ---------------------------------------------------------------------------- files as functions


def onnx_step(path: Path) -> Run:
    """What the file does in onnxruntime, on the CPU."""
    import onnxruntime  # noqa: PLC0415 (an extra)

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(x: Tensor, state: State) -> tuple[Tensor, State]:
        given = {name: x.numpy(), **{k: v.numpy() for k, v in state.items()}}
        prediction, *new = (torch.from_numpy(v) for v in session.run(None, given))
        return prediction, dict(zip(state, new, strict=True))

    return run


def pt2_step(path: Path) -> Run:
    """What the file does in torch."""
    with quiet():
        return torch.export.load(path).module()
