"""Random scans of any shape, with NaN, infinities, denormal and huge numbers in some of them."""

from typing import NamedTuple

import torch

from helpers.scans import make_inputs
from surnn.nn.cells import CELLS
from surnn.scan import ScanInputs

NAN, INF = float("nan"), float("inf")
SPECIAL = {
    torch.float64: (NAN, INF, -INF, 5e-324, -1e-310, 0.0, -0.0, 1e30, -1e30),
    torch.float32: (NAN, INF, -INF, 1e-45, -1e-40, 0.0, -0.0, 1e4, -1e4),
    torch.bfloat16: (NAN, INF, -INF, 1e-40, -2e-39, 0.0, -0.0, 1e4, -1e4),
    torch.float16: (NAN, INF, -INF, 6e-8, -1e-5, 0.0, -0.0, 1e2, -1e2),
}
"""Numbers that are put into operands: not finite, denormal, zero, huge. The huge ones do not
overflow in any product of two."""


class Sizes(NamedTuple):
    """Sizes to choose from. A size that is named twice is chosen more often."""

    steps: tuple[int, ...] = (1, 2, 3, 7, 12, 33)
    batch: tuple[int, ...] = (1, 2, 3, 5)
    heads: tuple[int, ...] = (1, 2, 3)
    width: tuple[int, ...] = (1, 2, 4)
    features: tuple[int, ...] = (1, 3)


LARGE = Sizes(batch=(1, 2, 3, 5, 17), width=(1, 2, 4, 9, 17), features=(1, 3, 16))
"""To fill vectors of numbers."""
TINY = Sizes((1, 2, 3, 5, 7), (1, 2, 3, 5, 17), (1, 1, 2, 3), (1, 2, 4, 17), (1, 3, 17))
"""For an interpreter, which takes long for every step and every program."""


class RandomScan(NamedTuple):
    """A scan, and a description by which a failure can be repeated."""

    inputs: ScanInputs
    description: str
    finite: bool
    """Whether all operands are finite, except where all units of a sequence are closed."""


def random_scan(
    seed: int, dtype: torch.dtype = torch.float64, sizes: Sizes | None = None
) -> RandomScan:
    """The scan number ``seed``, by default in sizes for its dtype."""
    torch.manual_seed(seed)
    sizes = sizes or (LARGE if dtype == torch.float32 else Sizes())

    def pick(*choices):
        return choices[int(torch.randint(len(choices), ()))]

    cell = pick(*sorted(set(CELLS) & {"rnn_tanh", "rnn_relu", "gru", "lstm", "lif", "alif"}))
    steps, batch = pick(*sizes.steps), pick(*sizes.batch)
    lengths = torch.randint(1, steps + 1, (batch,)) if pick(False, False, True) else None
    options = {
        "steps": steps,
        "batch": batch,
        "heads": pick(*sizes.heads),
        "width": pick(*sizes.width),
        "features": pick(*sizes.features),
        "rate": pick(0.0, 0.1, 0.5, 1.1),
        "per_sequence": pick(False, True),
        "per_unit": pick(False, True),
        "binary": pick(True, True, False),
        "adaptation_always_decays": cell == "alif" and pick(False, True),
    }
    inputs = make_inputs(cell, lengths=lengths, dtype=dtype, **options)
    if not inputs.binary:  # some gates at their ends
        ends = torch.rand_like(inputs.gate)
        inputs.gate.data[ends < 0.3] = 0
        inputs.gate.data[ends > 0.8] = 1
    special = pick("none", "closed", "closed", "anywhere")
    _insert(inputs, special)
    resets = pick(0.0, 0.0, 0.3)  # drawn last, so that the scans of a seed stay as they were
    if resets:
        inputs = inputs.replace(reset=torch.rand(steps, batch) < resets)
    text = (
        f"seed {seed}: {cell}, {options}, lengths {lengths}, special numbers {special}, "
        f"resets {resets}"
    )
    return RandomScan(inputs, text, special != "anywhere")


def _insert(inputs: ScanInputs, where: str) -> None:
    """Put special numbers into x where all is closed, or into any operand."""
    numbers = torch.tensor(SPECIAL[inputs.x.dtype], dtype=inputs.x.dtype)

    def some(shape, share=0.3):
        chosen = torch.rand(shape) < share
        return chosen, numbers[torch.randint(len(numbers), shape)]

    if where == "closed":
        open_ = (inputs.closed_past_length() != 0).flatten(2).any(-1)
        open_ = open_.expand(inputs.x.shape[:2])
        chosen, values = some(inputs.x.shape, 0.7)
        inputs.x.data = torch.where(chosen & ~open_[..., None], values, inputs.x.data)
    elif where == "anywhere":
        names = ["x", "weight", "bias", "recurrent", "state"]
        for name in (n for n in names if torch.rand(()) < 0.4):
            tensor = getattr(inputs, name)
            chosen, values = some(tensor.shape, 0.05)
            if name == "state" and inputs.decay is not None:
                chosen[:, :, 0] = False  # a spike
            tensor.data = torch.where(chosen, values, tensor.data)
