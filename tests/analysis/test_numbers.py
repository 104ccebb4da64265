"""Gradients, trajectories, changes, curves and trade-offs against what others compute."""

import math

import numpy as np
import pytest
import torch

import surnn
from helpers.training import CONFIG, trainer
from surnn import analysis
from surnn.analysis.tradeoffs import KERNEL, multiply_adds
from surnn.config import ModelConfig, RhythmConfig
from surnn.models.baselines import MinGRU, TorchRecurrent
from surnn.models.model import SequenceModel
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunError, RunFolder
from surnn.scan import scan
from surnn.tasks.base import Output, Values
from surnn.tasks.mackey_glass import MackeyGlass

BATCH, STEPS, FEATURES, HIDDEN = 3, 12, 4, 8


def frames(dtype=torch.float64):
    return torch.randn(BATCH, STEPS, FEATURES, dtype=dtype)


# ---------------------------------------------------------------------------- gradients


def last_square(y):
    return y[:, -1].square().sum(-1).mean()


@pytest.mark.parametrize("cls", [surnn.SuRNN, surnn.SuGRU, surnn.SuLSTM])
def test_the_gradient_profile_is_autograds(cls):
    """Against a stream cut at each step: the loss's gradient by the state handed over there."""
    gate = surnn.Rhythm(rate=0.4, horizon=STEPS)
    layer = cls(FEATURES, HIDDEN, heads=2, gate=gate, batch_first=True).double()
    x = frames()
    found = analysis.gradient_profile(layer, x, last_square)
    assert found.norm.shape == (1, STEPS)
    assert found.distance[0] == STEPS - 1
    for cut in range(1, STEPS):
        with torch.no_grad():
            _, state = layer(x[:, :cut], layer.init_state(BATCH))
        state = state._replace(cell=state.cell.requires_grad_())
        y, _ = layer(x[:, cut:], state)
        (grad,) = torch.autograd.grad(last_square(y) * BATCH, state.cell)
        norms = grad.transpose(0, 2).flatten(1).norm(dim=1)
        torch.testing.assert_close(found.norm[0, cut - 1], norms.mean())


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_the_gradient_profile_of_torchs_layers(kind):
    layer, x = TorchRecurrent(kind, FEATURES, HIDDEN).double(), frames()
    found = analysis.gradient_profile(layer, x, last_square)
    for cut in range(1, STEPS):
        with torch.no_grad():
            _, hidden = layer.layer(x[:, :cut])
        parts = hidden if isinstance(hidden, tuple) else (hidden,)
        parts = tuple(part.requires_grad_() for part in parts)
        y, _ = layer.layer(x[:, cut:], parts if len(parts) > 1 else parts[0])
        grads = torch.autograd.grad(last_square(y) * BATCH, parts)
        norms = torch.cat(grads, -1)[0].norm(dim=1)
        torch.testing.assert_close(found.norm[0, cut - 1], norms.mean())
    assert "forward" not in vars(layer)


def test_the_gradient_profile_of_a_mingru_is_the_product_of_what_it_keeps():
    layer, x = MinGRU(FEATURES, HIDDEN).double(), frames()
    profile = analysis.gradient_profile(layer, x, last_square)
    keep, _ = layer._keep_and_write(x)
    last = 2 * layer(x)[:, -1]
    for cut in range(1, STEPS + 1):
        grad = last * keep[:, cut:].prod(1)
        torch.testing.assert_close(profile.norm[0, cut - 1], grad.norm(dim=1).mean())


def model_of(kind="sugru", **options):
    gate = RhythmConfig(rate=0.3) if kind.startswith("su") else RhythmConfig()
    model = ModelConfig(kind=kind, layers=2, width=HIDDEN, **options)
    return SequenceModel(model, gate, Values(FEATURES), Output(5, "sequence"), STEPS).double()


@pytest.mark.parametrize("block", ["residual", "stack"])
def test_a_lower_layers_states_count_what_goes_through_the_upper_one(block):
    """The first layer's last state reaches the loss through the second layer alone."""
    found = analysis.gradient_profile(model_of(block=block, heads=2), frames(), last_of_model)
    assert found.norm.shape == (2, STEPS)
    assert (found.norm[:, -1] > 0).any()
    dense = analysis.gradient_profile(model_of("gru", block=block), frames(), last_of_model)
    assert (dense.norm > 0).all()


def last_of_model(prediction):
    return prediction.square().sum(-1).mean()


def test_no_profile_without_steps():
    with pytest.raises(ValueError, match="step by step"):
        analysis.gradient_profile(model_of("s4d"), frames(), last_of_model)
    both = surnn.SuGRU(FEATURES, HIDDEN, bidirectional=True, batch_first=True)
    with pytest.raises(ValueError, match="forwards"):
        analysis.gradient_profile(both, frames(torch.float32), last_square)


def test_a_fitted_decay_is_the_one_that_made_the_numbers():
    distance = torch.arange(49, -1, -1, dtype=torch.float64)
    norm = 0.3 * 0.8 ** (0.1 * distance)
    found = analysis.fit_decay(norm, 0.1)
    assert found.rho == pytest.approx(0.8)
    assert found.constant == pytest.approx(0.3)
    assert found.r2 == pytest.approx(1)
    torch.testing.assert_close(found.at(distance, 0.1), norm)
    norm[:10], norm[10:20] = 7.0, 0.0
    assert analysis.fit_decay(norm, 0.1, 10, 40).rho == pytest.approx(0.8)


def test_a_decay_to_nothing():
    assert analysis.fit_decay(torch.zeros(20), 0.5).rho == 0
    assert analysis.fit_decay(torch.ones(20), 0.0).rho == 1


# ---------------------------------------------------------------------------- trajectories


def test_principal_components_are_numpys():
    states = torch.randn(BATCH, STEPS, HIDDEN, dtype=torch.float64) @ torch.randn(
        HIDDEN, HIDDEN, dtype=torch.float64
    )
    found = analysis.principal_components(states, 3)
    rows = states.reshape(-1, HIDDEN).numpy()
    rows = rows - rows.mean(0)
    _, sizes, directions = np.linalg.svd(rows, full_matrices=False)
    np.testing.assert_allclose(found.share, (sizes**2 / (sizes**2).sum())[:3], rtol=1e-10)
    signs = np.sign((found.directions.numpy() * directions[:3]).sum(1))
    np.testing.assert_allclose(found.directions, signs[:, None] * directions[:3], atol=1e-10)
    assert (found.directions.gather(1, found.directions.abs().argmax(1, keepdim=True)) > 0).all()
    np.testing.assert_allclose(
        found.project(states).reshape(-1, 3), rows @ found.directions.numpy().T, atol=1e-10
    )


def test_path_length_and_regimes():
    corner = torch.tensor([[[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [3.0, 4.0]]])
    assert analysis.path_length(corner) == 7.0
    first = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
    second = torch.tensor([[[0.0, 4.0], [0.0, 6.0]]])
    found = analysis.regimes(first, second)
    assert (found.radius, found.distance, found.ratio) == (1.0, 5.0, 0.2)


# ---------------------------------------------------------------------------- changes


def test_state_changes_add_up_to_the_state():
    layer = surnn.SuGRU(FEATURES, HIDDEN, batch_first=True).double()
    (found,) = analysis.record(layer, frames()).layers
    changes = analysis.state_changes(found)
    torch.testing.assert_close(changes.cumsum(1), found.state)
    assert (changes[found.gate == 0] == 0).all()


def test_input_changes_of_values_and_tokens():
    x = torch.tensor([[[0.0, 0.0], [1.0, -3.0], [1.0, -3.0]]])
    assert analysis.input_changes(x).tolist() == [[0.0, 2.0, 0.0]]
    assert analysis.input_changes(torch.tensor([[4, 4, 7]])).tolist() == [[0.0, 0.0, 1.0]]


def test_correlation_is_numpys():
    a, b = torch.randn(2, 5, 7, dtype=torch.float64)
    assert analysis.correlation(a, b) == pytest.approx(np.corrcoef(a.ravel(), b.ravel())[0, 1])
    assert math.isnan(analysis.correlation(a, torch.ones_like(a)))


def test_rate_by_change_of_a_gate_that_opens_on_change():
    x = torch.tensor([[5.0, 5, 5, 1, 1, 1, 1, 0, 9]]).unsqueeze(-1)
    gate = torch.tensor([[1.0, 0, 0, 1, 0, 0, 0, 1, 1]]).unsqueeze(-1).expand(1, 9, 4)
    layer = analysis.LayerRecord("layer 1", "layer", gate, gate)
    found = analysis.rate_by_change(layer, x, torch.tensor([8]), bins=2)  # of steps 1 to 7
    torch.testing.assert_close(found.change, torch.tensor([0.0, 5 / 3]))
    torch.testing.assert_close(found.rate, torch.tensor([0.0, 2 / 3]))


def test_images_go_back_where_they_were_read():
    order = torch.randperm(9)
    image = torch.arange(9.0).view(3, 3)
    assert torch.equal(analysis.as_image(image.flatten()[order], order), image)
    assert torch.equal(analysis.as_image(image.flatten()), image)
    with pytest.raises(ValueError, match="not a square"):
        analysis.as_image(torch.zeros(8))


def test_image_maps_are_means_over_units():
    gate = (torch.rand(2, 9, 4) < 0.5).float()
    state = torch.randn(2, 9, 4)
    maps = analysis.image_maps(analysis.LayerRecord("layer 1", "unit", gate, state))
    assert maps.gate[1, 2, 0] == gate[1, 6].mean()
    assert maps.state[0, 0, 1] == state[0, 1].mean()
    torch.testing.assert_close(maps.size[0, 1, 1], (state[0, 4] - state[0, 3]).abs().mean())
    torch.testing.assert_close(maps.change[0, 0, 0], state[0, 0].mean())


# ---------------------------------------------------------------------------- runs


def test_learning_curves_and_bands(tmp_path):
    run = trainer(tmp_path / "run", steps=4)
    run.fit()
    curve = analysis.learning_curve(tmp_path / "run")
    assert curve.step.tolist() == [1, 2, 3, 4]
    valid = analysis.learning_curve(tmp_path / "run", "accuracy", "valid")
    assert valid.step.tolist() == [4]
    with pytest.raises(RunError, match="no 'perplexity' in its valid lines; it has accuracy"):
        analysis.learning_curve(tmp_path / "run", "perplexity", "valid")


def test_curves_by_the_clock(tmp_path):
    folder = RunFolder.create(tmp_path / "run", config_to_dict(CONFIG))
    for step, seconds in ((10, 60.0), (20, 70.0), (30, 80.0)):
        folder.log(kind="train", step=step, loss=1.0, seconds=seconds)
        folder.log(kind="valid", step=step - 5, accuracy=step / 100, loss=1.0 / step)
    curve = analysis.timed_curve(tmp_path / "run", "accuracy")
    assert curve.seconds.tolist() == [30.0, 65.0, 75.0]
    assert curve.value.tolist() == [0.1, 0.2, 0.3]
    assert analysis.seconds_to(curve, 0.15) == 65.0
    assert analysis.seconds_to(curve, 0.2) == 65.0
    assert analysis.seconds_to(curve, 0.31) is None
    falling = analysis.timed_curve(tmp_path / "run", "loss")
    assert analysis.seconds_to(falling, 0.04, higher_is_better=False) == 75.0


def test_validations_are_no_part_of_the_time_that_training_took(tmp_path):
    folder = RunFolder.create(tmp_path / "run", config_to_dict(CONFIG))
    for step, seconds in ((10, 60.5), (20, 75.0), (30, 90.0)):
        folder.log(kind="valid", step=step, accuracy=step / 100, seconds=seconds, took=5.0)
        folder.log(kind="train", step=step + 1, loss=1.0, seconds=seconds + 6)
    curve = analysis.timed_curve(tmp_path / "run", "accuracy")
    assert curve.seconds.tolist() == [60.5, 70.0, 80.0]
    folder.log(kind="valid", step=26, accuracy=0.4)  # as an earlier version would have
    curve = analysis.timed_curve(tmp_path / "run", "accuracy")
    assert curve.seconds.tolist() == [60.5, 70.0, 80.0, 88.5]


def test_a_band_is_of_the_updates_that_all_curves_have():
    one = analysis.Curve(torch.tensor([1, 2, 3]), torch.tensor([1.0, 2.0, 3.0]).double())
    two = analysis.Curve(torch.tensor([2, 3, 4]), torch.tensor([4.0, 5.0, 6.0]).double())
    found = analysis.band([one, two])
    assert found.step.tolist() == [2, 3]
    assert found.mean.tolist() == [3.0, 4.0]
    assert found.deviation.tolist() == pytest.approx([2**0.5, 2**0.5])
    assert analysis.band([one]).deviation.tolist() == [0.0] * 3


@pytest.mark.parametrize("control", ["forecast", "shift"])
def test_forecasts_are_judged_as_the_task_does(control):
    task = MackeyGlass(horizons=(1, 5), length=130, series=4, control=control)
    model = SequenceModel(
        ModelConfig(layers=1, width=16), RhythmConfig(), task.input, task.output, task.steps
    )
    batch = task.batch("test", 0, 2, 0, torch.device("cpu"))
    found = analysis.forecast(model, task, batch)
    assert found.predicted.shape == (2, 30, 2)
    with torch.no_grad():
        expected = task.details(model(batch.x), batch)
    assert found.error.tolist() == pytest.approx(
        [expected[f"mse at {k}"].value for k in task.horizons]
    )
    past, now = analysis.attractor(found.true[..., 0])
    assert torch.equal(now[:, 0], found.true[:, 17, 0])
    assert torch.equal(past[:, 0], found.true[:, 0, 0])


# ---------------------------------------------------------------------------- trade-offs


def test_trade_offs_are_counted():
    gate = surnn.Rhythm(rate=0.25, horizon=STEPS)
    layer = surnn.SuGRU(FEATURES, HIDDEN, 2, heads=2, gate=gate, batch_first=True)
    _, seen = analysis.record(layer, torch.randn(BATCH, STEPS, FEATURES)).layers
    attention, convolution, dense, selective = analysis.trade_offs(layer, seen)
    square = HIDDEN * HIDDEN
    assert attention.compute.counted == 4 * STEPS * square + 2 * STEPS * STEPS * HIDDEN
    assert attention.state.counted == 2 * STEPS * HIDDEN
    assert attention.token.counted == 4 * square + 2 * STEPS * HIDDEN
    assert convolution.compute.counted == STEPS * KERNEL * square
    assert convolution.token.counted == KERNEL * square
    assert convolution.depth.counted == 2  # 4 steps, then 16
    assert dense.compute.counted == STEPS * 6 * square
    assert (dense.token.counted, dense.state.counted) == (6 * square, HIDDEN)
    updates = STEPS // 4
    assert (selective.serial.counted, selective.depth.counted) == (updates, updates)
    each = 3 * (HIDDEN + HIDDEN // 2)  # of a block-diagonal recurrence
    assert selective.compute.counted == updates * HIDDEN * each
    assert selective.state.counted == HIDDEN + 1


def test_serial_steps_are_those_of_the_busiest_head():
    gate = torch.zeros(2, 6, 4)  # two heads of two units
    gate[0, [0, 1], 0], gate[0, [1, 2], 1], gate[1, 5, 2:] = 1, 1, 1
    layer = surnn.SuGRU(4, 4, heads=2, batch_first=True)
    selective = analysis.trade_offs(layer, analysis.LayerRecord("layer 1", "unit", gate, gate))[-1]
    assert selective.serial.counted == 3
    assert selective.depth.counted == 6 / 2 / 4


def test_training_steps_are_timed_where_the_gates_are_what_they_were(monkeypatch):
    layer = surnn.SuGRU(FEATURES, HIDDEN, 2, heads=2, batch_first=True)
    x, ran = torch.randn(BATCH, STEPS, FEATURES), []
    monkeypatch.setattr(
        surnn.nn.layers.SelectiveLayer,
        "_scan",
        staticmethod(lambda inputs, backend: ran.append(inputs) or scan(inputs, backend)),
    )
    found = analysis.training_seconds(layer, x, rounds=2)
    assert len(found) == 4
    assert min(found) > 0
    recorded = analysis.record(layer, x).layers[-1].gate
    *timed, _, _ = ran[2:]  # two to look, three to time, two to record
    assert len(timed) == 3
    for inputs in timed:
        gate = inputs.gate.expand(-1, BATCH, -1, HIDDEN // 2).flatten(2)
        assert torch.equal(gate.transpose(0, 1), recorded)


def test_products_are_counted_by_torch():
    assert multiply_adds(torch.nn.Linear(3, 5), torch.zeros(7, 3)) == 105
