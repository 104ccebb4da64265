"""Scans with numbers that are not finite where closed units would read them."""

import torch

from helpers.scans import make_inputs, run_with_gradients
from surnn.nn.cells import get_cell
from surnn.scan import ScanInputs

NAN, INF = float("nan"), float("inf")


def closed_gate(per_sequence: bool, per_unit: bool) -> torch.Tensor:
    """[9, b, 2, m]: steps 3 and 4 are closed for all; head 1 is closed for sequence 2, or always.

    With gates per unit, unit 1 of head 0 is always closed.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (9, 3 if per_sequence else 1, 2, 3 if per_unit else 1)
    gate = (torch.rand(shape, generator=generator) < 0.6).double()
    gate[0] = gate[-1] = 1
    gate[3:5] = 0
    gate[:, -1, 1] = 0
    if per_unit:
        gate[:, :, 0, 1] = 0
    return gate


def poisoned_and_clean(
    cell: str, gate: torch.Tensor, value: float, **options
) -> tuple[ScanInputs, ScanInputs]:
    """Two scans that differ only in operands that closed units would read, and nothing else.

    Step 3 of x, and, where a head is always closed, its weights and biases, are ``value`` in one
    and zero in the other. So is unit 1's row of head 0, if that unit is always closed.
    """
    torch.manual_seed(1)
    clean = make_inputs(cell, steps=9, gate=gate, **options)
    poisoned = clean.replace(
        **{
            name: getattr(clean, name).detach().clone().requires_grad_()
            for name in ("x", "weight", "bias", "recurrent", "unit", "gate", "state")
        }
    )
    for inputs, number in ((clean, 0.0), (poisoned, value)):
        inputs.x.data[3] = number
        if gate.shape[1] == 1:  # shared: head 1 never opens
            for name in ("weight", "bias", "recurrent"):
                getattr(inputs, name).data[1] = number
        if gate.shape[-1] > 1:
            inputs.bias.data[0, :, 1] = number
            if len(get_cell(cell).unit_parameters):
                inputs.unit.data[:, 0, 1] = number
    return poisoned, clean


def assert_reads_nothing(scan, cell: str, gate: torch.Tensor, value: float, **options) -> None:
    """Closed units must not read ``value``: outputs and gradients are those of finite numbers."""
    poisoned, clean = poisoned_and_clean(cell, gate, value, **options)
    found, expected = run_with_gradients(scan, poisoned), run_with_gradients(scan, clean)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if found["y"].dtype == torch.float32 else {}
    for name in expected:
        got, wanted = found[name], expected[name]
        if name == "dgate":  # closed steps have another proposal, which is read by the gate only
            assert got.isfinite().all(), name
            got, wanted = (torch.where(gate != 0, v, 0.0) for v in (got, wanted))
        torch.testing.assert_close(
            got, wanted, **tolerance, msg=lambda m, n=name: f"{cell}, {n}: {m}"
        )
