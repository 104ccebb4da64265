"""What tests of the kernels share: where they run, and how they are compared."""

import dataclasses
import os

import pytest
import torch

from conftest import run_with_gradients
from surnn.eager import has_triton
from surnn.scan import ScanInputs, reference, scan

# What torch asks for where results must repeat, as the fixture below says.
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

# Relative error, by what the matrix products are made in.
TOLERANCE = {"ieee": 1e-5, "tf32": 4e-3, torch.float16: 4e-3, torch.bfloat16: 2.5e-2}
SPIKING = ("lif", "alif")


@pytest.fixture(autouse=True)
def poisoned_memory():
    """What is allocated and not written is NaN, or a very large number."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def converted(inputs: ScanInputs, dtype: torch.dtype, device: str, **changed) -> ScanInputs:
    values = {}
    for field in dataclasses.fields(inputs):
        value = getattr(inputs, field.name)
        if isinstance(value, torch.Tensor):
            needs_grad = value.requires_grad
            value = value.detach().to(device)
            if value.is_floating_point():
                value = value.to(dtype).requires_grad_(needs_grad)
        values[field.name] = value
    return ScanInputs(**{**values, **changed})


def kernels(inputs: ScanInputs):
    return scan(inputs, "triton")


def assert_kernels_equal_reference(
    inputs: ScanInputs, dtype=torch.float32, tolerance=TOLERANCE["ieee"]
) -> dict[str, torch.Tensor]:
    low = converted(inputs, dtype, DEVICE)
    exact = converted(low, torch.float64, "cpu")  # of the very numbers that the kernels get
    found = {k: v.cpu() for k, v in run_with_gradients(kernels, low).items()}
    expected = run_with_gradients(reference.scan, exact)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        error = (found[name].double() - value).norm() / value.norm().clamp(min=1e-6)
        assert error <= tolerance, f"{name}: relative error {error:.1e}, tolerance {tolerance:.1e}"
    return found


SMALL = {"plain": {}, "per sequence": {"per_sequence": True}, "per unit": {"per_unit": True}}
