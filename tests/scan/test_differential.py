"""All backends that run here against an independent implementation, on random scans.

It runs as many scans as fit into ``SURNN_DIFFERENTIAL_SECONDS`` (by default a few), or exactly
``SURNN_DIFFERENTIAL_SCANS``, from the seed ``SURNN_DIFFERENTIAL_SEED`` on. Backends that compute in
float32 get scans of their own. ``triton`` is among them under ``TRITON_INTERPRET=1``.
"""

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch

from helpers.numpy_scan import NumpyScan
from helpers.random_scans import RandomScan, random_scan
from helpers.scans import leaves, run_with_gradients
from surnn.nn.runtime import is_interpreted
from surnn.scan import ScanInputs, native, scan
from surnn.scan.dispatch import _unsupported
from surnn.scan.native import op

SECONDS = float(os.environ.get("SURNN_DIFFERENTIAL_SECONDS", "4"))
SCANS = int(os.environ.get("SURNN_DIFFERENTIAL_SCANS", "0"))
SEED = int(os.environ.get("SURNN_DIFFERENTIAL_SEED", "0"))
FEWEST = 25
"""Scans on a machine that is too busy for more."""
IN_DOUBLE = ["reference", "events", "onepass"]
IN_FLOAT = [
    *(["native"] if native.is_available() else []),
    *(["triton"] if is_interpreted() else []),
]
LARGEST = 1e15
"""Scans in float32 with larger results are left out: an intermediate result may overflow."""
NOISE = 1e-6
"""Relative changes of the operands by which a float32 scan's tolerance is found."""

pytestmark = [  # of Triton's interpreter, on masked values
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*"),
    pytest.mark.filterwarnings("ignore:invalid value encountered in reduce:RuntimeWarning"),
]


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
    names = ("x", "weight", "bias", "recurrent", "unit", "gate", "state", "decay", "lengths")
    values = {name: getattr(inputs, name) for name in names}
    arrays = {name: None if v is None else v.detach().numpy() for name, v in values.items()}
    for name, array in arrays.items():
        if array is not None and array.dtype == np.float32:
            arrays[name] = array.astype(np.float64)
        if change is not None and array is not None and name not in ("gate", "lengths"):
            arrays[name] = change(arrays[name])
    independent = NumpyScan(inputs.cell.name, **arrays, **options)
    with np.errstate(all="ignore"):
        y, last = independent.forward()
        weights = torch.Generator().manual_seed(1)
        grad_y = torch.randn(y.shape, generator=weights).double().numpy()
        grad_last = torch.randn(last.shape, generator=weights).double().numpy()
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


# ------------------------------------------------------------------ float64


def check_double(case: RandomScan, seed: int) -> tuple[list[str], list[str]]:
    """The backends that ran, and what they computed wrong."""
    expected = expected_results(case.inputs)
    ran, wrong = [], []
    for backend in IN_DOUBLE:
        if _unsupported(backend, case.inputs.traits) is not None:
            continue
        if backend == "onepass" and not case.finite:  # see its page
            continue
        ran.append(backend)
        found = run_with_gradients(lambda inputs, name=backend: scan(inputs, name), case.inputs)
        if backend == "onepass":  # its gate gradient is another one
            del found["dgate"]
        wrong += [f"{backend}: {text}" for text in differences(found, expected)]
    return ran, wrong


# ------------------------------------------------------------------ float32


def rounding(inputs: ScanInputs, expected: Expected) -> dict[str, float] | None:
    """How much rounding can change each result; None if a spike or an overflow depends on it.

    It is found by small changes of the operands, and by ``reference`` in float32. Both count
    several times.
    """
    tolerance = dict.fromkeys(expected.values, 1e-5)
    rounded = run_with_gradients(lambda operands: scan(operands, "reference"), inputs)
    for name, value in expected.values.items():
        got = rounded[name].double().numpy()
        finite = np.isfinite(value) & np.isfinite(got)
        scale = np.abs(value[finite]).max(initial=1.0)
        error = np.abs(got[finite] - value[finite]).max(initial=0.0)
        tolerance[name] = max(tolerance[name], 3 * error / scale)
    for seed in range(3):
        random = np.random.default_rng(seed)

        def change(array: np.ndarray, random=random) -> np.ndarray:
            return array * (1 + NOISE * random.uniform(-1, 1, array.shape))

        changed = expected_results(inputs, change).values
        for name, value in expected.values.items():
            finite = np.isfinite(value)
            if not np.array_equal(finite, np.isfinite(changed[name])):
                return None
            scale = np.abs(value[finite]).max(initial=1.0)
            error = np.abs(value[finite] - changed[name][finite]).max(initial=0.0)
            tolerance[name] = max(tolerance[name], 10 * error / scale)
    return tolerance if max(tolerance.values()) < 1e-2 else None


def agrees_in_float32(
    inputs: ScanInputs, expected: Expected, found: dict[str, torch.Tensor]
) -> bool:
    """Whether float32 makes other outputs finite than float64, and ``found`` has the same ones.

    A sigmoid that is tiny in float64 is 0 in float32, and 0 times infinity is NaN.
    """
    rounded = run_with_gradients(lambda operands: scan(operands, "reference"), inputs)
    finite = {name: torch.isfinite(rounded[name]).numpy() for name in ("y", "last")}
    other = any((finite[name] != np.isfinite(expected.values[name])).any() for name in finite)
    return other and all(
        np.array_equal(finite[name], torch.isfinite(found[name]).numpy()) for name in finite
    )


def is_too_large(expected: Expected) -> bool:
    """Whether an intermediate result may overflow in float32."""
    results = [np.abs(value[np.isfinite(value)]) for value in expected.values.values()]
    return max(value.max(initial=0.0) for value in results) > LARGEST


def check_float(case: RandomScan, seed: int) -> tuple[list[str], list[str]]:
    """The backends that ran, and what they computed wrong."""
    expected, ran, wrong = expected_results(case.inputs), [], []
    if is_too_large(expected):
        return ran, wrong
    for backend in IN_FLOAT:
        if _unsupported(backend, case.inputs.traits) is not None:
            continue
        with pytest.MonkeyPatch.context() as patch:
            if seed % 2:  # several threads, each with a part of the batch
                patch.setattr(op, "WORK_PER_THREAD", 1)
                patch.setattr(op.torch, "get_num_threads", lambda: 3)
            found = run_with_gradients(lambda inputs, name=backend: scan(inputs, name), case.inputs)
        wanted = expected
        if backend == "native" and not case.finite:
            wanted = expected_results(case.inputs, open_units_only=True)
        texts = differences(found, wanted, 1e-5)
        if texts:
            tolerance = rounding(case.inputs, expected)
            if tolerance is None or agrees_in_float32(case.inputs, expected, found):
                continue
            texts = differences(found, wanted, tolerance)
        ran.append(backend)
        wrong += [f"{backend}: {text}" for text in texts]
    return ran, wrong


CHECKS = {torch.float64: check_double, torch.float32: check_float}


@pytest.mark.parametrize("dtype", CHECKS, ids=str)
def test_backends_equal_an_independent_implementation(dtype):
    end = time.monotonic() + SECONDS / len(CHECKS)
    counts: Counter[str] = Counter()
    failures = []
    for seed in itertools.count(SEED):
        done = seed - SEED
        if done >= SCANS if SCANS else done >= FEWEST and time.monotonic() > end:
            break
        case = random_scan(seed, dtype)
        ran, wrong = CHECKS[dtype](case, seed)
        counts.update(ran)
        if wrong:
            failures.append(f"{case.description}\n" + "\n".join(wrong))
        if SCANS and done % 100 == 99:  # with pytest -s
            print(f"{done + 1} scans, {len(failures)} differ; {dict(counts)}", flush=True)
    assert not failures, f"{len(failures)} scans differ\n" + "\n".join(failures[:20])
    names = IN_DOUBLE if dtype == torch.float64 else IN_FLOAT
    assert all(counts[name] for name in names), counts


@pytest.mark.parametrize("seed", [2, 57, 65, 68, 72, 92, 117, 118, 120, 125, 137, 20005])
def test_scans_that_once_differed(seed):
    """Infinities that come and go, soft gates at 1, spikes and rectifiers at NaN, in float32."""
    case = random_scan(seed, torch.float32)
    ran, wrong = check_float(case, seed)
    assert ran == IN_FLOAT
    assert not wrong, f"{case.description}\n" + "\n".join(wrong)


@pytest.mark.parametrize("dtype", CHECKS, ids=str)
def test_a_difference_would_be_found(dtype):
    """The comparison sees a wrong number, and a number that should not be finite."""
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    case = random_scan(SEED, dtype)
    assert all(value.dtype == dtype for value in leaves(case.inputs).values())
    expected = expected_results(case.inputs)
    found = {name: torch.from_numpy(value.copy()) for name, value in expected.values.items()}
    assert not differences(found, expected, tolerance)
    largest = max(1.0, found["dweight"].abs().max().item())
    found["dweight"].view(-1)[0] += 100 * tolerance * largest
    found["y"].view(-1)[0] = float("inf")
    assert len(differences(found, expected, tolerance)) == 2
