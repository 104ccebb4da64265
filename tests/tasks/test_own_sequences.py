"""``surnn train sequences``: goals, splits without leaks, metrics, scaling, and the whole way."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import surnn
from helpers.tiny_sets import CPU
from surnn.analysis.inputs import why_not_prepared
from surnn.cli.main import main
from surnn.config import ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.tasks.base import Batch
from surnn.tasks.batching import get_data
from surnn.tasks.sequences import Sequences
from surnn.train.trainer import Trainer

BRIEF = TrainConfig(steps=2, batch=8, warmup=1, evaluate_every=2, device="cpu")
SMALL = ModelConfig(layers=1, width=16, pool="mean")
FLAGS = [
    "--train.steps", "2", "--train.batch", "8", "--train.warmup", "1", "--train.device", "cpu",
    "--model.width", "16", "--model.heads", "2", "--model.layers", "1",
]  # fmt: skip


def save(path: Path, **arrays) -> str:
    np.savez(path, **arrays)
    return str(path)


def labelled(count=40, steps=12, features=2, classes=2, seed=0):
    """Sequences around (100, 200, ...) whose mean shifts with the class."""
    random = np.random.default_rng(seed)
    y = np.arange(count) % classes
    x = random.normal(size=(count, steps, features)) + y[:, None, None]
    return (x + 100 * np.arange(1, features + 1)).astype(np.float32), y


def ready(path, **options) -> Sequences:
    task = Sequences(path=str(path), **options).complete()
    task.prepare(CPU)
    return task


@pytest.fixture
def arrays(tmp_path):
    x, y = labelled()
    return save(tmp_path / "d.npz", x=x, y=y)


# ---------------------------------------------------------------------------- goals


def test_the_goal_follows_from_the_targets(tmp_path):
    x, y = labelled()
    steps = np.zeros(x.shape[:2])
    steps[:, 3] = 1
    random = np.random.default_rng(0)
    for target, goal, metric, output in (
        (y, "classify", "accuracy", (2, "sequence")),
        (random.normal(size=40), "regress", "R2", (1, "sequence")),
        (steps, "classify_steps", "F1", (2, "step")),
        (random.normal(size=(*x.shape[:2], 3)), "regress_steps", "R2", (3, "step")),
        (None, "forecast", "R2", (2, "step")),
    ):
        extra = {} if target is None else {"y": target}
        task = ready(save(tmp_path / f"{goal}.npz", x=x, **extra))
        assert (task.goal, task.metric) == (goal, metric)
        assert (task.output.size, task.output.per) == output
        assert task.complete() is task


def test_what_cannot_be_predicted_is_explained(tmp_path, arrays):
    with pytest.raises(ValueError, match="which data"):
        Sequences().complete()
    with pytest.raises(ValueError, match="each sequence has one target"):
        Sequences(path=arrays, goal="classify_steps").complete()
    x, _ = labelled()
    with pytest.raises(ValueError, match="have no target"):
        Sequences(path=save(tmp_path / "x.npz", x=x), goal="classify").complete()
    with pytest.raises(ValueError, match="at least two classes"):
        Sequences(path=save(tmp_path / "o.npz", x=x, y=np.ones(40))).complete()
    with pytest.raises(ValueError, match="add up to 1"):
        Sequences(shares=(0.5, 0.1, 0.1))


def test_a_forecast_asks_for_later_inputs_of_the_same_part(tmp_path):
    line = np.arange(60, dtype=np.float32)[None, :, None]
    task = ready(save(tmp_path / "l.npz", x=line), ahead=3, window=10)
    ends = {"train": 42, "valid": 51, "test": 60}  # one stream is divided in time
    for split, end in ends.items():
        batch = task.batch(split, 0, task.size(split), 0, CPU)
        inside = ~batch.target.isnan()
        assert (batch.target - batch.x)[inside].unique().tolist() == [3]
        assert batch.target[inside].max() == end - 1
        assert batch.x[inside].min() == {"train": 0, "valid": 42, "test": 51}[split]


# ---------------------------------------------------------------------------- splits


def parts_of(task):
    return {split: set(w.sequence.tolist()) for split, w in get_data(task).windows.items()}


def test_splits_are_disjoint_complete_and_stratified(arrays):
    task = ready(arrays)
    parts = parts_of(task)
    assert sum(map(len, parts.values())) == len(set.union(*parts.values())) == 40
    assert [len(part) for part in parts.values()] == [28, 6, 6]
    labels = get_data(task).target
    for part in parts.values():
        assert labels[list(part)].mean() == 0.5
    assert parts_of(ready(arrays, split_seed=1)) != parts


def test_a_group_is_in_one_part_only(tmp_path):
    x, y = labelled(60)
    who = np.arange(60) // 5
    path = save(tmp_path / "g.npz", x=x, y=y, who=who)
    parts = parts_of(ready(path, group="who"))
    groups = [set(who[list(part)].tolist()) for part in parts.values()]
    assert all(groups)
    assert sum(map(len, groups)) == len(set.union(*groups)) == 12


def test_few_groups_are_not_divided_in_time(tmp_path):
    """Streams with a target at each step: without groups, time divides fewer than ten."""
    x, _ = labelled(6)
    path = save(tmp_path / "s.npz", x=x, y=np.arange(72).reshape(6, 12) % 2, who=np.arange(6))
    assert all(len(part) == 6 for part in parts_of(ready(path)).values())
    for options in ({"group": "who"}, {"split": "random"}):
        parts = parts_of(ready(path, **options))
        assert all(parts.values())
        assert sum(map(len, parts.values())) == len(set.union(*parts.values())) == 6


def test_a_part_without_one_of_the_classes_is_named(tmp_path):
    x, _ = labelled(4, steps=40)
    early = np.zeros((4, 40), int)
    early[:, :5] = 1  # the end of the streams, for the test, has none
    notes = list(ready(save(tmp_path / "e.npz", x=x, y=early)).data_notes())
    assert [note.split(":")[0] for note in notes] == [
        "the valid part has no example of '1'",
        "the test part has no example of '1'",
    ]
    always = np.arange(160).reshape(4, 40) % 2
    task = ready(save(tmp_path / "a.npz", x=x, y=always), shares=(0.8, 0.2, 0))
    assert list(task.data_notes()) == []  # an empty part has no metric
    y = np.array([0, 1] * 10)
    both = save(tmp_path / "b.npz", x=labelled(20)[0], y=y)
    assert list(ready(both).data_notes()) == []
    only = save(tmp_path / "o.npz", x=labelled(5, seed=2)[0], y=np.zeros(5, int))
    assert ["test" in note for note in ready(both, test_path=only).data_notes()] == [True]


def test_training_begins_with_a_note_on_absent_classes(tmp_path, capsys):
    early = np.repeat([[1] * 5 + [0] * 35], 4, axis=0)
    path = save(tmp_path / "e.npz", x=labelled(4, steps=40)[0], y=early)
    main(["train", "sequences", "--task.path", path, "--out", str(tmp_path / "run"), *FLAGS,
          "--train.batch", "2"])  # fmt: skip
    said = capsys.readouterr().out
    assert "the test part has no example of '1'" in said.partition("step 2/2")[0]


def test_identical_sequences_are_in_one_part_only(tmp_path):
    x, y = labelled(20)
    path = save(tmp_path / "t.npz", x=np.concatenate((x, x)), y=np.concatenate((y, y)))
    for part in parts_of(ready(path)).values():
        assert {(row + 20) % 40 for row in part} == part


def test_other_files_for_validation_and_test(tmp_path, arrays):
    x, y = labelled(10, seed=1)
    test = save(tmp_path / "test.npz", x=x, y=y)
    parts = parts_of(ready(arrays, test_path=test))
    assert parts["test"] == set(range(40, 50))
    assert len(parts["train"]) + len(parts["valid"]) == 40
    parts = parts_of(ready(arrays, valid_path=test, shares=(0.8, 0.1, 0.1)))
    assert parts["valid"] == set(range(40, 50))


def test_too_few_groups_for_all_parts(tmp_path):
    x, y = labelled(20)
    path = save(tmp_path / "g.npz", x=x, y=y, who=np.arange(20) % 2)
    with pytest.raises(ValueError, match="2 sequences or groups are too few for 3"):
        ready(path, group="who")


def test_one_class_and_identical_sequences_are_explained(tmp_path):
    x, y = labelled(20)
    with pytest.raises(ValueError, match="all targets are '3'; expected at least two"):
        ready(save(tmp_path / "one.npz", x=x, y=np.full(20, 3)))
    x[:] = 1
    with pytest.raises(ValueError, match="only 1 of 20 sequences differ, too few for 3 parts"):
        ready(save(tmp_path / "same.npz", x=x, y=y))


def test_training_needs_sequences_for_validation_and_room_for_the_forecast(tmp_path, arrays):
    with pytest.raises(ValueError, match=r"the valid part has no sequences; .*--task.valid-path"):
        ready(arrays, shares=(1, 0, 0))
    x, _ = labelled(20, 6)
    with pytest.raises(ValueError, match=r"9 time steps ahead needs .* 11; the longest has 6"):
        ready(save(tmp_path / "x.npz", x=x), ahead=9)


# ---------------------------------------------------------------------------- scaling, missing


def test_the_scale_is_that_of_the_training_part(arrays):
    task = ready(arrays)
    data = get_data(task)
    x = np.load(arrays)["x"]
    rows = sorted(parts_of(task)["train"])
    mean, std = data.input_scale()
    assert np.allclose(mean, x[rows].mean((0, 1)))
    assert np.allclose(std, x[rows].std((0, 1)))
    assert not np.allclose(mean, x.mean((0, 1)), rtol=1e-6)


def test_missing_values_are_filled_as_asked(tmp_path):
    x, y = labelled(20, 6, 1)
    x[3, 2] = x[4, 0] = np.nan
    path = save(tmp_path / "m.npz", x=x, y=y)
    with pytest.raises(ValueError, match=r"'0' is missing at index 2 of .*\[3\] \(2 missing"):
        ready(path)
    values = get_data(ready(path, missing="previous")).series.values.reshape(20, 6)
    assert values[3, 2] == x[3, 1, 0]
    filled = get_data(ready(path, missing="mean"))
    mean = filled.input_scale()[0]
    assert abs(filled.series.values.reshape(20, 6)[3, 2] - mean[0]) < 1e-2
    assert values[4, 0] == filled.series.values.reshape(20, 6)[4, 0]  # nothing was before it


def test_batches_are_padded_and_lengths_differ(tmp_path):
    x, y = labelled(20, 6, 1)
    x[::2, 4:] = np.nan
    task = ready(save(tmp_path / "p.npz", x=x, y=y))
    batch = task.batch("train", 0, 14, 0, CPU)
    assert sorted(set(batch.lengths.tolist())) == [4, 6]
    assert (batch.x[batch.lengths == 4, 4:] == 0).all()
    assert task.steps == 6


# ---------------------------------------------------------------------------- metrics


def scores(task, prediction, target):
    batch = Batch(torch.zeros(len(target), 1, 1), torch.tensor(target))
    return task.score(torch.tensor(prediction), batch).value


def test_rare_classes_are_weighted_and_balanced():
    task = Sequences(goal="classify", classes=("a", "b"), balance=(0.9, 0.1)).with_metric()
    assert (task.weights, task.metric, task.chance) == ("balanced", "balanced accuracy", 0.5)
    assert task.class_weights(CPU).tolist() == pytest.approx([1, 9])
    always_a = [[1.0, 0.0]] * 10
    assert scores(task, always_a, [0] * 9 + [1]) == pytest.approx(0.5)


def test_the_f1_of_events_ignores_the_background():
    options = {"goal": "classify_steps", "classes": ("no", "yes"), "balance": (0.8, 0.2)}
    task = Sequences(**options).with_metric()
    one_hot = torch.eye(2)
    batch = Batch(torch.zeros(1, 5, 1), torch.tensor([[0, 1, 1, 0, -100]]))
    answers = one_hot[torch.tensor([[0, 1, 0, 1, 1]])]
    assert task.score(answers, batch).value == pytest.approx(2 * 1 / (2 + 2))
    always = one_hot[torch.ones(1, 5, dtype=torch.int64)]
    whole = batch._replace(target=torch.tensor([[0, 0, 0, 0, 1]]))
    assert task.score(always, whole).value == pytest.approx(task.chance)


def test_r2_is_0_for_the_mean_and_1_for_the_truth():
    options = {"outputs": ("v",), "output_mean": (3.0,), "output_std": (2.0,)}
    task = Sequences(goal="regress", **options).with_metric()
    assert scores(task, [[3.0], [3.0]], [[1.0], [5.0]]) == 0 == task.chance
    assert scores(task, [[1.0], [5.0]], [[1.0], [5.0]]) == 1


def test_the_loss_of_parts_adds_up(tmp_path):
    x, y = labelled(40)
    y[:30] = 0
    task = ready(save(tmp_path / "u.npz", x=x, y=y))
    batch = task.batch("train", 0, 20, 0, CPU)
    prediction = torch.randn(20, 2)
    halves = [Batch(batch.x[s], batch.target[s]) for s in (slice(0, 7), slice(7, 20))]
    losses = [
        task.loss(p, half) * task.weight(half)
        for p, half in zip((prediction[:7], prediction[7:]), halves, strict=True)
    ]
    torch.testing.assert_close(sum(losses) / task.weight(batch), task.loss(prediction, batch))


# ---------------------------------------------------------------------------- the whole way


def test_the_model_and_its_engine_take_raw_values(tmp_path, arrays):
    task = Sequences(path=arrays)
    trainer = Trainer(RunConfig(task, SMALL, RhythmConfig(rate=0.5), BRIEF))
    trainer.fit()
    model = trainer.model.eval()
    mean, std = trainer.task.input_scale()
    x = torch.from_numpy(np.load(arrays)["x"][:1])
    scaled = (x - torch.tensor(mean, dtype=torch.float32)) / torch.tensor(std, dtype=torch.float32)
    torch.testing.assert_close(model.encoder(x), model.encoder.inner(scaled), atol=1e-4, rtol=1e-4)
    engine = surnn.Engine(surnn.export.to_engine(model, tmp_path / "m.surnn"))
    with torch.no_grad():
        expected = model(x)[0]
    actual = engine.stream().run(x[0].numpy())[-1]
    torch.testing.assert_close(torch.from_numpy(actual), expected, atol=1e-4, rtol=1e-4)


def test_predicted_numbers_are_in_raw_units(tmp_path):
    x, _ = labelled(40)
    y = 5000 + 100 * np.random.default_rng(0).normal(size=40)
    task = Sequences(path=save(tmp_path / "r.npz", x=x, y=y), goal="regress")
    trainer = Trainer(RunConfig(task, SMALL, RhythmConfig(rate=0.5), BRIEF))
    metrics = trainer.fit()
    assert metrics["RMSE"] < 1000
    model = trainer.model.eval()
    frame = x[0, :3]
    engine = surnn.Engine(surnn.export.to_engine(model, tmp_path / "m.surnn"))
    with torch.no_grad():
        expected = model(torch.from_numpy(frame)[None])[0]
    assert 4000 < expected.item() < 6000
    torch.testing.assert_close(torch.from_numpy(engine.stream().run(frame)[-1]), expected)


@pytest.mark.parametrize("block", ["residual", "stack"])
def test_scaled_models_export_whatever_the_block(tmp_path, arrays, block):
    model = ModelConfig(layers=1, width=16, block=block)
    trainer = Trainer(RunConfig(Sequences(path=arrays), model, RhythmConfig(rate=0.5), BRIEF))
    x = torch.from_numpy(np.load(arrays)["x"][0])
    engine = surnn.Engine(surnn.export.to_engine(trainer.model, tmp_path / "m.surnn"))
    with torch.no_grad():
        expected = trainer.model.eval()(x[None])[0]
    torch.testing.assert_close(
        torch.from_numpy(engine.stream().run(x.numpy())[-1]), expected, atol=1e-4, rtol=1e-4
    )


def test_from_a_table_to_a_page_and_c(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x, y = labelled(20)
    rows = [f"{n},{t},{x[n, t, 0]},{x[n, t, 1]},{'ab'[y[n]]}" for n in range(20) for t in range(12)]
    Path("d.csv").write_text("\n".join(["id,time,u,v,label", *rows]))
    assert main(["train", "sequences", "--task.path", "d.csv", *FLAGS, "--out", "run"]) == 0
    told = capsys.readouterr().out
    assert "chosen from the data" in told
    assert "--gate.rate 0.5" in told
    assert "--model.width" not in told  # it was given
    assert "chance level: accuracy 0.5" in told
    config = json.loads(Path("run/config.json").read_text())
    assert config["task"]["channels"] == ["u", "v"]
    assert config["task"]["classes"] == ["a", "b"]
    assert config["gate"]["horizon"] == 12
    assert json.loads(Path("run/sequences.json").read_text())["sequences"]["train"] == 14
    Path("d.csv").rename("moved.csv")  # neither the page nor the export needs the data
    assert main(["report", "run"]) == 0
    assert main(["export", "run", "--to", "c"]) == 0
    told = capsys.readouterr().out
    assert "scores of a, b" in told
    assert main(["eval", "run"]) == 2
    assert "no file or folder" in capsys.readouterr().err
    Path("moved.csv").rename("d.csv")
    assert main(["eval", "run", "--split", "test"]) == 0
    Path("d.csv").write_text(Path("d.csv").read_text().replace("0,0,", "0,0,9", 1))
    capsys.readouterr()
    assert main(["resume", "run", "--train.steps", "3"]) == 2
    assert "is not the data" in capsys.readouterr().err
    other = ["--task.path", "moved.csv", "--task.shares", "0", "0", "1", "--split", "test"]
    Path("d.csv").rename("moved.csv")
    assert main(["eval", "run", *other]) == 0


def test_a_run_resumes_with_the_same_split(tmp_path, arrays):
    assert (
        main(["train", "sequences", "--task.path", arrays, *FLAGS, "--out", str(tmp_path / "r")])
        == 0
    )
    before = json.loads((tmp_path / "r/config.json").read_text())["task"]
    assert main(["resume", str(tmp_path / "r"), "--train.steps", "3"]) == 0
    assert json.loads((tmp_path / "r/config.json").read_text())["task"] == before


def test_reports_do_not_show_files_that_a_foreign_run_names(tmp_path, arrays):
    """A run's task.path may name any file of the reader's machine."""
    task = Sequences(path=arrays)
    assert "name its folder with --data" in (why_not_prepared(task, None) or "")
    assert "name its folder with --data" in (why_not_prepared(task, tmp_path / "other") or "")
    assert why_not_prepared(task, tmp_path) is None
