"""State tracking: the groups, the products, and the numbers of elements."""

from itertools import permutations

import pytest
import torch

from helpers.generated import CPU, get, one_hot_logits, same
from surnn.tasks.copying import IGNORED
from surnn.tasks.state_tracking import (
    END,
    EVENT,
    NOISE,
    StateTracking,
    last_event_accuracy,
    multiplication_table,
    prefix_products,
)

SIZES = {"Z2": 2, "S3": 6, "A5": 60, "S5": 120}


@pytest.mark.parametrize(("group", "size"), SIZES.items())
def test_groups_are_groups(group, size):
    table = multiplication_table(group)
    assert table.shape == (size, size)
    everything = torch.arange(size)
    assert torch.equal(table[0], everything)  # element 0 is the identity
    assert torch.equal(table[:, 0], everything)
    for row in (*table, *table.T):  # each element has an inverse
        assert torch.equal(row.sort().values, everything)
    a, b, c = torch.randint(size, (3, 500), generator=torch.Generator().manual_seed(0))
    assert torch.equal(table[table[a, b], c], table[a, table[b, c]])
    assert torch.equal(table, table.T) == (group == "Z2")  # only Z2 commutes


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 33])
def test_prefix_products_equal_a_loop_over_permutations(count):
    elements = torch.randint(6, (9, count), generator=torch.Generator().manual_seed(1))
    found = prefix_products(elements, multiplication_table("S3"))
    points = list(permutations(range(3)))
    for row, products in zip(elements.tolist(), found.tolist(), strict=True):
        so_far = (0, 1, 2)
        for element, product in zip(row, products, strict=True):
            so_far = tuple(so_far[i] for i in points[element])
            assert points[product] == so_far


@pytest.mark.parametrize("group", SIZES)
def test_targets_are_the_products_at_elements_and_at_the_end(group):
    task = StateTracking(group=group, length=50, events=6, noise=3)
    batch = get(task, "valid", size=32)
    table = multiplication_table(group)
    n = len(table)
    for x, target, kinds in zip(batch.x, batch.target, batch.kinds, strict=True):
        where = (x < n).nonzero().flatten()
        assert len(where) == 6
        assert torch.equal(kinds == EVENT, x < n)
        assert ((kinds == NOISE) == ((x >= n) & (x < n + 3))).all()
        assert (kinds[-1], x[-1]) == (END, n + 3)
        product = torch.tensor(0)
        for place in where:
            product = table[product, x[place]]
            assert target[place] == product
        assert target[-1] == product
        assert (target != IGNORED).sum() == 7


def test_the_metric_is_the_end_and_details_are_the_elements():
    task = StateTracking(length=40, events=4)
    batch = get(task, "test", size=8)
    right = one_hot_logits(batch.target, 6)
    assert task.score(right, batch).value == 1
    assert task.details(right, batch)["accuracy at events"].value == 1
    assert task.loss(right, batch) < 1e-6
    late = right.clone()
    late[:, -1] = -late[:, -1]
    assert task.score(late, batch).value == 0
    assert task.details(late, batch)["accuracy at events"].value == 1
    early = right.clone()
    early[:, :-1] = -early[:, :-1]
    assert task.score(early, batch).value == 1
    assert task.details(early, batch)["accuracy at events"].value == 0


def test_a_model_without_memory_has_the_accuracy_of_the_theory():
    """It answers with the current element."""
    task = StateTracking(group="S3", length=30, events=5)
    batch = task.batch("valid", 0, 1024, 0, CPU)
    answers = one_hot_logits(batch.x.clamp(max=5), 6)
    found = task.details(answers, batch)["accuracy at events"].value
    assert found == pytest.approx(last_event_accuracy("S3", 5), abs=0.02)
    assert last_event_accuracy("Z2", 1) == 1


def test_elements_grow_in_training_and_nowhere_else():
    task = StateTracking(length=60, events=16, growing=9)
    full = StateTracking(length=60, events=16)
    counts = [int((get(task, number=k).x < 6).sum(1).unique()) for k in range(10)]
    assert counts == [2, 2, 2, 4, 4, 4, 8, 8, 8, 16]
    assert same(get(task, number=9), get(full, number=9))
    assert same(get(task, "valid"), get(full, "valid"))
    assert (task.easy_batches, task.as_tested()) == (9, full)


def test_a_ladder_begins_with_short_sequences_of_all_elements():
    task = StateTracking(length=60, events=16, ladder=((2, 7, 17), (3, 5, 40)))
    batches = [get(task, number=k) for k in range(6)]
    size = len(batches[-1].x)
    assert [tuple(batch.x.shape) for batch in batches] == [(7, 17)] * 2 + [(5, 40)] * 3 + [
        (size, 60)
    ]
    assert size not in (5, 7)
    assert all((batch.kinds == EVENT).sum(1).eq(16).all() for batch in batches)
    assert not (batches[0].kinds == NOISE).any()
    assert (task.easy_batches, task.as_tested()) == (5, StateTracking(length=60, events=16))
    assert get(task, "valid").x.shape == (size, 60)


def test_density_sets_the_number_of_elements():
    task = StateTracking(length=200, density=0.05)
    assert task.event_count == 10
    assert ((get(task).x < 6).sum(1) == 10).all()


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"group": "S4"}, "group"),
        ({"length": 16, "events": 16}, "expected at least 17"),
        ({"events": 0}, "expected at least 1"),
        ({"density": 1.0}, "density is 1.0"),
        ({"length": 20, "density": 0.01}, "raise events, density or length"),
        ({"noise": 0}, "noise is 0"),
        ({"growing": -1}, "growing is -1"),
        ({"growing": 5, "events": 2}, "or growing 0"),
        ({"events": 4, "ladder": ((1, 2, 4),)}, "time steps from 5 to 8192"),
        ({"length": 50, "ladder": ((1, 2, 51),)}, "time steps from 17 to 50"),
        ({"ladder": ((0, 2, 20),)}, "a number of batches"),
        ({"growing": 5, "ladder": ((1, 2, 20),)}, "leave one out"),
    ],
)
def test_wrong_options_are_refused(options, fragment):
    with pytest.raises(ValueError, match=fragment):
        StateTracking(**options)
