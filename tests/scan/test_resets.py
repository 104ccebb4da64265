"""Resets inside a scan: the parts between them are separate sequences.

Matrix products of torch round differently for batches of different shapes. So equality bit for bit
is tested on whole numbers, where nothing rounds, and by what cannot matter: all that lies before a
reset. Real numbers are compared to rounding.
"""

import itertools

import pytest
import torch

from helpers.poison import NAN
from helpers.scans import (
    assert_same,
    converted,
    leaves,
    make_inputs,
    native_scan,
    poisoned_memory,  # noqa: F401 (a fixture)
    reference_scan,
    run_with_gradients,
)
from surnn.nn.cells import CELLS
from surnn.scan import ScanInputs, native, scan
from surnn.scan.native import op

BACKENDS = ["reference", "events"] + ["native"] * native.is_available()


def random_resets(inputs: ScanInputs, share: float = 0.3) -> ScanInputs:
    return inputs.replace(reset=torch.rand(inputs.x.shape[:2]) < share)


def whole_numbers(backend: str, **options) -> ScanInputs:
    """A scan in which all sums and products are exact, in float32 too."""
    inputs = make_inputs("rnn_relu", heads=2, width=3, **options)
    for name, value in leaves(inputs).items():
        if name != "gate":
            value.data = torch.randint(-1, 2, value.shape).to(value)
    inputs.recurrent.data *= torch.eye(3).roll(1, 0)  # numbers stay small
    return converted(inputs, torch.float32 if backend == "native" else torch.float64, "cpu")


def parts_of(inputs: ScanInputs) -> list[tuple[int, int, int]]:
    """(sequence, first step, end) of each part between resets."""
    assert inputs.reset is not None
    found = []
    for b in range(inputs.x.shape[1]):
        end = len(inputs.x) if inputs.lengths is None else int(inputs.lengths[b])
        starts = [0, *(t for t in range(1, end) if inputs.reset[t, b]), end]
        found += [(b, first, last) for first, last in itertools.pairwise(starts)]
    return found


def run_parts(run, inputs: ScanInputs) -> dict[str, torch.Tensor]:
    """What :func:`run_with_gradients` returns, from each part as a scan of its own."""
    assert inputs.reset is not None
    y_like, last_like = (v.detach() for v in run(inputs))
    draws = torch.Generator().manual_seed(1)
    by_y, by_last = (torch.randn(v.shape, generator=draws).to(v) for v in (y_like, last_like))
    found = {"y": torch.zeros_like(y_like), "last": torch.zeros_like(last_like)}
    named = leaves(inputs)
    found |= {"d" + name: torch.zeros_like(value) for name, value in named.items()}
    for b, first, end in parts_of(inputs):
        fresh = first > 0 or bool(inputs.reset[0, b])
        row = b if inputs.gate.shape[1] > 1 else 0
        own = inputs.replace(
            x=inputs.x[first:end, b : b + 1],
            gate=inputs.gate[first:end, row : row + 1],
            state=inputs.state[b : b + 1] * (0 if fresh else 1),
            lengths=None,
            reset=None,
        )
        y, last = run(own)
        loss = (y * by_y[first:end, b : b + 1]).sum()
        is_last = end == (len(inputs.x) if inputs.lengths is None else int(inputs.lengths[b]))
        if is_last:
            loss = loss + (last * by_last[b : b + 1]).sum()
            found["last"][b] = last[0].detach()
        found["y"][first:end, b] = y[:, 0].detach()
        grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        for name, grad in zip(named, grads, strict=True):
            if grad is not None:
                found["d" + name] += grad
    if "ddecay" in found:
        found["ddecay"] = found["ddecay"][:, 1:]
    return found


def run_exactly(run, inputs: ScanInputs) -> dict[str, torch.Tensor]:
    """The same as :func:`run_with_gradients` for a loss with whole numbers."""
    y, last = run(inputs)
    draws = torch.Generator().manual_seed(1)
    weights = [torch.randint(-1, 2, v.shape, generator=draws).to(v) for v in (y, last)]
    named = {name: value for name, value in leaves(inputs).items() if value.numel()}
    loss = (y * weights[0]).sum() + (last * weights[1]).sum()
    grads = torch.autograd.grad(loss, list(named.values()))
    return {"y": y, "last": last, **dict(zip(named, grads, strict=True))}


# ------------------------------------------------------------------ equal to separate sequences


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("per_sequence", "per_unit"), [(False, False), (True, False), (True, True)]
)
@pytest.mark.parametrize("batch", [3, 17])
def test_bit_for_bit_on_whole_numbers(backend, per_sequence, per_unit, batch):
    """One scan of parts as a batch: outputs, states and all gradients are equal."""
    torch.manual_seed(0)
    options = {"per_sequence": per_sequence, "per_unit": per_unit, "steps": 9, "batch": batch}
    inputs = random_resets(whole_numbers(backend, **options))
    assert inputs.reset is not None
    found = run_exactly(lambda i: scan(i, backend), inputs)

    def separately(i: ScanInputs):
        """Each part is a sequence of its own in one padded batch."""
        parts = parts_of(i)
        lengths = torch.tensor([end - first for _, first, end in parts])
        gate = i.gate.expand(-1, batch, -1, -1)

        def cut(values):
            rows = [values[first:end, b] for b, first, end in parts]
            return torch.nn.utils.rnn.pad_sequence(rows)

        fresh = [first > 0 or bool(i.reset[0, b]) for b, first, _ in parts]
        state = torch.stack(
            [i.state[b] * (not new) for (b, *_), new in zip(parts, fresh, strict=True)]
        )
        own = i.replace(x=cut(i.x), gate=cut(gate), state=state, lengths=lengths, reset=None)
        padded, states = scan(own, backend)
        y = torch.zeros(9, batch, *padded.shape[2:], dtype=padded.dtype)
        last = torch.zeros_like(i.state)
        for k, (b, first, end) in enumerate(parts):
            y[first:end, b] = padded[: end - first, k]
            last[b] = states[k]
        return y, last

    expected = run_exactly(separately, inputs)
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("cell", sorted(CELLS))
@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_every_cell_equals_its_parts(cell, per_sequence, binary, padded):
    torch.manual_seed(0)
    lengths = torch.tensor([7, 1, 4]) if padded else None
    inputs = make_inputs(
        cell, steps=7, per_sequence=per_sequence, binary=binary, lengths=lengths,
        adaptation_always_decays=cell == "alif",
    )  # fmt: skip
    inputs = random_resets(inputs)
    found = run_with_gradients(reference_scan, inputs)
    assert_same(found, run_parts(reference_scan, inputs), rtol=1e-11, atol=1e-13)


def test_native_equals_separate_sequences_bit_for_bit():
    """The C code rounds alike for every shape, so real numbers are equal too."""
    if not native.is_available():
        pytest.skip("needs the C library")
    for cell in sorted(CELLS):
        torch.manual_seed(0)
        inputs = converted(make_inputs(cell, steps=9, per_unit=True), torch.float32, "cpu")
        inputs = random_resets(inputs)
        found, expected = run_with_gradients(native_scan, inputs), run_parts(native_scan, inputs)
        for name in ("y", "last", "dx", "dstate"):
            assert torch.equal(found[name], expected[name]), (cell, name)


# ------------------------------------------------------------------ equal to reference


@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("cell", sorted(CELLS))
@pytest.mark.parametrize(
    ("per_sequence", "per_unit", "binary", "padded"),
    [(False, False, True, False), (False, True, True, True), (True, False, True, True),
     (True, True, False, False)],
)  # fmt: skip
def test_backends_equal_reference(backend, cell, per_sequence, per_unit, binary, padded):
    torch.manual_seed(0)
    inputs = make_inputs(
        cell,
        per_sequence=per_sequence,
        per_unit=per_unit,
        binary=binary,
        lengths=torch.tensor([11, 1, 6]) if padded else None,
        adaptation_always_decays=cell == "alif",
    )
    assert_equal_to_reference(backend, random_resets(inputs))


def assert_equal_to_reference(backend: str, inputs: ScanInputs) -> None:
    low = converted(inputs, torch.float32 if backend == "native" else torch.float64, "cpu")
    expected = run_with_gradients(reference_scan, converted(low, torch.float64, "cpu"))
    found = run_with_gradients(lambda i: scan(i, backend), low)
    tolerance = 2e-5 if backend == "native" else 1e-12
    for name, value in expected.items():
        error = (found[name].double() - value).norm() / value.norm().clamp(min=0.1)
        assert error <= tolerance, f"{name}: relative error {error:.1e}"


@pytest.mark.skipif(not native.is_available(), reason="needs the C library")
@pytest.mark.parametrize("cell", ["gru", "lstm", "alif"])
@pytest.mark.parametrize(("per_sequence", "width"), [(False, 32), (True, 32), (False, 50)])
def test_native_lanes_and_chunks(monkeypatch, cell, per_sequence, width):
    """Lanes of sequences, heads that fill vectors or not, and resets at the edges of chunks."""
    monkeypatch.setattr(op, "CHUNK_FLOATS", 1)
    torch.manual_seed(0)
    inputs = make_inputs(
        cell, steps=70, batch=21, width=width, features=19, per_sequence=per_sequence, rate=0.2,
        adaptation_always_decays=cell == "alif",
    )  # fmt: skip
    inputs = random_resets(inputs, 0.1)
    assert inputs.reset is not None
    inputs.reset[32] = True
    assert_equal_to_reference("native", inputs)


def test_one_sequence():
    for backend in BACKENDS:
        assert_equal_to_reference(backend, random_resets(make_inputs("gru", batch=1)))


# ------------------------------------------------------------------ nothing crosses a reset


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cell", sorted(CELLS))
def test_nothing_before_a_reset_matters(backend, cell):
    """Another past, even one of NaN, leaves outputs and gradients after a reset as they are."""
    torch.manual_seed(0)
    dtype = torch.float32 if backend == "native" else torch.float64
    inputs = converted(make_inputs(cell, per_sequence=True, steps=8), dtype, "cpu")
    reset = torch.zeros(8, 3, dtype=torch.bool)
    reset[5, 1] = True
    inputs = inputs.replace(reset=reset)

    def after(past: float | None) -> list[torch.Tensor]:
        x, state = inputs.x.detach().clone(), inputs.state.detach().clone()
        if past is not None:
            x[:5, 1], state[1] = past, past
        own = inputs.replace(x=x.requires_grad_(), state=state.requires_grad_())
        y, last = scan(own, backend)
        loss = y[5:, 1].sum() + last[1].sum()
        by_x, by_state, by_gate = torch.autograd.grad(loss, (x, state, own.gate))
        if past is NAN:  # derivatives there are not finite, and 0 times them is NaN
            return [y[5:, 1], last[1], by_x[5:, 1], by_gate[5:, 1]]
        assert (by_state == 0).all()
        assert (by_x[:5, 1] == 0).all()
        assert (by_gate[:5, 1] == 0).all()
        return [y[5:, 1], last[1], by_x[5:, 1], by_gate[5:, 1]]

    expected = after(None)
    for past in (0.5, NAN):
        for found, value in zip(after(past), expected, strict=True):
            if (
                past is NAN and backend != "native"
            ):  # torch computes around it, and rounds elsewhere
                torch.testing.assert_close(found, value, rtol=1e-12, atol=1e-12)
            else:
                assert torch.equal(found, value)


def test_a_reset_past_the_length_is_ignored():
    inputs = make_inputs("gru", lengths=torch.tensor([11, 1, 6]))
    past = ~(torch.arange(11)[:, None] < inputs.lengths)
    for backend in ("reference", "events"):
        plain = scan(inputs, backend)
        found = scan(inputs.replace(reset=past), backend)
        torch.testing.assert_close(found, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cell", ["rnn_tanh", "rnn_relu", "gru", "lstm"])  # spikes have jumps
@pytest.mark.parametrize("backend", ["reference", "events"])
@pytest.mark.parametrize("padded", [False, True])
def test_gradcheck(cell, backend, padded):
    torch.manual_seed(0)
    lengths = torch.tensor([4, 3]) if padded else None
    inputs = random_resets(
        make_inputs(cell, steps=4, batch=2, width=2, features=2, binary=False, lengths=lengths)
    )
    assert inputs.reset is not None
    assert inputs.reset[1:3].any()
    named = leaves(inputs)

    def run(*values):
        return scan(inputs.replace(**dict(zip(named, values, strict=True))), backend)

    assert torch.autograd.gradcheck(run, tuple(named.values()))


def test_onepass_says_why_it_cannot():
    inputs = random_resets(make_inputs("gru"))
    with pytest.raises(ValueError, match="cannot reset a state inside a sequence"):
        scan(inputs, "onepass")
