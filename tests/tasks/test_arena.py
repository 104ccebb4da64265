"""ListOps and Pathfinder: against evaluators of their own."""

from random import Random

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import sliding_window_view

from helpers.generated import CPU, get
from helpers.listops import work_out
from helpers.tiny_sets import in_stored_order
from surnn.tasks import listops_trees
from surnn.tasks.listops import ListOps
from surnn.tasks.listops_trees import expressions, grow, lengths
from surnn.tasks.pathfinder import Pathfinder
from surnn.tasks.pathfinder_draw import (
    ANGLE,
    DEGREES,
    LENGTH,
    LINES,
    MARKER,
    REACH,
    SIDE,
    TURNS,
    shrink,
)
from surnn.tasks.pathfinder_snakes import (
    ADVANCE,
    CONTRAST,
    TO_PIVOT,
    TURN_WEIGHTS,
    Scene,
    images,
    render,
    scenes,
)

# ---------------------------------------------------------------- listops


def test_listops_answers_are_right():
    made = expressions(400, seed=7)
    offsets, depths, operators = made["offsets"], [], set()
    for n in range(400):
        tokens = made["tokens"][offsets[n] : offsets[n + 1]].tolist()
        value, end, depth = work_out(tokens)
        assert tokens[end:] == [2]
        assert value == made["labels"][n]
        assert 500 < end < 2000
        depths.append(depth)
        operators |= set(tokens)
    assert max(depths) == 10
    assert operators == set(range(2, 18))


def tree_by_tree(random: Random, depth: int = 1) -> tuple[int, int]:
    """Value and length of a random expression, by the words of the definition."""
    if depth == 10 or random.random() >= 0.25:
        return random.randrange(10), 1
    parts = [tree_by_tree(random, depth + 1) for _ in range(random.randint(2, 10))]
    values = sorted(value for value, _ in parts)
    middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) // 2
    value = random.choice([values[0], values[-1], middle, sum(values) % 10])
    return value, 2 + sum(length for _, length in parts)


def test_listops_is_distributed_as_its_definition_says():
    random, trees = Random(1), 8000
    drawn = [tree_by_tree(random) for _ in range(trees)]
    defined = [(value, length) for value, length in drawn if 500 < length < 2000]
    values, length = np.array(defined).T
    made = expressions(4000, seed=1)
    found = np.diff(made["offsets"]) - 1
    assert len(defined) / trees == pytest.approx(0.082, abs=0.01)
    error = length.std() / len(length) ** 0.5
    assert found.mean() == pytest.approx(length.mean(), abs=3 * error)
    assert found.std() == pytest.approx(length.std(), abs=3 * error)
    shares = [np.bincount(v, minlength=10) / len(v) for v in (values, made["labels"])]
    assert abs(shares[0] - shares[1]).max() < 0.05


def test_listops_has_the_published_statistics():
    sizes = lengths(grow(np.random.default_rng(0), 50_000))[0]
    assert ((sizes > 500) & (sizes < 2000)).mean() == pytest.approx(0.082, abs=0.005)
    made = expressions(4000, seed=1)
    length = np.diff(made["offsets"]) - 1
    assert length.min() == 501
    assert length.max() >= 1990
    assert length.max() < 2000
    assert length.mean() == pytest.approx(1036, abs=25)
    assert np.percentile(length, [5, 95]) == pytest.approx([540, 1800], rel=0.03)
    shares = np.bincount(made["labels"], minlength=10) / 4000
    assert shares[[0, 9]] == pytest.approx([0.168, 0.168], abs=0.025)
    assert (abs(shares[1:9] - 0.083) < 0.025).all()
    rows = {bytes(p) for p in np.split(made["tokens"], made["offsets"][1:-1])}
    assert len(rows) == 4000


def test_expressions_that_come_twice_are_kept_once(monkeypatch):
    one, other = (
        listops_trees.some_expressions(np.random.default_rng(seed), 501, 1999) for seed in (0, 1)
    )
    both = (
        np.concatenate([one[0], other[0]]),
        np.concatenate([one[1], one[1][-1] + other[1][1:]]),
        np.concatenate([one[2], other[2]]),
    )
    chunks = iter([one, both])
    monkeypatch.setattr(listops_trees, "some_expressions", lambda *_: next(chunks))
    labels = expressions(len(one[2]) + 5, seed=0)["labels"]
    assert labels.tolist() == [*one[2], *other[2][:5]]


def test_expressions_may_be_short():
    made = expressions(500, seed=0, shortest=4, longest=12)
    length = np.diff(made["offsets"]) - 1
    assert set(length.tolist()) == set(range(4, 13))
    for n, tokens in enumerate(np.split(made["tokens"], made["offsets"][1:-1])):
        assert work_out(tokens.tolist())[0] == made["labels"][n]
    with pytest.raises(ValueError, match="no new expression of 1 to 1 tokens after the first 10"):
        expressions(11, seed=0, shortest=1, longest=1)


def test_more_expressions_begin_with_the_fewer():
    few, many = expressions(50, seed=3), expressions(80, seed=3)
    assert np.array_equal(many["labels"][:50], few["labels"])
    assert np.array_equal(many["tokens"][: len(few["tokens"])], few["tokens"])


def test_listops_batches_are_padded_to_their_longest(tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    task = ListOps(train=30, valid=10, test=10)
    task.prepare(CPU)
    x, target, lengths, *_ = get(task, size=6)
    assert lengths is not None
    assert lengths.max() == x.shape[1]
    for row, length in enumerate(lengths.tolist()):
        assert x[row, length - 1] == 2
        assert not x[row, length:].any()
        assert work_out(x[row].tolist())[0] == target[row]


def test_listops_batches_can_have_one_length(tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    options = {"train": 30, "valid": 10, "test": 10, "shortest": 3, "longest": 40}
    found = []
    for task in (ListOps(**options), ListOps(**options, one_length=True)):
        task.prepare(CPU)
        found.append(get(task, size=6))
    short, whole = found
    assert whole.x.shape == (6, 41)
    assert short.x.shape[1] < 41
    assert (whole.x[:, : short.x.shape[1]] == short.x).all()
    assert not whole.x[:, short.x.shape[1] :].any()
    assert (whole.lengths == short.lengths).all()


def test_progress_is_told():
    told = []
    expressions(3000, seed=0, progress=lambda done, total: told.append((done, total)))
    images(200, seed=0, progress=lambda done, total: told.append((done, total)))
    assert (3000, 3000) in told
    assert told[-1] == (200, 200)
    assert told[0][0] < 3000


# ---------------------------------------------------------------- pathfinder


@pytest.fixture(scope="module")
def scene() -> Scene:
    return scenes(np.random.default_rng(0))


def segments(points: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Ends [..., 2, 2] of paddles: first ones go ahead from their point, others come back."""
    angle = ANGLE[directions]
    ahead = np.where(directions < DEGREES, LENGTH, -LENGTH)[..., None]
    other = points + ahead * np.stack([np.sin(angle), np.cos(angle)], -1)
    return np.stack([points.astype(float), other], -2)


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Least distances [..., A, B] of segments [..., A, 2, 2] and [..., B, 2, 2], by many points."""
    share = np.linspace(0, 1, 9)[:, None]
    first, second = (s[..., :1, :] * (1 - share) + s[..., 1:, :] * share for s in (a, b))
    apart = first[..., :, None, :, None, :] - second[..., None, :, None, :, :]
    return np.sqrt((apart**2).sum(-1)).min((-1, -2))


def test_the_label_says_whether_both_markers_are_on_one_snake(scene):
    begins = (scene.markers[:, None, 0] == scene.points[:, :, 0]).all(-1)
    ends = (scene.markers[:, None, 1] == scene.points[:, :, -1]).all(-1)
    assert (begins.sum(1) == 1).all()
    assert (ends.sum(1) == 1).all()
    assert np.array_equal((begins == ends).all(1), scene.labels == 1)


def first_of(scene: Scene, count: int) -> Scene:
    return Scene(*(part[:count] for part in scene))


def ends_of_traces(scene: Scene, image: int) -> set[tuple[int, int]]:
    """Where one comes to from the first marker by way of all further paddles of a snake.

    All paddles of the image in one heap, distractors among them; wherever several could be the
    next by the rule of growth (a pivot straight ahead, a head about it), all are followed.
    """
    there = scene.present[image]
    points = [scene.points[image], scene.distractor_points[image][there]]
    directions = [scene.directions[image], scene.distractor_directions[image][there]]
    points = np.concatenate([p.reshape(-1, 2) for p in points])
    directions = np.concatenate([d.reshape(-1) for d in directions])
    first = directions < DEGREES  # of its snake, so after no other
    pivots = points - TURNS[np.where(first, 0, directions - DEGREES)]
    pivots[first] = -99
    begins = (points == scene.markers[image, 0]).all(1) & first
    traces = {(int(n), tuple(points[n] + TO_PIVOT[directions[n]])) for n in np.flatnonzero(begins)}
    for _ in range(scene.points.shape[2] - 1):
        ahead = [(n, pivot + ADVANCE[directions[n]]) for n, pivot in traces]
        traces = {
            (int(m), tuple(pivot)) for n, pivot in ahead
            for m in np.flatnonzero((pivots == pivot).all(1))
        }  # fmt: skip
    return {tuple(points[n]) for n, _ in traces}


@pytest.mark.parametrize("paddles", [2, 5, 14])
def test_labels_are_what_tracing_the_scenes_paddles_finds(scene, paddles):
    """From one marker along the paddles, as the scene lists them, to the other."""
    if paddles != 14:
        scene = first_of(scenes(np.random.default_rng(0), paddles), 150)
        assert scene.points.shape[2] == paddles
        assert scene.distractor_points.shape[2] == {2: 1, 5: 1}[paddles]
    for image, label in enumerate(scene.labels):
        ends = ends_of_traces(scene, image)
        assert ends  # the snake is whole
        assert (tuple(scene.markers[image, 1]) in ends) == (label == 1)


def seen_in(image: np.ndarray) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Places of markers, and where which paddles may be [32, 32, directions]: wherever no pixel is
    darker than it would be under one."""
    around, window = (
        sliding_window_view(np.pad(a, REACH), (SIDE, SIDE)).reshape(32, 32, -1)
        for a in (image, np.ones_like(image))
    )
    markers = np.argwhere((around >= MARKER * window).all(-1))
    paddles = np.minimum(LINES * CONTRAST, 255).astype(np.uint8)
    fits = (around[:, :, None] >= paddles * window[:, :, None]).all(-1)
    return [tuple(marker) for marker in markers.tolist()], fits


def ends_in_pixels(fits: np.ndarray, begin: tuple[int, int]) -> set[tuple[int, int]]:
    """Where one comes to from ``begin`` by way of 13 further paddles, any that may be there."""
    first = np.flatnonzero(fits[begin][:DEGREES])
    traces = {(tuple(begin + TO_PIVOT[direction]), direction) for direction in first}
    for _ in range(13):
        ahead = [(pivot + ADVANCE[direction], direction) for pivot, direction in traces]
        traces = {
            (tuple(pivot), DEGREES + turn)
            for pivot, direction in ahead
            for turn in np.flatnonzero(TURN_WEIGHTS[direction])
            if (head := pivot + TURNS[turn]).min() >= 0
            and head.max() < 32
            and fits[(*head, DEGREES + turn)]
        }
    return {tuple(pivot + TURNS[direction - DEGREES]) for pivot, direction in traces}


def test_labels_are_what_tracing_the_pixels_finds(scene):
    """The image alone: two circles, and whether dashes lead from one to the other."""
    for image, label in zip(render(scene)[:40], scene.labels, strict=False):
        (one, other), fits = seen_in(image)
        joined = other in ends_in_pixels(fits, one) or one in ends_in_pixels(fits, other)
        assert joined == (label == 1)


def test_snakes_are_whole_and_clear_of_one_another(scene):
    assert scene.points.shape[1:] == (2, 14, 2)
    assert len(scene.points) > 80
    first, second = (segments(scene.points[:, s], scene.directions[:, s]) for s in (0, 1))
    assert distance(first, second).min() > 0.5
    for snake in (first, second):
        own = distance(snake, snake)
        assert np.diagonal(own, 1, -2, -1).max() < 5
        apart = abs(np.subtract.outer(np.arange(14), np.arange(14))) > 1
        assert own[:, apart].min() > 0.5
        assert snake.min() >= 1
        assert snake.max() <= 30
    seeds = scene.points[:, :, 0]
    assert seeds[:, 0].min() >= 14
    assert seeds[:, 0].max() <= 17
    apart = np.linalg.norm(seeds[:, 0] - seeds[:, 1], axis=1)
    assert abs(apart - 7).max() <= 0.75


def test_distractors_are_clear_of_the_snakes(scene):
    assert scene.present.mean() > 0.8
    long = segments(scene.points, scene.directions).reshape(-1, 28, 2, 2)
    short = segments(scene.distractor_points, scene.distractor_directions).reshape(-1, 20, 2, 2)
    there = np.repeat(scene.present, 4, axis=1)
    assert distance(long, short).transpose(0, 2, 1)[there].min() > 0.25


def test_images_show_what_the_scene_says(scene):
    shown = render(scene)
    assert shown.dtype == np.uint8
    assert shown.shape[1:] == (32, 32)
    every = np.arange(len(shown))
    for marker in (0, 1):
        y, x = scene.markers[:, marker].T
        assert (shown[every, y, x] == 255).all()
    for snake in range(2):
        for paddle in range(14):
            y, x = scene.points[:, snake, paddle].T
            assert (shown[every, y, x] > 50).all()
    lit = segments(scene.points, scene.directions).reshape(len(shown), -1, 2)
    lonely = scene._replace(present=np.zeros_like(scene.present))
    for n, image in enumerate(render(lonely)[:30]):
        pixels = np.argwhere(image > 60)
        near = np.linalg.norm(pixels[:, None] - lit[n], axis=-1).min(1)
        assert near.max() < 2.3


def test_pathfinder_classes_are_balanced_and_images_differ():
    made = images(600, seed=1)
    assert made["labels"].mean() == pytest.approx(0.5, abs=0.07)
    assert len({image.tobytes() for image in made["images"]}) == 600
    assert np.array_equal(images(50, seed=1)["images"], made["images"][:50])
    brightness = made["images"].mean((1, 2))
    one, other = (brightness[made["labels"] == label].mean() for label in (0, 1))
    assert one == pytest.approx(other, rel=0.03)


def test_shrinking_is_pillows():
    pillow = pytest.importorskip("PIL.Image")
    large = (np.random.default_rng(0).random((17, 17)) > 0.7).astype(np.uint8)
    size = (9, 9)
    expected = pillow.fromarray(255 * large).resize(size, pillow.Resampling.LANCZOS)
    difference = shrink(large.astype(float), 9).astype(int) - np.asarray(expected).astype(int)
    assert abs(difference).max() <= 1


def test_pathfinder_hands_out_rows_of_pixels(tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    task = Pathfinder(images=100)
    task.prepare(CPU)
    made = images(100, seed=42)
    batch = in_stored_order(task, "valid")
    assert [task.size(s) for s in ("train", "valid", "test")] == [80, 10, 10]
    expected = torch.from_numpy(made["images"][80:90]).reshape(10, 1024, 1) / 255
    torch.testing.assert_close(batch.x, expected)
    assert batch.target.tolist() == made["labels"][80:90].tolist()


def test_shorter_snakes_are_other_data_in_a_file_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    task = Pathfinder(images=50, paddles=3)
    task.prepare(CPU)
    assert [path.name for path in tmp_path.glob("*.npz")] == ["pathfinder-50-of-3.npz"]
    expected = torch.from_numpy(images(50, seed=42, paddles=3)["images"][40:45]).reshape(5, 1024, 1)
    torch.testing.assert_close(in_stored_order(task, "valid").x, expected / 255)
    with pytest.raises(ValueError, match="paddles is 1; expected 2 to 14"):
        Pathfinder(paddles=1)
