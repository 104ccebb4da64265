"""``native`` equals ``reference`` in outputs and in every gradient, whatever the threads."""

import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scans import (
    assert_native_equals_reference,
    leaves,
    make_inputs,
    native_scan,
    poisoned_memory,  # noqa: F401 (a fixture)
    run_with_gradients,
)
from surnn import Surrogate
from surnn.nn.cells import CELLS
from surnn.nn.cells.spiking import ALIF, LIF
from surnn.scan import native
from surnn.scan.native import op

CELL_NAMES = sorted(CELLS)
SPIKING = ("lif", "alif")

pytestmark = pytest.mark.skipif(not native.is_available(), reason="needs the C library")


# ------------------------------------------------------------------ equality over the grid


@pytest.mark.parametrize("cell", CELL_NAMES)
@pytest.mark.parametrize(
    ("per_sequence", "per_unit", "binary"), list(itertools.product((False, True), repeat=3))
)
@pytest.mark.parametrize("padded", [False, True])
def test_every_cell_gate_kind_and_length(cell, per_sequence, per_unit, binary, padded):
    inputs = make_inputs(
        cell,
        per_sequence=per_sequence,
        per_unit=per_unit,
        binary=binary,
        lengths=torch.tensor([11, 1, 6]) if padded else None,
        adaptation_always_decays=cell == "alif",
    )
    assert_native_equals_reference(inputs)


@pytest.mark.parametrize("cell", CELL_NAMES)
@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("batch", [4, 21, 40])
def test_sizes_that_fill_vectors_and_leave_rests(monkeypatch, cell, per_sequence, per_unit, batch):
    """Lanes and rests of lanes, groups of sequences and units, several chunks."""
    monkeypatch.setattr(op, "CHUNK_FLOATS", 1)
    inputs = make_inputs(
        cell,
        steps=70,
        batch=batch,
        width=50,
        features=19,
        per_sequence=per_sequence,
        per_unit=per_unit,
        rate=0.2,
        adaptation_always_decays=cell == "alif",
    )
    assert_native_equals_reference(inputs)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_random_schedules(data):
    steps = data.draw(st.integers(1, 12), label="T")
    batch, heads, width = (data.draw(st.integers(1, 4), label=v) for v in "BND")
    batch *= data.draw(st.sampled_from([1, 6]), label="batches")
    per_sequence, per_unit = data.draw(st.booleans()), data.draw(st.booleans())
    shape = (steps, batch if per_sequence else 1, heads, width if per_unit else 1)
    seed = data.draw(st.integers(0, 2**31), label="seed of the gate")
    rate = data.draw(st.floats(0, 1), label="rate")
    gate = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < rate
    lengths = None
    if data.draw(st.booleans(), label="padded"):
        drawn = data.draw(st.lists(st.integers(1, steps), min_size=batch, max_size=batch))
        lengths = torch.tensor(drawn)
    cell = data.draw(st.sampled_from(CELL_NAMES), label="cell")
    inputs = make_inputs(
        cell,
        steps=steps,
        batch=batch,
        heads=heads,
        width=width,
        gate=gate.double(),
        lengths=lengths,
    )
    assert_native_equals_reference(inputs)


@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lif"])
def test_only_relevant_steps_get_a_gate_gradient_at_closed_gates(cell, per_sequence, per_unit):
    inputs = make_inputs(
        cell,
        steps=20,
        per_sequence=per_sequence,
        per_unit=per_unit,
        dtype=torch.float32,
    )
    everywhere = run_with_gradients(native_scan, inputs)
    relevant = torch.rand(inputs.gate.shape[:3]) < 0.3
    found = run_with_gradients(native_scan, inputs.replace(relevant=relevant))
    computed = relevant.unsqueeze(-1) | (inputs.gate != 0)
    everywhere["dgate"] = everywhere["dgate"] * computed
    for name, value in everywhere.items():
        torch.testing.assert_close(found[name], value, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("kind", ["sigmoid", "triangle", "rectangle", "arctan"])
def test_a_registered_variant_of_a_spiking_cell(kind):
    surrogate = Surrogate(kind, slope=1.5)
    variants = (LIF("lif", 0.7, surrogate), ALIF("alif", 0.05, 1.1, surrogate))
    for variant in variants:
        inputs = make_inputs(variant.name, steps=30, dtype=torch.float32)
        name = f"test_native_{variant.name}_{kind}"
        variant.name = name
        CELLS[name] = variant
        try:
            assert_native_equals_reference(inputs.replace(cell=variant))
        finally:
            del CELLS[name]


# ------------------------------------------------------------------ exactness


@pytest.mark.parametrize("cell", CELL_NAMES)
@pytest.mark.parametrize("batch", [3, 20])
def test_carry_is_exact(cell, batch):
    inputs = make_inputs(cell, steps=40, batch=batch, rate=0.3, per_unit=True, dtype=torch.float32)
    y, _ = native_scan(inputs)
    open_ = (inputs.gate != 0).expand_as(y)
    before = torch.cat((inputs.state[None, :, :, 0], y[:-1]))
    if cell in SPIKING:
        assert (y[~open_] == 0).all()
    else:
        assert torch.equal(y[~open_], before[~open_])
        assert (y[open_] != before[open_]).any()


@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("batch", [3, 16])
def test_a_closed_unit_does_not_read_nan(per_unit, batch):
    gate = torch.ones(9, 1, 2, 3 if per_unit else 1)
    gate[4] = 0
    inputs = make_inputs("gru", steps=9, batch=batch, gate=gate, dtype=torch.float32)
    clean, _ = native_scan(inputs)
    inputs.x.data[4] = float("nan")
    y, last = native_scan(inputs)
    assert torch.equal(y, clean)
    assert last.isfinite().all()
    found = run_with_gradients(native_scan, inputs)
    assert all(value.isfinite().all() for value in found.values())
    assert (found["dgate"][4] == 0).all()
    inputs.gate.data[4, 0, 0] = 1
    assert not native_scan(inputs)[0].isfinite().all()


@pytest.mark.parametrize("cell", ["rnn_tanh", "gru", "lstm", "alif"])
@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("batch", [5, 37])
def test_results_do_not_depend_on_the_threads(monkeypatch, cell, per_sequence, batch):
    monkeypatch.setattr(op, "WORK_PER_THREAD", 1)
    monkeypatch.setattr(op, "CHUNK_FLOATS", 1)
    used = []
    run = op._Call.run

    def record(call, name):
        used.append((call.scan.threads, call.scan.blocks))
        run(call, name)

    monkeypatch.setattr(op._Call, "run", record)
    inputs = make_inputs(
        cell,
        steps=70,
        batch=batch,
        width=40,
        features=19,
        rate=0.2,
        per_unit=True,
        per_sequence=per_sequence,
        dtype=torch.float32,
        adaptation_always_decays=cell == "alif",
    )
    threads = torch.get_num_threads()
    results = []
    try:
        for number in (1, 2, 5):
            torch.set_num_threads(number)
            results.append(run_with_gradients(native_scan, inputs))
    finally:
        torch.set_num_threads(threads)
    assert len(set(used)) > 1
    for other in results[1:]:
        for name, value in results[0].items():
            assert torch.equal(other[name], value), name


def test_threads_may_change_between_the_passes(monkeypatch):
    monkeypatch.setattr(op, "WORK_PER_THREAD", 1)
    inputs = make_inputs("gru", steps=30, batch=33, heads=1, width=20, dtype=torch.float32)
    expected = run_with_gradients(native_scan, inputs)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        y, last = native_scan(inputs)
        torch.set_num_threads(1)
        weights = torch.Generator().manual_seed(1)
        loss = (y * torch.randn(y.shape, generator=weights)).sum()
        loss = loss + (last * torch.randn(last.shape, generator=weights)).sum()
        found = torch.autograd.grad(loss, list(leaves(inputs).values()))
    finally:
        torch.set_num_threads(threads)
    for name, grad in zip(leaves(inputs), found, strict=True):
        assert torch.equal(grad, expected["d" + name]), name


def run_alone(script: str) -> None:
    """Run a script in a new process, with this one's library and modules; fail if it hangs.

    Tensors are small: torch runs larger operators on its pool, which hangs in a forked child.
    """
    start = """
import os
import signal
import torch
import helpers.other_library  # sets the library before surnn looks for it
from helpers.scans import make_inputs, native_scan, run_with_gradients
from surnn.scan.native import op
op.WORK_PER_THREAD = 1
torch.set_num_threads(3)
inputs = make_inputs("gru", steps=20, batch=33, heads=2, width=20, dtype=torch.float32)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", start + script]
    subprocess.run(command, env=env, timeout=120, check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the list of threads from /proc")
def test_scans_run_on_the_pool_of_torch():
    run_alone("""
before = len(os.listdir("/proc/self/task"))
native_scan(inputs)
after = len(os.listdir("/proc/self/task"))
assert after == before + 2, (before, after)  # the pool remains; threads of our own would have ended
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_scans_without_the_pool():
    run_alone("""
expected = run_with_gradients(native_scan, inputs)
child = os.fork()
if not child:
    signal.alarm(100)  # a child that hangs ends
    found = run_with_gradients(native_scan, inputs)
    os._exit(not all(torch.equal(found[name], value) for name, value in expected.items()))
assert os.waitpid(child, 0)[1] == 0
""")


def test_several_python_threads_scan_at_once(monkeypatch):
    monkeypatch.setattr(op, "WORK_PER_THREAD", 1)
    inputs = make_inputs("lstm", steps=40, batch=33, heads=2, width=20, dtype=torch.float32)
    with torch.no_grad():
        expected, _ = native_scan(inputs)
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(3)
            with ThreadPoolExecutor(4) as pool:
                found = list(pool.map(lambda _: native_scan(inputs)[0], range(24)))
        finally:
            torch.set_num_threads(threads)
    assert all(torch.equal(y, expected) for y in found)


@pytest.mark.parametrize("pool", [1, 2])
def test_a_pool_may_have_fewer_threads_than_the_team(monkeypatch, pool):
    inputs = make_inputs("gru", steps=30, batch=33, heads=2, width=20, dtype=torch.float32)
    expected = run_with_gradients(native_scan, inputs)
    monkeypatch.setattr(op, "WORK_PER_THREAD", 1)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(pool)
        monkeypatch.setattr(op.torch, "get_num_threads", lambda: 5)
        found = run_with_gradients(native_scan, inputs)
    finally:
        torch.set_num_threads(threads)
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


# ------------------------------------------------------------------ the parts of a pass


@pytest.mark.parametrize("frozen", ["x", "gate", "decay", "weight"])
def test_gradients_that_are_not_needed_change_no_other(frozen):
    inputs = make_inputs("alif", steps=20, adaptation_always_decays=True, dtype=torch.float32)
    expected = run_with_gradients(native_scan, inputs)
    constant = inputs.replace(**{frozen: getattr(inputs, frozen).detach()})
    y, last = native_scan(constant)
    weights = torch.Generator().manual_seed(1)
    loss = (y * torch.randn(y.shape, generator=weights)).sum()
    loss = loss + (last * torch.randn(last.shape, generator=weights)).sum()
    wanted = {n: v for n, v in leaves(constant).items() if n != frozen}
    for name, grad in zip(wanted, torch.autograd.grad(loss, list(wanted.values())), strict=True):
        value = grad[:, 1:] if name == "decay" else grad
        assert torch.equal(value, expected["d" + name]), name


def test_memory_follows_updates():
    def saved_bytes(rate: float) -> int:
        gate = (torch.rand(400, 1, 1, 32) < rate).float()
        inputs = make_inputs("gru", steps=400, heads=1, width=32, gate=gate, dtype=torch.float32)
        own = {v.untyped_storage().data_ptr() for v in leaves(inputs).values()}
        total = 0

        def pack(t):
            nonlocal total
            if t.untyped_storage().data_ptr() not in own:
                total += t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y, _ = native_scan(inputs)
        return total - y.untyped_storage().nbytes()

    assert saved_bytes(0.05) < 0.08 * saved_bytes(1.1)


def test_no_activations_are_kept_without_gradients(monkeypatch):
    kept = []
    forward = op._forward
    monkeypatch.setattr(
        op, "_forward", lambda *a: kept.append(forward(*a)[2].numel()) or forward(*a)
    )
    inputs = make_inputs("lstm", dtype=torch.float32)
    with torch.no_grad():
        native_scan(inputs)
    with torch.inference_mode():
        native_scan(inputs)
    assert kept == [0, 0]


def test_too_little_room_is_an_error():
    inputs = make_inputs("gru", rate=1.1, dtype=torch.float32)
    with pytest.raises(ValueError, match="do not fit"):
        op.native_forward(*inputs.flat(), inputs.state, 4, True)


def test_gradients_of_gradients_name_the_backend_that_has_them():
    inputs = make_inputs("gru", dtype=torch.float32)
    y, _ = native_scan(inputs)
    (grad,) = torch.autograd.grad(y.square().sum(), inputs.x, create_graph=True)
    with pytest.raises(RuntimeError, match="backend='reference'"):
        grad.sum().backward()
