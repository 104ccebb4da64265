"""All backends that run here against an independent implementation, on random scans.

It runs as many scans as fit into ``SURNN_DIFFERENTIAL_SECONDS`` (by default a few), or exactly
``SURNN_DIFFERENTIAL_SCANS``, from the seed ``SURNN_DIFFERENTIAL_SEED`` on. Backends that compute in
float32 get scans of their own. ``triton`` is among them under ``TRITON_INTERPRET=1``.
"""

import itertools
import os
import time
from collections import Counter

import pytest
import torch

from helpers.differential import (
    agrees_in_its_dtype,
    differences,
    expected_results,
    is_too_large,
    rounding,
)
from helpers.random_scans import RandomScan, random_scan
from helpers.scans import leaves, run_with_gradients
from surnn.nn.runtime import is_interpreted
from surnn.scan import native, scan
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

pytestmark = [  # of Triton's interpreter, on masked values
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*"),
    pytest.mark.filterwarnings("ignore:invalid value encountered in reduce:RuntimeWarning"),
]


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


def check_float(case: RandomScan, seed: int) -> tuple[list[str], list[str]]:
    """The backends that ran, and what they computed wrong."""
    expected, ran, wrong = expected_results(case.inputs), [], []
    if is_too_large(expected, torch.float32):
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
            if tolerance is None or agrees_in_its_dtype(case.inputs, expected, found):
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


@pytest.mark.parametrize("seed", [2, 57, 65, 68, 72, 92, 117, 118, 120, 125, 137, 3287, 20005])
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
