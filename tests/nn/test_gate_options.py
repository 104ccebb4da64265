"""Options of gates: signatures, docstrings, and errors that say how to fix them."""

import inspect
import math
import re

import pytest
import torch

import surnn
from surnn import Surrogate
from surnn.nn.gates import GATES, ClockGate, Gate, SeesInput, as_gate
from surnn.nn.gates.fixed import FixedSchedule

CLASSES = [*GATES.values(), Gate, ClockGate, SeesInput, FixedSchedule]


@pytest.mark.parametrize("gate", CLASSES, ids=lambda gate: gate.__name__)
def test_every_option_stands_in_the_signature_and_the_docstring(gate):
    section = inspect.cleandoc(gate.__doc__).partition("Args:\n")[2].partition("\n\n")[0]
    described = re.findall(r"^    (\w+): ", section, re.MULTILINE)
    assert sorted(described) == sorted(set(inspect.signature(gate).parameters) - {"unknown"})
    assert "**options" not in section


@pytest.mark.parametrize("gate", GATES.values(), ids=lambda gate: gate.__name__)
def test_defaults_in_the_signature_are_those_of_the_gate(gate):
    bare = gate()
    for name, option in inspect.signature(gate).parameters.items():
        if name not in ("max_period", "rate") or option.default is not None:
            assert getattr(bare, name) == option.default


@pytest.mark.parametrize("gate", GATES.values(), ids=lambda gate: gate.__name__)
def test_a_misspelled_option_is_named_with_the_right_one(gate):
    message = f"{gate.__name__} has no option 'granularty'; did you mean 'granularity'?"
    with pytest.raises(TypeError, match=re.escape(message)):
        gate(granularty="unit")


def test_options_of_ones_own_gate_are_known_too():
    class Plain(surnn.Gate):
        def preactivation(self, t, x, memory):
            return torch.ones(*t.shape, 1), memory

    class Weekday(Plain):
        """Opens on a day of the week.

        Args:
            day: from 0 to 6.
            **options: see :class:`Gate`.
        """

        def __init__(self, *, day: int = 5, **options) -> None:
            super().__init__(**options)
            self.day = day

    class Moon(surnn.Cycles):
        def __init__(self, **options) -> None:
            options.setdefault("max_period", 28 * options.pop("per_day", 1))
            super().__init__(**options)

    assert (Weekday(day=3, rate=0.2).day, Moon(per_day=24).max_period) == (3, 672)
    assert "target_rate: the update rate" in (Weekday.__doc__ or "")
    for gate, name, right in ((Plain, "rat", "rate"), (Weekday, "dya", "day")):
        with pytest.raises(TypeError, match=f"'{name}'; did you mean '{right}'"):
            gate(**{name: 1})
    with pytest.raises(TypeError, match="Moon has no option 'rate'"):
        Moon(rate=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: surnn.Rhythm(rate=1.5), "rate is a share between 0 and 1, got 1.5"),
        (lambda: surnn.Rhythm(horizon=0), "horizon must be at least 1"),
        (lambda: surnn.Rhythm(min_period=8, max_period=4), "min_period <= max_period"),
        (lambda: surnn.Rhythm(mode="hrad"), "choose hard, sampled, relaxed or soft"),
        (lambda: surnn.Spline(knots=2), "at least 4 knots"),
        (lambda: surnn.EveryN(0), "n must be at least 1"),
        (lambda: surnn.Cycles(min_period=0), "1 <= min_period <= max_period <= .* got 0 and 100"),
        (lambda: surnn.Cycles(min_period=200), "got 200 and 100"),
        (lambda: surnn.Cycles(max_period=10.5), "must be whole steps"),
        (lambda: surnn.Cycles(max_period=math.inf), "must be whole steps"),
        (lambda: surnn.InputGate(source="raw"), "'layer' or 'input'"),
        (lambda: surnn.Rhythm(granularity=5).bind(12), "do not divide hidden_size 12"),
        (lambda: surnn.Rhythm(granularity="row").bind(12), "granularity must be"),
        (lambda: as_gate("rythm"), "unknown gate 'rythm'; choose one of rhythm"),
    ],
)
def test_bad_options_say_how_to_mend(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: surnn.Rhythm(surrogate="sigmoid"), r"Surrogate\('sigmoid', slope=4.0\)"),
        (lambda: surnn.AlwaysOpen(mode="sampled"), "AlwaysOpen has no option 'mode'"),
        (lambda: surnn.AlwaysOpen(rate=0.5), "has no option 'rate'"),
        (lambda: surnn.EveryN(3, frozen=False), "has no option 'frozen'"),
        (lambda: surnn.Cycles(rate=0.1), "has no option 'rate'"),
        (lambda: surnn.FixedRandom(target_rate=0.1), "has no option 'target_rate'"),
        (lambda: surnn.Threshold(surrogate=Surrogate()), "has no option 'surrogate'"),
        (lambda: surnn.FixedRhythm(frozen=False), "has no option 'frozen'"),
        (lambda: surnn.FixedRhythm(train_frequencies=True), "has no option 'train_frequencies'"),
    ],
)
def test_options_that_mean_nothing_are_refused(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_wrong_use_says_how_to_mend():
    with pytest.raises(TypeError, match="pass an instance: Rhythm"):
        as_gate(surnn.Rhythm)
    with pytest.raises(TypeError, match="one of the names"):
        as_gate(3)
    with pytest.raises(RuntimeError, match=r"call gate = gate\.bind"):
        surnn.Rhythm()(torch.ones(1, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="sees the input"):
        surnn.InputGate().bind(12, 3, 5)(torch.ones(1, 1, dtype=torch.int64))
