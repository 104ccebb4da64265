"""The Triton kernels against an independent implementation, in Triton's interpreter.

Small random scans with small tiles, so that most have several of each. Environment variables and
seeds are those of ``test_differential.py``: ``SURNN_DIFFERENTIAL_SCANS=5000`` runs so many, and
``SURNN_DIFFERENTIAL_SEED=2000`` goes on at scan 2000.
"""

import itertools
import time
from collections import Counter

import pytest
import torch

from helpers.differential import (
    SMALLEST,
    agrees_in_its_dtype,
    differences,
    expected_results,
    is_too_large,
    rounding,
)
from helpers.kernels import interpreted
from helpers.random_scans import TINY, RandomScan, random_scan
from helpers.scans import (
    leaves,
    poisoned_memory,  # noqa: F401 (a fixture)
    run_with_gradients,
)
from surnn.nn.runtime import has_triton
from surnn.scan import ScanInputs, dispatch, scan

from .test_differential import FEWEST, SCANS, SECONDS, SEED

if has_triton():
    from surnn.scan.triton import launch, sizes

DTYPES = torch.float32, torch.float32, torch.float16, torch.bfloat16

pytestmark = [
    interpreted,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of numpy, on masked values
]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Several chunks, walks and parts of heads in small scans; and the interpreter's bfloat16."""
    monkeypatch.setattr(sizes, "CHUNK", 4)
    monkeypatch.setattr(launch, "WALK", 2)
    monkeypatch.setattr(launch, "PRODUCTS", 1)
    monkeypatch.setattr(sizes.Plan, "tile_width", 16)
    monkeypatch.setattr(sizes, "plan_of", sizes.Plan)  # no plans of other tests
    monkeypatch.setattr(dispatch, "_no_device", lambda _traits: None)


def variant(case: RandomScan, seed: int) -> RandomScan:
    """The same scan with some options of the kernels."""
    draws = torch.Generator().manual_seed(seed)

    def chance(share: float) -> bool:
        return torch.rand((), generator=draws).item() < share

    inputs, changes = case.inputs, {}
    if chance(0.5):  # as in mixed precision: only the input is in half precision
        names = [name for name in leaves(inputs) if name != "x"]
        values = {name: getattr(inputs, name).detach().float() for name in names}
        changes |= {name: value.requires_grad_() for name, value in values.items()}
    if chance(0.3):
        changes["recompute"] = True
    if chance(0.3):
        changes["max_rate"] = 1.0
    if chance(0.2):
        changes["relevant"] = torch.rand(inputs.gate.shape[:3], generator=draws) < 0.5
    kind = f"{inputs.x.dtype}, {', '.join(changes)}"
    return case._replace(inputs=inputs.replace(**changes), description=f"{case.description} {kind}")


def run_kernels(inputs: ScanInputs, expected) -> dict[str, torch.Tensor]:
    """What the kernels compute; gradients that they may leave out as expected."""
    found = run_with_gradients(lambda operands: scan(operands, "triton"), inputs)
    if inputs.relevant is not None:
        wanted = torch.from_numpy(expected.values["dgate"]).to(inputs.gate.dtype)
        relevant = inputs.relevant.unsqueeze(-1)
        assert relevant.shape[:3] == wanted.shape[:3]
        found["dgate"] = torch.where(relevant, found["dgate"], wanted)
    return found


def check(seed: int) -> tuple[str, list[str]]:
    """How scan ``seed`` was compared, and what is wrong."""
    dtype = DTYPES[seed % len(DTYPES)]
    case = variant(random_scan(seed, dtype, TINY), seed)
    expected = expected_results(case.inputs)
    if is_too_large(expected, dtype):
        return f"{dtype}: too large", []
    found = run_kernels(case.inputs, expected)
    texts = differences(found, expected, SMALLEST[dtype])
    if texts:
        tolerance = rounding(case.inputs, expected)
        if tolerance is None or agrees_in_its_dtype(case.inputs, expected, found):
            return f"{dtype}: depends on rounding", []
        texts = differences(found, expected, tolerance)
    return f"{dtype}", [f"{case.description}: {text}" for text in texts]


def test_kernels_equal_an_independent_implementation():
    end = time.monotonic() + SECONDS
    counts: Counter[str] = Counter()
    failures = []
    for done, seed in enumerate(itertools.count(SEED)):
        if done >= SCANS if SCANS else done >= FEWEST and time.monotonic() > end:
            break
        kind, wrong = check(seed)
        counts[kind] += 1
        failures += wrong[:1]
        if wrong and SCANS:
            print(*wrong, sep="\n", flush=True)
        if SCANS and done % 100 == 99:  # with pytest -s
            print(f"{done + 1} scans, {len(failures)} differ; {dict(counts)}", flush=True)
    assert not failures, f"{len(failures)} scans differ\n" + "\n".join(failures[:20])
    assert all(counts[str(dtype)] for dtype in DTYPES), counts


@pytest.mark.parametrize("seed", [37, 38, 41, 109, 184, 226, 414, 2544, 2776])
def test_scans_that_once_differed(seed):
    """NaN at a reset of a closed head; an infinite state before an event at the first step; weights
    that are not finite where no spike is received, or a sequence is reset; infinite states of heads
    that fill no tile."""
    kind, wrong = check(seed)
    assert kind in map(str, DTYPES)
    assert not wrong, wrong
