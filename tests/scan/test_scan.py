"""``events`` equals ``reference`` in outputs and in every gradient; carries are exact."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scans import (
    TIGHT,
    assert_events_equal_reference,
    assert_same,
    events_scan,
    leaves,
    make_inputs,
    reference_scan,
    run_with_gradients,
)
from surnn.nn.cells import CELLS
from surnn.scan import event_list, reference
from surnn.scan.contract import blend
from surnn.scan.events import packed
from surnn.scan.events.backward import segment_suffix_sums
from surnn.scan.events.op import events_forward

CELL_NAMES = sorted(CELLS)

# ------------------------------------------------------------------ equality over the grid


@pytest.mark.parametrize("cell", CELL_NAMES)
@pytest.mark.parametrize(
    ("per_sequence", "per_unit", "binary"), list(itertools.product((False, True), repeat=3))
)
@pytest.mark.parametrize("padded", [False, True])
def test_every_cell_gate_kind_and_length(cell, per_sequence, per_unit, binary, padded):
    lengths = torch.tensor([11, 1, 6]) if padded else None
    inputs = make_inputs(
        cell,
        per_sequence=per_sequence,
        per_unit=per_unit,
        binary=binary,
        lengths=lengths,
        adaptation_always_decays=cell == "alif",
    )
    expected = assert_events_equal_reference(inputs)
    closed = inputs.gate == 0
    if binary and not per_unit and cell not in ("rnn_relu", "lif", "alif"):
        # The gate's gradient at closed steps is a real number, not the zero of a masked loss.
        reached = closed if lengths is None else closed[:1]
        assert (expected["dgate"][: len(reached)][reached] != 0).any()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_schedules(data):
    steps = data.draw(st.integers(1, 12), label="T")
    batch, heads, width = (data.draw(st.integers(1, 4), label=v) for v in "BND")
    per_sequence, per_unit = data.draw(st.booleans()), data.draw(st.booleans())
    shape = (steps, batch if per_sequence else 1, heads, width if per_unit else 1)
    size = shape[0] * shape[1] * shape[2] * shape[3]
    bits = data.draw(st.lists(st.booleans(), min_size=size, max_size=size), label="gate")
    padded = data.draw(st.booleans(), label="padded")
    lengths = None
    if padded:
        drawn = data.draw(st.lists(st.integers(1, steps), min_size=batch, max_size=batch))
        lengths = torch.tensor(drawn)
    inputs = make_inputs(
        data.draw(st.sampled_from(CELL_NAMES), label="cell"),
        steps=steps,
        batch=batch,
        heads=heads,
        width=width,
        gate=torch.tensor(bits, dtype=torch.float64).view(shape),
        lengths=lengths,
    )
    assert_events_equal_reference(inputs)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
@pytest.mark.parametrize("cell", ["rnn_tanh", "gru", "lstm"])
def test_lower_precisions_agree_to_their_rounding(cell, dtype, rounding):
    """Errors against float64 are rounding, or no worse than the reference's in that dtype."""
    for per_sequence in (False, True):
        low = make_inputs(cell, steps=33, dtype=dtype, per_sequence=per_sequence)
        exact = make_inputs(cell, steps=33, gate=low.gate.detach())
        for name, value in leaves(exact).items():
            value.data.copy_(getattr(low, name).detach())
        found = run_with_gradients(events_scan, low)
        plain = run_with_gradients(reference_scan, low)
        for name, value in run_with_gradients(reference_scan, exact).items():
            size = value.norm().clamp(min=1e-9)
            error = ((found[name].double() - value).norm() / size).item()
            theirs = ((plain[name].double() - value).norm() / size).item()
            assert error < max(rounding, 1.5 * theirs), f"{name}: {error:.1e}, {theirs:.1e}"


@pytest.mark.parametrize("cell", ["gru", "lstm", "alif"])
@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
def test_gathered_projections_and_small_chunks_agree(
    monkeypatch, cell, per_sequence, per_unit, heads
):
    inputs = make_inputs(
        cell, steps=20, heads=heads, per_sequence=per_sequence, per_unit=per_unit, rate=0.2
    )
    plain = run_with_gradients(events_scan, inputs)
    monkeypatch.setattr(packed, "DENSE_SHARE", 2.0)
    monkeypatch.setattr(packed, "GATHERING_COST", -1)
    assert_same(run_with_gradients(events_scan, inputs), plain, **TIGHT)
    monkeypatch.setitem(packed.CHUNK_ELEMENTS, "cpu", 1)
    assert_same(run_with_gradients(events_scan, inputs), plain, **TIGHT)


def test_lists_that_end_early_do_not_run_away():
    """Padding must not iterate an unbounded cell until 0 * inf reaches the weights' gradient."""
    gate = torch.zeros(2000, 2, 2, 1)
    gate[:3, 0, 0] = 1
    gate[:, 1, 0] = 1
    gate[:, :, 1] = 1  # both lists of head 1 are long, so head 0's short one is padded
    inputs = make_inputs("rnn_relu", steps=2000, batch=2, width=2, gate=gate)
    with torch.no_grad():
        inputs.recurrent[0] = 3 * torch.eye(2)
        inputs.recurrent[1] = 0
        inputs.x[:-1, 1] = -100.0  # the long list stays at zero to the end,
        inputs.x[-1, 1] = 1.0  # padding would continue with this step's drive
        inputs.weight.abs_()
    assert_events_equal_reference(inputs)


@pytest.mark.parametrize("heads", [1, 2])
def test_only_relevant_steps_get_a_gate_gradient(monkeypatch, heads):
    monkeypatch.setattr(packed, "GATHERING_COST", 0)
    for per_sequence in (False, True):
        inputs = make_inputs("gru", steps=20, heads=heads, per_sequence=per_sequence, per_unit=True)
        everywhere = run_with_gradients(events_scan, inputs)
        relevant = torch.rand(inputs.gate.shape[:3]) < 0.15
        object.__setattr__(inputs, "relevant", relevant)
        found = run_with_gradients(events_scan, inputs)
        everywhere["dgate"] = everywhere["dgate"] * relevant.unsqueeze(-1)
        assert_same(found, everywhere, **TIGHT)


# ------------------------------------------------------------------ exactness


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cell", CELL_NAMES)
@pytest.mark.parametrize("scan", [reference_scan, events_scan], ids=["reference", "events"])
def test_carry_is_exact(scan, cell, dtype):
    inputs = make_inputs(cell, steps=40, rate=0.3, per_unit=True, dtype=dtype)
    y, _ = scan(inputs)
    open_ = (inputs.gate != 0).expand_as(y)
    before = torch.cat((inputs.state[None, :, :, 0].to(dtype), y[:-1]))
    if cell in ("lif", "alif"):
        assert (y[~open_] == 0).all()
    else:
        assert torch.equal(y[~open_], before[~open_])
        assert (y[open_] != before[open_]).any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cell", CELL_NAMES)
def test_open_step_is_exactly_the_plain_cell(cell, dtype):
    """A gate of ones leaves no trace: the loop without any gate gives the same bits."""
    inputs = make_inputs(cell, steps=20, rate=1.1, dtype=dtype, requires_grad=False)
    y, last = reference_scan(inputs)
    state = inputs.state
    weight, bias = inputs.weight.flatten(0, 2), inputs.bias.flatten()
    drives = torch.nn.functional.linear(inputs.x, weight, bias)
    for t in range(20):
        rec = reference.recurrent_product(inputs.recurrent, state[..., 0, :])
        drive = drives[t].unflatten(-1, inputs.weight.shape[:3])
        state = inputs.cell.update(drive, rec, state, inputs.unit.unbind(0))
        assert torch.equal(y[t], state[..., 0, :])
    assert torch.equal(last, state)


def test_blend_is_exact_at_both_ends_where_the_obvious_formula_is_not():
    kept, proposed = torch.randn(2, 100_000)
    assert torch.equal(blend(kept, proposed, torch.zeros_like(kept)), kept)
    assert torch.equal(blend(kept, proposed, torch.ones_like(kept)), proposed)
    assert not torch.equal(kept + 1.0 * (proposed - kept), proposed)


@pytest.mark.parametrize("scan", [reference_scan, events_scan], ids=["reference", "events"])
@pytest.mark.parametrize("per_unit", [False, True])
def test_a_closed_unit_does_not_read_nan(scan, per_unit):
    gate = torch.ones(9, 1, 2, 3 if per_unit else 1)
    gate[4] = 0
    inputs = make_inputs("gru", steps=9, gate=gate, requires_grad=False)
    clean, _ = scan(inputs)
    inputs.x[4] = float("nan")
    y, last = scan(inputs)
    assert torch.equal(y, clean)
    assert last.isfinite().all()
    inputs.gate[4, 0, 0] = 1
    assert not scan(inputs)[0].isfinite().all()


def test_the_gate_of_a_closed_step_with_nan_gets_no_gradient():
    gate = torch.ones(9, 1, 2, 1)
    gate[4] = 0
    inputs = make_inputs("gru", steps=9, gate=gate)
    inputs.x.data[4] = float("nan")
    grad = run_with_gradients(events_scan, inputs)["dgate"]
    assert grad.isfinite().all()
    assert (grad[4] == 0).all()


# ------------------------------------------------------------------ gradients from scratch


@pytest.mark.parametrize("cell", ["rnn_tanh", "gru", "lstm"])
@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("scan", [reference_scan, events_scan], ids=["reference", "events"])
def test_gradcheck(scan, cell, per_sequence, per_unit):
    """Against finite differences; gates take fractions, where a difference means something."""
    inputs = make_inputs(
        cell,
        steps=4,
        batch=2,
        width=2,
        features=2,
        per_sequence=per_sequence,
        per_unit=per_unit,
        binary=False,
    )
    names = list(leaves(inputs))

    def run(*values):
        given = dict(zip(names, values, strict=True))
        return scan(inputs.__class__(**{**inputs.__dict__, **given}))

    assert torch.autograd.gradcheck(run, list(leaves(inputs).values()), atol=1e-6)


def test_gate_gradient_is_the_change_a_closed_step_would_make():
    """dL/dg at a closed step is the slope of the loss towards opening it."""
    inputs = make_inputs("gru", steps=9, rate=0.4)
    found = run_with_gradients(events_scan, inputs)["dgate"]
    small = 1e-6
    for t in range(9):
        for head in range(2):
            moved = []
            for sign in (1, -1):
                gate = inputs.gate.detach().clone()
                gate[t, 0, head] += sign * small
                soft = {**inputs.__dict__, "gate": gate.requires_grad_(), "binary": False}
                y, last = reference_scan(inputs.__class__(**soft))
                weights = torch.Generator().manual_seed(1)
                loss = (y * torch.randn(y.shape, generator=weights).to(y)).sum()
                loss += (last * torch.randn(last.shape, generator=weights).to(last)).sum()
                moved.append(loss.item())
            slope = (moved[0] - moved[1]) / (2 * small)
            assert abs(slope - found[t, 0, head, 0].item()) < 1e-6 * max(1, abs(slope))


# ------------------------------------------------------------------ memory and parts


def test_memory_follows_events_not_steps():
    def saved_bytes(rate: float) -> int:
        gate = (torch.rand(400, 1, 4, 1) < rate).double()
        inputs = make_inputs("lstm", steps=400, heads=4, width=8, gate=gate)
        own = {v.untyped_storage().data_ptr() for v in leaves(inputs).values()}
        total = 0

        def pack(t):
            nonlocal total
            if t.untyped_storage().data_ptr() not in own:
                total += t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            events_scan(inputs)
        return total

    dense, sparse = saved_bytes(1.1), saved_bytes(0.05)
    assert sparse < 0.08 * dense


def test_event_list():
    is_open = torch.tensor([[1, 0], [0, 0], [1, 0], [1, 0]], dtype=torch.bool)[:, None]
    found = event_list(is_open)
    assert found.index[:, 0].tolist() == [[1, 0], [1, 0], [2, 0], [3, 0]]
    assert found.time[:, 0].tolist() == [[0, 4], [2, 4], [3, 4]]
    assert found.count.tolist() == [[3, 0]]
    cut = event_list(is_open, capacity=2)
    assert cut.time[:, 0].tolist() == [[0, 4], [2, 4]]
    assert cut.count.tolist() == [[3, 0]]


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 37])
def test_segment_suffix_sums(steps):
    values = torch.randn(steps, 2, 3, 4, dtype=torch.float64)
    index = (torch.rand(steps, 2, 3) < 0.3).cumsum(0)
    expected = values.clone()
    for t in range(steps - 2, -1, -1):
        expected[t] += expected[t + 1] * (index[t] == index[t + 1]).unsqueeze(-1)
    torch.testing.assert_close(segment_suffix_sums(values, index), expected)


def test_too_little_room_is_an_error():
    inputs = make_inputs("gru", rate=1.1)
    with pytest.raises(ValueError, match="do not fit"):
        events_forward(*inputs.flat(), inputs.state, 4)
