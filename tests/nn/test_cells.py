"""Every cell's hand-written derivatives against autograd's, and its equations against others'."""

import pytest
import torch

from surnn.nn.cells import CELLS, Cell, register_cell
from surnn.nn.cells.spiking import ALIF
from surnn.nn.surrogate import Surrogate


@pytest.mark.parametrize("name", sorted(CELLS))
def test_linearize_is_the_jacobian_of_update(name):
    cell = CELLS[name]
    width, parts, drives = 5, len(cell.components), cell.drives
    drive, rec = torch.randn(2, 4, drives, width, dtype=torch.float64)
    state = torch.randn(4, parts, width, dtype=torch.float64) * 0.3
    unit = torch.rand(len(cell.unit_parameters), width, dtype=torch.float64) * 0.8 + 0.1

    jacobian = torch.func.jacrev(
        lambda d, r, s, u: cell.update(d, r, s, u.unbind(0)).sum((0, -1)), argnums=(0, 1, 2, 3)
    )(drive, rec, state, unit)  # [C, 4, X, D]: pointwise, so sums over batch and units separate
    by_drive, by_rec, by_state, by_unit = jacobian
    slope = cell.linearize(drive, rec, state, unit.unbind(0))
    torch.testing.assert_close(slope.wrt_drive, by_drive.transpose(0, 1))
    wrt_rec = slope.wrt_drive if slope.wrt_rec is None else slope.wrt_rec
    torch.testing.assert_close(wrt_rec, by_rec.transpose(0, 1))
    torch.testing.assert_close(slope.wrt_state, by_state.transpose(0, 1))
    if slope.wrt_unit is None:
        assert not cell.unit_parameters
    else:
        torch.testing.assert_close(slope.wrt_unit.sum(0), by_unit)


def test_adaptive_cell_follows_the_delayed_equations_of_the_literature():
    """Our state holds u and b after reset and decay; the spikes are those of the usual form."""
    cell = ALIF()
    steps, width = 200, 7
    current = torch.rand(steps, width, dtype=torch.float64) * 0.6
    alpha = torch.full((width,), 0.95, dtype=torch.float64)
    rho = torch.full((width,), 0.99, dtype=torch.float64)
    u = b = s = torch.zeros(width, dtype=torch.float64)
    state = torch.zeros(3, width, dtype=torch.float64)
    nothing = torch.zeros(1, width, dtype=torch.float64)
    fired = 0.0
    for t in range(steps):
        b = rho * b + (1 - rho) * s
        theta = 0.01 + 1.8 * b
        u = alpha * u + (1 - alpha) * current[t] - theta * s
        s = (u > theta).double()
        state = cell.update(current[t, None], nothing, state, (alpha, rho))
        assert torch.equal(state[0], s)
        fired += s.sum().item()
    assert 0 < fired < steps * width


def test_cells_are_registered_once_by_name():
    with pytest.raises(ValueError, match="registered already"):
        register_cell(ALIF())
    own = register_cell(ALIF(name="alif_wide", surrogate=Surrogate("arctan")))
    assert isinstance(own, Cell)
    assert CELLS.pop("alif_wide") is own
