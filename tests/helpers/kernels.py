"""Shared by the tests of the kernels: the device, tolerances, and comparisons."""

import os

import pytest
import torch

from helpers.scans import converted, reference_scan, run_with_gradients
from surnn.nn.runtime import has_triton
from surnn.scan import ScanInputs, scan

# torch requires this with deterministic algorithms, which the fixture below switches on.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
INTERPRETED = has_triton() and os.environ.get("TRITON_INTERPRET") == "1"
ON_GPU = has_triton() and torch.cuda.is_available() and not INTERPRETED
DEVICE = "cuda" if ON_GPU else "cpu"

pytestmark = [
    pytest.mark.skipif(not (INTERPRETED or ON_GPU), reason="needs a GPU or TRITON_INTERPRET=1"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*"),  # numpy, on masked values
]
interpreted = pytest.mark.skipif(not INTERPRETED, reason="for TRITON_INTERPRET=1")
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a GPU")

# Relative error, by the precision of the matrix products.
TOLERANCE = {"ieee": 1e-5, "tf32": 4e-3, torch.float16: 4e-3, torch.bfloat16: 2.5e-2}
SPIKING = ("lif", "alif")


def kernels(inputs: ScanInputs):
    return scan(inputs, "triton")


def assert_kernels_equal_reference(
    inputs: ScanInputs, dtype=torch.float32, tolerance=TOLERANCE["ieee"]
) -> dict[str, torch.Tensor]:
    low = converted(inputs, dtype, DEVICE)
    exact = converted(low, torch.float64, "cpu")  # the same numbers as the kernels get
    found = {k: v.cpu() for k, v in run_with_gradients(kernels, low).items()}
    expected = run_with_gradients(reference_scan, exact)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        error = (found[name].double() - value).norm() / value.norm().clamp(min=1e-6)
        assert error <= tolerance, f"{name}: relative error {error:.1e}, tolerance {tolerance:.1e}"
    return found


SMALL = {"plain": {}, "per sequence": {"per_sequence": True}, "per unit": {"per_unit": True}}
