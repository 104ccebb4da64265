"""``surnn.fit`` on torch data sets, and the scikit-learn estimators."""

import json

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import surnn
from surnn.cli.main import main
from surnn.config import ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.errors import ConfigError
from surnn.models.model import SequenceModel
from surnn.models.signature import Output, Values
from surnn.tasks.python_data import PythonData, series_of

BRIEF = TrainConfig(steps=2, batch=8, warmup=1, evaluate_every=2, device="cpu")
SMALL = ModelConfig(layers=1, width=16, pool="mean")


class Labelled(Dataset):
    """Sequences of different lengths around 50; class 1 is higher."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        random = torch.Generator().manual_seed(index)
        return 50 + index % 2 + torch.randn(8 + index % 3, 2, generator=random), index % 2


def test_fit_trains_in_a_run_folder_with_report_and_export(tmp_path, capsys):
    run = tmp_path / "run"
    trained = surnn.fit(SMALL, Labelled(), train=BRIEF, out=run)
    assert trained.step == 2
    assert trained.task.classes == ("0", "1")
    assert abs(trained.model.encoder.shift * -1 / trained.model.encoder.scale - 50.5).max() < 1
    assert main(["report", str(run)]) == 0
    assert main(["export", str(run), "--to", "engine"]) == 0
    assert main(["eval", str(run)]) == 2
    assert "surnn.fit(..., resume=RUN)" in capsys.readouterr().err


def test_fit_resumes_with_the_same_data_only(tmp_path):
    run = tmp_path / "run"
    surnn.fit(SMALL, Labelled(), train=BRIEF, out=run)
    longer = TrainConfig(steps=4, batch=8, warmup=1, evaluate_every=2, device="cpu")
    assert surnn.fit(None, Labelled(), train=longer, resume=run).config.train.steps == 4
    assert json.loads((run / "config.json").read_text())["train"]["steps"] == 4
    other = [(x + 1, y) for x, y in (Labelled()[n] for n in range(40))]
    even_longer = TrainConfig(steps=6, batch=8, warmup=1, evaluate_every=2, device="cpu")
    with pytest.raises(ConfigError, match="not those that"):
        surnn.fit(None, other, train=even_longer, resume=run)


def test_another_set_for_validation_is_used_alone(tmp_path):
    x, y = torch.randn(20, 6, 1), torch.arange(20) % 2
    valid = TensorDataset(x[:4] + 1, y[:4])
    trained = surnn.fit(SMALL, TensorDataset(x, y), valid, train=BRIEF, out=tmp_path / "run")
    sizes = json.loads((tmp_path / "run/sequences.json").read_text())["sequences"]
    assert sizes == {"train": 20, "valid": 4, "test": 0}
    assert trained.config.task.goal == "classify"


def test_a_model_is_trained_in_place(tmp_path):
    shape = Values(2), Output(2, "sequence")
    model = SequenceModel(SMALL, RhythmConfig(rate=0.5, horizon=10), *shape, steps=10)
    before = model.head.weight.clone()
    trained = surnn.fit(model, Labelled(), train=BRIEF, out=tmp_path / "run")
    assert not torch.equal(model.head.weight, before)
    assert torch.equal(model.head.weight, trained.model.head.weight)
    assert (model.head.weight - before).abs().max() < 0.1  # it started with its own weights
    wrong = SequenceModel(SMALL, RhythmConfig(rate=0.5), Values(3), shape[1], steps=10)
    with pytest.raises(ConfigError, match="and the data need"):
        surnn.fit(wrong, Labelled(), train=BRIEF)


def test_a_whole_configuration_and_a_forecast(tmp_path):
    series = [torch.randn(12, 1).cumsum(0) for _ in range(20)]
    config = RunConfig(PythonData(), ModelConfig(layers=1, width=16), RhythmConfig(rate=0.5), BRIEF)
    trained = surnn.fit(config, series, out=tmp_path / "run")
    assert trained.task.goal == "forecast"
    assert trained.model(torch.randn(1, 12, 1)).shape == (1, 12, 1)


def test_targets_at_each_time_step():
    series = series_of([(torch.zeros(n), torch.arange(n) % 2) for n in (3, 5)])
    assert series.per_step
    assert series.target[:, 0].tolist() == [0, 1, 0, 0, 1, 0, 1, 0]
    with pytest.raises(ValueError, match="expected x of shape"):
        series_of([(torch.zeros(2, 2, 2), 0)])
    with pytest.raises(ValueError, match="is empty"):
        series_of([])


# ---------------------------------------------------------------------------- scikit-learn


def data(count=40):
    random = np.random.default_rng(0)
    return random.normal(size=(count, 10)) + 3 * (np.arange(count)[:, None] % 2), np.arange(
        count
    ) % 2


def classifier(**options):
    pytest.importorskip("sklearn")
    small = {"width": 16, "layers": 1, "steps": 20, "batch": 8, "device": "cpu"}
    return surnn.SuClassifier(**{**small, **options})


@pytest.mark.parametrize("missing", [0, 3])
def test_some_items_without_a_target_are_refused(missing):
    """Without the first target there would be a forecast, without another a class None."""
    items = [(torch.zeros(4), None if number == missing else number % 2) for number in range(6)]
    with pytest.raises(ValueError, match=f"item {missing} has no target"):
        series_of(items)


def test_the_classifier_in_a_grid_search_and_a_pipeline():
    model = classifier()
    from sklearn.model_selection import GridSearchCV  # noqa: PLC0415 (optional)
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    x, y = data()
    labels = np.array(["no", "yes"])[y]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), model), {"suclassifier__rate": [0.3, 0.6]}, cv=2
    )
    search.fit(x, labels)
    assert search.best_score_ > 0.9
    assert set(search.predict(x)) == {"no", "yes"}
    assert search.best_params_["suclassifier__rate"] in (0.3, 0.6)


def test_lists_of_different_lengths_and_probabilities():
    x, y = data()
    ragged = [row[: 6 + n % 4, None] for n, row in enumerate(x)]
    model = classifier().fit(ragged, y)
    shares = model.predict_proba(ragged)
    assert shares.shape == (40, 2)
    assert np.allclose(shares.sum(1), 1)
    one = model.predict_proba(ragged[:1])
    assert np.allclose(one, shares[:1], atol=1e-5)  # padding has no effect


def test_baselines_have_no_gates():
    x, y = data()
    assert classifier(kind="gru", steps=2).fit(x, y).config_.model.kind == "gru"


def test_the_regressor_predicts_in_raw_units():
    pytest.importorskip("sklearn")
    x, _ = data()
    target = 1000 + 10 * x.mean(1)
    model = surnn.SuRegressor(width=16, layers=1, steps=60, batch=8, device="cpu").fit(x, target)
    assert model.score(x, target) > 0.5
    assert model.predict(x).shape == (40,)
    both = surnn.SuRegressor(width=16, layers=1, steps=2, batch=8, device="cpu")
    assert both.fit(x, np.stack((target, target), 1)).predict(x).shape == (40, 2)
