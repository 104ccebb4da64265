"""Checks that an exported file computes the same as the model in Python, on random inputs."""

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from surnn.errors import MissingExtra
from surnn.models.model import SequenceModel
from surnn.nn.layers import SelectiveLayer

from ..engine import Engine
from .graph import quiet
from .step import CLOCK, State, StreamingStep

Run = Callable[[Tensor, State], tuple[Tensor, State]]
LATE = 10**9
"""Half of the streams start at t = 0, the others here, where float32 cannot count steps anymore."""
TOLERANCE = 1e-4


class Agreement(NamedTuple):
    """How well a file agrees with its model."""

    largest: float
    """Largest difference of a prediction or state, relative to 1 + |value|."""
    excluded: int
    """Time steps that ``largest`` leaves out, because rounding moved a number across a threshold.
    Rounding differs between programs. It rarely changes spikes and gates that see the input."""
    steps: int

    @property
    def good(self) -> bool:
        return self.largest <= TOLERANCE

    def __str__(self) -> str:
        text = f"{self.steps} random steps, largest difference from Python {self.largest:.1e}"
        if self.excluded:
            text += f" (without {self.excluded} steps after rounding changed a decision)"
        return text


@torch.no_grad()
def compare(step: StreamingStep, run: Run, streams: int = 4, steps: int = 100) -> Agreement:
    """Compare single steps, each from Python's state, so that rounding errors do not add up."""
    state = move_clocks(step.init_state(streams))
    generator = torch.Generator().manual_seed(0)
    differences = []
    for _ in range(steps):
        x = step.random_input(streams, generator)
        prediction, new_state = run(x, state)
        expected, state = step(x, state)
        pairs = [(prediction, expected), *((new_state[name], state[name]) for name in state)]
        differences.append(torch.stack([difference(a, b) for a, b in pairs]).amax(0))
    errors = torch.stack(differences)
    return summarize(step, errors, errors > TOLERANCE)


Stream = Callable[[np.ndarray, int], np.ndarray]
"""Inputs [steps, ...] and the clock before the first one to predictions [steps, outputs]."""


@torch.no_grad()
def compare_streams(
    step: StreamingStep, run: Stream, from_late: bool, streams: int = 20, steps: int = 20
) -> Agreement:
    """Compare the predictions of whole streams, for programs that do not show their state."""
    state = step.init_state(streams)
    if from_late:
        state = move_clocks(state)
    generator = torch.Generator().manual_seed(0)
    x = torch.stack([step.random_input(streams, generator) for _ in range(steps)])
    clocks = state[CLOCK].tolist()
    outputs = [torch.from_numpy(run(x[:, i].numpy(), clocks[i])) for i in range(streams)]
    predictions = torch.stack(outputs, 1)
    expected = []
    for frame in x:
        prediction, state = step(frame, state)
        expected.append(prediction)
    errors = torch.stack([difference(predictions[t], expected[t]) for t in range(steps)])
    return summarize(step, errors, (errors > TOLERANCE).any(0).expand_as(errors))


def compare_engine(step: StreamingStep, path: Path) -> Agreement:
    """Compare an engine file, run by the installed C library."""
    engine = Engine(path)

    def run(x: np.ndarray, clock: int) -> np.ndarray:
        stream = engine.stream()
        stream.clock = clock
        return stream.run(x)

    # A mean over time counts its own time steps in C and those of the clock in Python, so that it
    # differs in a stream whose clock was set.
    return compare_streams(step, run, from_late=not getattr(step.model, "predicts_mean", False))


def compare_c(step: StreamingStep, folder: Path, compiler: str) -> Agreement:
    """Compare a folder of C files, compiled as users compile it. Its program starts at t = 0.

    Raises:
        subprocess.CalledProcessError: the compiler failed.
    """
    with tempfile.TemporaryDirectory() as place:
        program = Path(place) / "model"
        sources = [str(folder / "main.c"), *sorted(map(str, folder.glob("src/*.c")))]
        command = [compiler, "-O2", f"-I{folder / 'src'}", *sources, "-lm", "-o", str(program)]
        subprocess.run(command, check=True, capture_output=True, text=True)

        def run(x: np.ndarray, clock: int) -> np.ndarray:
            text = "\n".join(repr(v) for v in x.ravel().tolist())
            process = subprocess.run(
                [program], input=text, capture_output=True, text=True, check=True
            )
            rows = [line.split() for line in process.stdout.splitlines()]
            return np.array(rows, np.float32)

        return compare_streams(step, run, from_late=False)


@torch.no_grad()
def compare_hf(model: SequenceModel, folder: Path) -> Agreement:
    """Compare a Hugging Face folder, loaded with its Auto class.

    The same torch computes both, so rounding cannot change a decision.
    """
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 (an extra)

    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.output.size, (4, 100), generator=generator)
    logits = AutoModelForCausalLM.from_pretrained(folder)(tokens).logits
    errors = difference(logits.flatten(0, 1), model(tokens).flatten(0, 1))
    return Agreement(errors.max().item(), 0, len(errors))


def move_clocks(state: State) -> State:
    """Set the clocks of half of the streams to LATE."""
    state[CLOCK][len(state[CLOCK]) // 2 :] = LATE
    return state


def difference(actual: Tensor, expected: Tensor) -> Tensor:
    """The largest difference in each stream, [B]; infinite if only one of two values is NaN."""
    actual, expected = actual.double(), expected.double()
    errors = (actual - expected).abs() / (1 + expected.abs())
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    errors = torch.where(same, 0.0, errors).nan_to_num(nan=torch.inf)
    return errors.reshape(len(errors), -1).amax(1)


def summarize(step: StreamingStep, errors: Tensor, crossed: Tensor) -> Agreement:
    """The agreement for errors [steps, streams].

    ``crossed`` marks errors that a changed decision explains. They are left out if they are few.
    """
    few = crossed.double().mean() <= 0.05 and has_thresholds(step)
    counted = errors[~crossed] if few else errors.flatten()
    return Agreement(counted.max().item(), errors.numel() - counted.numel(), errors.numel())


def has_thresholds(step: StreamingStep) -> bool:
    """Whether the model compares float32 numbers with thresholds: spikes, gates of the input."""
    layers = [m for m in step.modules() if isinstance(m, SelectiveLayer)]
    return any(
        gate.sees_input or layer.cell.components[0] == "s"
        for layer in layers
        for gate in layer.gates
    )


# ---------------------------------------------------------------------------- files as functions


def onnx_step(path: Path) -> Run:
    """The file as a function, run by onnxruntime on the CPU."""
    try:
        import onnxruntime  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise MissingExtra("onnxruntime", "running an ONNX file") from error

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(x: Tensor, state: State) -> tuple[Tensor, State]:
        inputs = {name: x.numpy(), **{k: v.numpy() for k, v in state.items()}}
        prediction, *new = (torch.from_numpy(v) for v in session.run(None, inputs))
        return prediction, dict(zip(state, new, strict=True))

    return run


def pt2_step(path: Path) -> Run:
    """The file as a function, run by torch."""
    with quiet():
        return torch.export.load(path).module()
