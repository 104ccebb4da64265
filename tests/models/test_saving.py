"""DeltaGRU and Skip-RNN against their published equations, step by step in numpy."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from surnn.config import ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.errors import ConfigError
from surnn.models.baselines import DeltaGRU, SkipGRU, budget_loss
from surnn.tasks.copying import Copying
from surnn.train.trainer import Trainer

FEATURES, WIDTH, STEPS = 5, 7, 60


def weights(layer: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy() for name, value in layer.named_parameters()}


def sigmoid(a: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-a))


def delta_by_steps(layer: DeltaGRU, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and shares of multiplied columns, with the sums M of the papers."""
    w, theta = weights(layer), layer.threshold
    m_x, m_h = w["bias_ih"].copy(), w["bias_hh"].copy()
    x_seen, h_seen, h = np.zeros(FEATURES), np.zeros(WIDTH), np.zeros(WIDTH)
    outputs, shares = [], []
    for now in x:
        products = 0
        for i in range(FEATURES):
            if abs(now[i] - x_seen[i]) > theta:
                m_x += w["weight_ih"][:, i] * (now[i] - x_seen[i])
                x_seen[i], products = now[i], products + 1
        for i in range(WIDTH):
            if abs(h[i] - h_seen[i]) > theta:
                m_h += w["weight_hh"][:, i] * (h[i] - h_seen[i])
                h_seen[i], products = h[i], products + 1
        (r_x, z_x, n_x), (r_h, z_h, n_h) = np.split(m_x, 3), np.split(m_h, 3)
        r, z = sigmoid(r_x + r_h), sigmoid(z_x + z_h)
        h = (1 - z) * np.tanh(n_x + r * n_h) + z * h
        outputs.append(h)
        shares.append(products / (FEATURES + WIDTH))
    return np.stack(outputs), np.array(shares)


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5])
def test_deltagru_is_its_definition(threshold):
    torch.manual_seed(0)
    layer = DeltaGRU(FEATURES, WIDTH, threshold).double()
    x = 0.3 * torch.randn(2, STEPS, FEATURES, dtype=torch.float64).cumsum(1)
    y = layer(x)
    for row in range(2):
        expected, shares = delta_by_steps(layer, x[row].numpy())
        torch.testing.assert_close(y[row].detach(), torch.from_numpy(expected))
        np.testing.assert_allclose(layer.work[row], shares)
    if threshold:
        assert 0.05 < layer.work.mean() < 0.9


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value: Tensor, seen: Tensor) -> Tensor:
        return seen.clone()

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def delta_by_autograd(layer: DeltaGRU, x: Tensor) -> Tensor:
    """The same step by step; gradients pass the threshold as if it were not there."""
    h = h_seen = x.new_zeros(len(x), WIDTH)
    x_seen, outputs = x.new_zeros(x[:, 0].shape), []
    for now in x.unbind(1):
        x_seen = torch.where((now - x_seen).abs() > layer.threshold, now, x_seen).detach()
        h_seen = torch.where((h - h_seen).abs() > layer.threshold, h, h_seen).detach()
        drive = StraightThrough.apply(now, x_seen) @ layer.weight_ih.T + layer.bias_ih
        rec = StraightThrough.apply(h, h_seen) @ layer.weight_hh.T + layer.bias_hh
        (r_x, z_x, n_x), (r_h, z_h, n_h) = drive.chunk(3, -1), rec.chunk(3, -1)
        r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
        h = (1 - z) * torch.tanh(n_x + r * n_h) + z * h
        outputs.append(h)
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("threshold", [0.0, 0.2])
def test_gradients_of_deltagru_pass_straight_through(threshold):
    torch.manual_seed(0)
    layer = DeltaGRU(FEATURES, WIDTH, threshold).double()
    x = torch.randn(3, STEPS, FEATURES, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(3, STEPS, WIDTH, dtype=torch.float64)
    found, expected = (
        torch.autograd.grad((y * direction).sum(), [x, *layer.parameters()])
        for y in (layer(x), delta_by_autograd(layer, x))
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
        assert one.abs().max() > 1e-6


def test_deltagru_without_a_threshold_is_a_gru():
    layer, plain = DeltaGRU(FEATURES, WIDTH, 0.0), nn.GRU(FEATURES, WIDTH, batch_first=True)
    with torch.no_grad():
        for name, value in layer.named_parameters():
            getattr(plain, f"{name}_l0").copy_(value)
    x = torch.randn(2, STEPS, FEATURES)
    torch.testing.assert_close(layer(x), plain(x)[0], rtol=1e-5, atol=1e-6)


def skip_by_steps(layer: SkipGRU, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and updates, with the accumulated probability of the paper."""
    w = weights(layer)
    h, probability = np.zeros(WIDTH), 1.0
    outputs, updates = [], []
    for now in x:
        update = 1.0 if probability >= 0.5 else 0.0
        if update:
            drive, rec = w["weight_ih"] @ now + w["bias_ih"], w["weight_hh"] @ h + w["bias_hh"]
            (r_x, z_x, n_x), (r_h, z_h, n_h) = np.split(drive, 3), np.split(rec, 3)
            r, z = sigmoid(r_x + r_h), sigmoid(z_x + z_h)
            h = (1 - z) * np.tanh(n_x + r * n_h) + z * h
        gain = sigmoid(w["weight_u"][0] @ h + w["bias_u"][0])
        probability = gain if update else probability + min(gain, 1 - probability)
        outputs.append(h)
        updates.append(update)
    return np.stack(outputs), np.array(updates)


@pytest.mark.parametrize("bias", [1.0, -1.0, -3.0])
def test_skipgru_is_its_definition(bias):
    torch.manual_seed(0)
    layer = SkipGRU(FEATURES, WIDTH).double()
    layer.bias_u.data.fill_(bias)
    layer.weight_u.data.mul_(3)
    x = torch.randn(2, STEPS, FEATURES, dtype=torch.float64)
    y = layer(x)
    for row in range(2):
        expected, updates = skip_by_steps(layer, x[row].numpy())
        torch.testing.assert_close(y[row].detach(), torch.from_numpy(expected))
        assert layer.work[row].tolist() == updates.tolist()
    held = layer.work[:, 1:] == 0
    assert torch.equal(y[:, 1:][held], y[:, :-1][held])  # carried bit for bit
    if bias < 0:
        assert 0.02 < layer.work.mean() < 0.9
        y.sum().backward()
        assert layer.weight_u.grad.abs().min() > 0


def skip_by_autograd(layer: SkipGRU, x: Tensor) -> Tensor:
    """The paper's equations, differentiated step by step; gradients pass through the rounding."""
    h, probability = x.new_zeros(len(x), WIDTH), x.new_ones(len(x), 1)
    outputs = []
    for now in x.unbind(1):
        update = StraightThrough.apply(probability, (probability >= 0.5).to(x.dtype))
        drive, rec = now @ layer.weight_ih.T + layer.bias_ih, h @ layer.weight_hh.T + layer.bias_hh
        (r_x, z_x, n_x), (r_h, z_h, n_h) = drive.chunk(3, -1), rec.chunk(3, -1)
        r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
        new = (1 - z) * torch.tanh(n_x + r * n_h) + z * h
        h = update * new + (1 - update) * h
        gain = torch.sigmoid(h @ layer.weight_u.T + layer.bias_u)
        grown = probability + torch.minimum(gain, 1 - probability)
        probability = update * gain + (1 - update) * grown
        outputs.append(h)
    return torch.stack(outputs, 1)


def test_gradients_of_skipgru_are_those_of_its_equations():
    torch.manual_seed(0)
    layer = SkipGRU(FEATURES, WIDTH).double()
    layer.bias_u.data.fill_(-1.0)
    layer.weight_u.data.mul_(3)
    x = torch.randn(3, STEPS, FEATURES, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(3, STEPS, WIDTH, dtype=torch.float64)
    found, expected = (
        torch.autograd.grad((y * direction).sum(), [x, *layer.parameters()])
        for y in (layer(x), skip_by_autograd(layer, x))
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
        assert one.abs().max() > 1e-6


@pytest.mark.parametrize("kind", ["deltagru", "skipgru"])
def test_a_budget_saves_work(kind):
    """The weight of the work in the loss is felt in training."""
    rates = []
    for budget in (0.0, 3.0):
        model = ModelConfig(kind, layers=2, width=16, block="stack", budget=budget)
        train = TrainConfig(
            steps=40, batch=8, warmup=1, learning_rate=1e-2, evaluate_every=40,
            evaluation_batches=1, device="cpu",
        )  # fmt: skip
        trainer = Trainer(RunConfig(Copying(delay=10), model, RhythmConfig(), train))
        metrics = trainer.fit()
        assert len(metrics["update_rate"]) == 2
        assert metrics["update_rate_by_kind"] is not None
        rates.append(sum(metrics["update_rate"]) / 2)
        if not budget:
            assert budget_loss(trainer.model) is None
    assert rates[1] < 0.8 * rates[0]


def test_their_options_belong_to_them():
    with pytest.raises(ConfigError, match="deltagru"):
        ModelConfig("gru", threshold=0.2)
    with pytest.raises(ConfigError, match="budget"):
        ModelConfig("sugru", budget=0.2)
    with pytest.raises(ConfigError, match=r"model\.threshold"):
        ModelConfig("deltagru", threshold=-1.0)
