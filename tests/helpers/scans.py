"""A scan's inputs of any shape, its outputs with all gradients, and comparisons of them."""

import dataclasses
from functools import partial

import pytest
import torch

from surnn.nn.cells import get_cell
from surnn.scan import ScanInputs, scan

reference_scan = partial(scan, backend="reference")
events_scan = partial(scan, backend="events")
native_scan = partial(scan, backend="native")
onepass_scan = partial(scan, backend="onepass")
TIGHT = {"rtol": 1e-10, "atol": 1e-11}


def make_inputs(
    cell: str = "gru",
    *,
    steps: int = 11,
    batch: int = 3,
    heads: int = 2,
    width: int = 3,
    features: int = 4,
    gate: torch.Tensor | None = None,
    rate: float = 0.4,
    per_sequence: bool = False,
    per_unit: bool = False,
    binary: bool = True,
    lengths: torch.Tensor | None = None,
    adaptation_always_decays: bool = False,
    dtype: torch.dtype = torch.float64,
    requires_grad: bool = True,
) -> ScanInputs:
    """Random inputs of a scan; its leaves require gradients."""
    the_cell = get_cell(cell)
    drives, parts = the_cell.drives, len(the_cell.components)

    def leaf(values: torch.Tensor) -> torch.Tensor:
        return values.to(dtype).requires_grad_(requires_grad)

    if gate is None:
        shape = (steps, batch if per_sequence else 1, heads, width if per_unit else 1)
        gate = torch.rand(shape)
        gate = (gate < rate).double() if binary else gate
    decay = None
    if cell in ("lif", "alif"):
        decay = torch.ones(heads, parts, width, dtype=dtype)
        decay[:, 0] = 0
        if adaptation_always_decays:
            decay[:, 2] = torch.rand(heads, width)
    return ScanInputs(
        cell=the_cell,
        x=leaf(torch.randn(steps, batch, features)),
        weight=leaf(torch.randn(heads, drives, width, features) * 1.4 / features**0.5),
        bias=leaf(torch.randn(heads, drives, width) * 0.3),
        recurrent=leaf(torch.randn(heads, drives, width, width) * 1.2 / width**0.5),
        unit=leaf(torch.rand(len(the_cell.unit_parameters), heads, width) * 0.8 + 0.1),
        gate=leaf(gate),
        state=leaf(torch.randn(batch, heads, parts, width) * 0.5),
        decay=None if decay is None else decay.requires_grad_(requires_grad),
        lengths=lengths,
        binary=binary,
    )


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Memory that is allocated and not written holds NaN, or a very large number."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def _open_at(step: int):
    def schedule(gate: torch.Tensor) -> torch.Tensor:
        gate[step] = 1
        return gate

    return schedule


def _one_head(gate: torch.Tensor) -> torch.Tensor:
    gate[:, :, 0] = 1
    return gate


def _uneven_heads(gate: torch.Tensor) -> torch.Tensor:
    gate[4, :, 2] = 1
    return _one_head(gate)


def _last_sequence(gate: torch.Tensor) -> torch.Tensor:
    gate[:, -1] = 1
    return gate


SPECIAL_SCHEDULES = {
    "never open": lambda gate: gate,
    "always open": lambda gate: gate + 1,
    "open once, in the middle": _open_at(6),
    "open once, at the first step": _open_at(0),
    "open once, at the last step": _open_at(-1),
    "one head always, the others never": _one_head,
    "heads of very different rates": _uneven_heads,
    "one sequence always, the others never": _last_sequence,
}


def special_schedule(kind: str, per_sequence: bool) -> torch.Tensor:
    """A gate of 13 time steps, 3 sequences and 3 heads."""
    return SPECIAL_SCHEDULES[kind](torch.zeros(13, 3 if per_sequence else 1, 3, 1))


def converted(inputs: ScanInputs, dtype: torch.dtype, device: str, **changed) -> ScanInputs:
    """The same scan in another dtype or on another device, with some fields changed."""
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


def leaves(inputs: ScanInputs) -> dict[str, torch.Tensor]:
    """The differentiable tensors of a scan, by name."""
    names = ("x", "weight", "bias", "recurrent", "unit", "gate", "state", "decay")
    return {n: v for n in names if (v := getattr(inputs, n)) is not None}


def run_with_gradients(scan, inputs: ScanInputs) -> dict[str, torch.Tensor]:
    """Outputs, last state and every gradient of a fixed random loss."""
    y, last = scan(inputs)
    weights = torch.Generator().manual_seed(1)
    loss = (y * torch.randn(y.shape, generator=weights).to(y)).sum()
    loss = loss + (last * torch.randn(last.shape, generator=weights).to(last)).sum()
    wanted = leaves(inputs)
    grads = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    found = {"y": y.detach(), "last": last.detach()}
    for (name, value), grad in zip(wanted.items(), grads, strict=True):
        found["d" + name] = torch.zeros_like(value) if grad is None else grad
    if "ddecay" in found:
        found["ddecay"] = found["ddecay"][:, 1:]  # component 0 is a constant
    return found


def assert_same(found, expected, *, rtol: float, atol: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )


def assert_events_equal_reference(inputs, **tolerance):
    expected = run_with_gradients(reference_scan, inputs)
    found = run_with_gradients(events_scan, inputs)
    assert_same(found, expected, **(tolerance or TIGHT))
    return expected


def assert_native_equals_reference(inputs):
    """Float32 against float64 on the same numbers.

    Where sums cancel, the error may be four times what the last bits of the operands change.
    """
    tolerance = 2e-5 if inputs.cell.components[0] == "s" else 5e-6  # thresholds cancel digits
    low = converted(inputs, torch.float32, "cpu")
    exact = converted(low, torch.float64, "cpu")
    expected = run_with_gradients(reference_scan, exact)
    found = run_with_gradients(native_scan, low)
    assert found.keys() == expected.keys()
    changes = None
    for name, value in expected.items():
        assert found[name].dtype == torch.float32
        size = value.norm().clamp(min=0.1)
        error, most = (found[name].double() - value).norm() / size, tolerance
        if error > most:
            changes = changes or _changes_by_rounding(exact, expected)
            most = max(most, 4 * changes[name] / size)
        assert error <= most, f"{name}: relative error {error:.1e}, tolerance {most:.1e}"


def _changes_by_rounding(inputs: ScanInputs, expected: dict[str, torch.Tensor]) -> dict:
    """How much each result changes, at most, when the operands change by a last bit of float32."""
    changes = dict.fromkeys(expected, 0.0)
    for seed in range(4):
        bits = torch.Generator().manual_seed(seed)
        moved = {
            name: (value.detach() * (1 + 2**-23 * torch.randn(value.shape, generator=bits)))
            .to(value.dtype)
            .requires_grad_()
            for name, value in leaves(inputs).items()
            if name != "gate"
        }
        results = run_with_gradients(reference_scan, inputs.replace(**moved))
        for name, value in results.items():
            changes[name] = max(changes[name], (value - expected[name]).norm().item())
    return changes


def tensors(hidden) -> tuple[torch.Tensor, ...]:
    return (hidden,) if isinstance(hidden, torch.Tensor) else tuple(hidden)


def close(found, expected) -> None:
    """Equal to float64 rounding, tensor by tensor."""
    for a, b in zip(tensors(found), tensors(expected), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
