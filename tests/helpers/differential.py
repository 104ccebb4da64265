"""Comparison of a scan with an independent implementation, by how much rounding can change it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from helpers.numpy_scan import NumpyScan
from helpers.scans import leaves, run_with_gradients
from surnn.scan import ScanInputs, scan

NOISE = {torch.float32: 1e-6, torch.float16: 2**-11, torch.bfloat16: 2**-8}
"""Relative changes of the operands by which the tolerance of a scan is found."""
SMALLEST = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 2.5e-2}
"""Differences, relative to a result's largest number, that are not looked at closer."""
COARSEST = {torch.float32: 1e-2, torch.float16: 5e-2, torch.bfloat16: 0.2}
"""Scans on which rounding has a larger effect are left out."""
LARGEST = {torch.float32: 1e15, torch.float16: 1e3, torch.bfloat16: 1e15}
"""Scans with larger results are left out: an intermediate result may overflow."""


class Expected(NamedTuple):
    """Results of the independent implementation, by the names of ``run_with_gradients``."""

    values: dict[str, np.ndarray]
    undefined: dict[str, np.ndarray]
    """Where a gradient follows from an adjoint that is not finite, and is not compared."""


def expected_results(
    inputs: ScanInputs,
    change: Callable[[np.ndarray], np.ndarray] | None = None,
    **options: bool,
) -> Expected:
    """Outputs and gradients, for the same loss as in ``run_with_gradients``.

    ``change`` is applied to all operands but the gate; ``options`` are those of ``NumpyScan``.
    """
    arrays = {name: value.detach().double().numpy() for name, value in leaves(inputs).items()}
    if change is not None:
        arrays |= {name: change(array) for name, array in arrays.items() if name != "gate"}
    for name in ("lengths", "reset"):
        value = getattr(inputs, name)
        arrays[name] = None if value is None else value.numpy()
    independent = NumpyScan(inputs.cell.name, **arrays, **options)
    with np.errstate(all="ignore"):
        y, last = independent.forward()
        weights = torch.Generator().manual_seed(1)
        grad_y = torch.randn(y.shape, generator=weights).to(inputs.x.dtype).double().numpy()
        grad_last = (
            torch.randn(last.shape, generator=weights).to(inputs.state.dtype).double().numpy()
        )
        grads = independent.backward(grad_y, grad_last)
    values = {"y": y, "last": last}
    values |= {f"d{name}": v for name, v in grads.items() if v is not None}
    undefined = {f"d{name}": v for name, v in independent.undefined.items()}
    for results in (values, undefined):
        if "ddecay" in results:
            results["ddecay"] = results["ddecay"][:, 1:]
    return Expected(values, undefined)


def differences(
    found: dict[str, torch.Tensor], expected: Expected, tolerance: dict[str, float] | float = 1e-9
) -> list[str]:
    """Names of results that differ: by more than rounding, or in which numbers are finite.

    ``tolerance`` is relative to the largest number of a result, for all or by name.
    """
    wrong = []
    for name, wanted in expected.values.items():
        if name not in found:
            continue
        got = found[name].detach().double().numpy()
        defined = ~expected.undefined.get(name, np.zeros(wanted.shape, bool))
        finite = np.isfinite(wanted)
        if (defined & (np.isfinite(got) != finite)).any():
            wrong.append(f"{name}: other numbers are finite")
            continue
        compared = finite & defined
        scale = np.abs(wanted[compared]).max(initial=1.0)
        error = np.abs(got[compared] - wanted[compared]).max(initial=0.0)
        if error > (tolerance[name] if isinstance(tolerance, dict) else tolerance) * scale:
            wrong.append(f"{name}: off by {error:.1e} of {scale:.1e}")
    return wrong


def rounding(inputs: ScanInputs, expected: Expected) -> dict[str, float] | None:
    """How much rounding can change each result; None if that is much, a spike or an overflow.

    It is found by small changes of the operands, and by ``reference`` in the scan's dtype. Both
    count several times.
    """
    dtype = inputs.x.dtype
    tolerance = dict.fromkeys(expected.values, SMALLEST[dtype])
    rounded = run_with_gradients(lambda operands: scan(operands, "reference"), inputs)
    for name, value in expected.values.items():
        got = rounded[name].detach().double().numpy()
        finite = np.isfinite(value) & np.isfinite(got)
        scale = np.abs(value[finite]).max(initial=1.0)
        error = np.abs(got[finite] - value[finite]).max(initial=0.0)
        tolerance[name] = max(tolerance[name], 3 * error / scale)
    for seed in range(3):
        random = np.random.default_rng(seed)

        def change(array: np.ndarray, random=random) -> np.ndarray:
            return array * (1 + NOISE[dtype] * random.uniform(-1, 1, array.shape))

        changed = expected_results(inputs, change).values
        for name, value in expected.values.items():
            finite = np.isfinite(value)
            if not np.array_equal(finite, np.isfinite(changed[name])):
                return None
            scale = np.abs(value[finite]).max(initial=1.0)
            error = np.abs(value[finite] - changed[name][finite]).max(initial=0.0)
            tolerance[name] = max(tolerance[name], 10 * error / scale)
    return tolerance if max(tolerance.values()) < COARSEST[dtype] else None


def agrees_in_its_dtype(
    inputs: ScanInputs, expected: Expected, found: dict[str, torch.Tensor]
) -> bool:
    """Whether other outputs are finite in the scan's dtype than in float64, and so in ``found``.

    A sigmoid that is tiny in float64 is 0 in float32, and 0 times infinity is NaN.
    """
    rounded = run_with_gradients(lambda operands: scan(operands, "reference"), inputs)
    finite = {name: torch.isfinite(rounded[name]).numpy() for name in ("y", "last")}
    other = any((finite[name] != np.isfinite(expected.values[name])).any() for name in finite)
    return other and all(
        np.array_equal(finite[name], torch.isfinite(found[name]).numpy()) for name in finite
    )


def is_too_large(expected: Expected, dtype: torch.dtype) -> bool:
    """Whether an intermediate result may overflow in ``dtype``."""
    results = [np.abs(value[np.isfinite(value)]) for value in expected.values.values()]
    return max(value.max(initial=0.0) for value in results) > LARGEST[dtype]
