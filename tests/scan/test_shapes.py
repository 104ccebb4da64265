"""``events`` and ``native`` equal ``reference`` at odd shapes and for special schedules."""

import pytest

from helpers.scans import (
    SPECIAL_SCHEDULES,
    assert_events_equal_reference,
    assert_native_equals_reference,
    make_inputs,
    poisoned_memory,  # noqa: F401 (a fixture)
    special_schedule,
)
from surnn.scan import native

BACKENDS = [assert_events_equal_reference] + [
    assert_native_equals_reference
] * native.is_available()


@pytest.mark.parametrize("check", BACKENDS)
@pytest.mark.parametrize("steps", [1, 2, 3, 63])
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize(("heads", "width"), [(1, 7), (5, 1), (3, 4), (2, 16), (1, 32)])
def test_odd_shapes(check, steps, batch, heads, width):
    sizes = {"steps": steps, "batch": batch, "heads": heads, "width": width}
    for per_sequence in (False, True):
        check(make_inputs(per_sequence=per_sequence, **sizes))


@pytest.mark.parametrize("check", BACKENDS)
@pytest.mark.parametrize("kind", SPECIAL_SCHEDULES)
@pytest.mark.parametrize("cell", ["gru", "lstm", "alif"])
def test_special_schedules(check, kind, cell):
    for per_sequence in (False, True):
        gate = special_schedule(kind, per_sequence)
        check(make_inputs(cell, steps=13, heads=3, gate=gate))
