"""Modules that a user writes, exported: each file computes what torch does, step by step."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import surnn
from helpers.own_modules import MODULES, make_module
from surnn.deploy.export.check import onnx_step, pt2_step
from surnn.deploy.export.engine_file import EngineFile, Op
from surnn.deploy.export.step import streaming_step


@pytest.mark.parametrize("name", MODULES)
def test_the_engine_computes_what_torch_does(name, tmp_path):
    module, x, expected = make_module(name)
    engine = surnn.Engine(surnn.export.to_engine(module, tmp_path / "model.surnn"))
    stream = engine.stream()
    steps = np.stack([stream.step(frame) for frame in x.numpy()])
    np.testing.assert_allclose(steps, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(engine.stream().run(x.numpy()), steps)


@pytest.mark.parametrize("name", ["tokens", "residual", "depthwise", "dilated", "spiking"])
def test_onnx_computes_what_torch_does(name, tmp_path):
    pytest.importorskip("onnxruntime")
    module, x, expected = make_module(name)
    step = onnx_step(surnn.export.to_onnx(module, tmp_path / "model.onnx"))
    assert_follows(step, module, x, expected)


def test_pt2_computes_what_torch_does(tmp_path):
    module, x, expected = make_module("dilated")
    step = pt2_step(surnn.export.to_pt2(module, tmp_path / "model.pt2"))
    assert_follows(step, module, x, expected)


def assert_follows(step, module, x, expected):
    """Two equal streams in a batch."""
    state = streaming_step(module).init_state(2)
    for frame, prediction in zip(x, expected, strict=True):
        y, state = step(torch.stack((frame, frame)), state)
        torch.testing.assert_close(y[0], prediction, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(y[1], y[0], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["residual", "dilated"])
def test_int8_is_close(name, tmp_path):
    module, x, expected = make_module(name)
    path = surnn.export.to_engine(module, tmp_path / "model.surnn", weights="int8")
    y = surnn.Engine(path).stream().run(x.numpy())
    assert 0 < np.abs(y - expected.numpy()).max() < 0.05


def test_a_c_folder_holds_the_same_file(tmp_path):
    module, _, _ = make_module("depthwise")
    content = surnn.export.to_engine(module, tmp_path / "model.surnn").read_bytes()
    text = (surnn.export.to_c_folder(module, tmp_path / "c") / "src" / "weights.c").read_text()
    numbers = text.split("{", 1)[1].split("}")[0].replace("\n", "").rstrip(",").split(",")
    assert bytes(map(int, numbers)) == content


def test_the_module_itself_is_not_changed(tmp_path):
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Dropout(0.5)).train()
    surnn.export.to_engine(module, tmp_path / "model.surnn")
    assert module.training
    assert module[1].inplace
    assert module[0].weight.requires_grad


# ---------------------------------------------------------------------------- operations

ACTIVATIONS = [
    nn.ReLU(), nn.Sigmoid(), nn.Tanh(), nn.SiLU(), nn.GELU(), nn.GELU("tanh"), nn.ELU(0.7),
    nn.SELU(), nn.LeakyReLU(0.2), nn.Softplus(2.0, 5.0), nn.Hardtanh(-0.5, 2.0), nn.ReLU6(),
    nn.Hardsigmoid(), nn.Hardswish(), nn.Mish(), nn.Softsign(), nn.LogSigmoid(), nn.Softmax(-1),
    nn.LogSoftmax(-1), nn.PReLU(), nn.BatchNorm1d(19, affine=False),
    nn.LayerNorm(19, elementwise_affine=False), nn.RMSNorm(19, elementwise_affine=False),
]  # fmt: skip


@pytest.mark.parametrize("simd", ["scalar", "generic", "avx2", ""])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_activations(activation, simd, tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_SIMD", simd)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(19, 19), activation).eval()  # an odd size: vectors and a rest
    nn.init.eye_(module[0].weight)
    x = 4 * torch.randn(20, 19)
    path = surnn.export.to_engine(_ByStep(module), tmp_path / "model.surnn")
    y = surnn.Engine(path).stream().run(x.numpy())
    np.testing.assert_allclose(y, module(x).detach(), rtol=1e-5, atol=1e-6)


class _ByStep(nn.Module):
    """A module on the features of the last time step, which BatchNorm1d can read."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x[:, -1])


FUNCTIONS = {
    "relu": lambda x: x.relu() + functional.relu(x),
    "tanh": lambda x: torch.tanh(x) - functional.softplus(x, beta=2),
    "number": lambda x: 2 - x / 4 + torch.add(x, x, alpha=0.5),
    "square": lambda x: x**2 + x.square() - -x,
    "features": lambda x: x[..., 1:3] + x[:, :, -2:],
    "one feature": lambda x: x * x[..., 2].unsqueeze(-1),
    "permuted": lambda x: functional.softmax(x.permute(1, 2, 0), dim=1).permute(2, 0, 1),
    "swapped": lambda x: functional.glu(x.mT, 1).transpose(-1, -2).contiguous(),
    "norm": lambda x: functional.layer_norm(x, (4,)) + functional.rms_norm(x, (4,), eps=0.1),
    "matrix": lambda x: functional.linear(x, torch.ones(2, 4)),
    "rest": lambda x: x + functional.dropout(x, 0.5, training=False),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, tmp_path):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.inputs = nn.Linear(3, 4)

        def forward(self, x):
            return FUNCTIONS[name](self.inputs(x))

    torch.manual_seed(0)
    module, x = Module(), torch.randn(2, 10, 3)
    engine = surnn.Engine(surnn.export.to_engine(module, tmp_path / "model.surnn"))
    expected = module(x).detach().numpy()
    for sequence, y in zip(x.numpy(), expected, strict=True):
        np.testing.assert_allclose(engine.stream().run(sequence), y, rtol=1e-5, atol=1e-6)


def test_a_scalar_series_is_read(tmp_path):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = surnn.SuRNN(1, 4, batch_first=True)

        def forward(self, x):
            return self.layer(x.unsqueeze(-1))[0]

    torch.manual_seed(0)
    module, x = Module(), torch.randn(1, 10)
    engine = surnn.Engine(surnn.export.to_engine(module, tmp_path / "model.surnn"))
    y = engine.stream().run(x[0].numpy()[:, None])
    np.testing.assert_allclose(y, module(x)[0].detach(), atol=1e-6)


def file_with(tmp_path, kind, size, numbers, second=0):
    file, path = EngineFile(4, takes_tokens=False), tmp_path / "model.surnn"
    out = file.add(kind, 0, file.vector(size), second, numbers=numbers)
    path.write_bytes(file.to_bytes(out))
    return surnn.Engine(path).stream()


@pytest.mark.parametrize(
    ("kind", "size", "numbers", "second"),
    [
        (Op.ACTIVATE, 4, [16], 0), (Op.ACTIVATE, 3, [0], 0), (Op.MULTIPLY, 3, [], 0),
        (Op.MULTIPLY, 4, [], 1), (Op.PART, 3, [2], 0), (Op.PART, 5, [0], 0),
        (Op.PART, 1, [2**32 - 1], 0), (Op.WINDOW, 8, [0, 1, 1], 0), (Op.WINDOW, 8, [2, 0, 1], 0),
        (Op.WINDOW, 8, [2, 1, 0], 0), (Op.WINDOW, 8, [2, 1, 3], 0), (Op.WINDOW, 9, [2, 1, 1], 0),
    ],
)  # fmt: skip
def test_inconsistent_operations_are_refused(kind, size, numbers, second, tmp_path):
    with pytest.raises(surnn.EngineError, match="contradict"):
        file_with(tmp_path, kind, size, numbers, second)


def test_a_window_too_large_for_memory_is_refused(tmp_path):
    with pytest.raises(surnn.EngineError):
        file_with(tmp_path, Op.WINDOW, 8, [2, 2**32 - 1, 1])


def test_a_window_from_a_file(tmp_path):
    x = np.arange(1, 25, dtype=np.float32).reshape(6, 4)
    stream = file_with(tmp_path, Op.WINDOW, 8, [2, 3, 2])
    earlier = np.pad(x, ((3, 0), (0, 0)))[:6]
    expected = np.concatenate([earlier[:, :2], x[:, :2], earlier[:, 2:], x[:, 2:]], 1)
    np.testing.assert_array_equal(stream.run(x), expected)
    constant = np.ones((6, 4), np.float32)  # the last steps are skipped
    before = np.pad(constant, ((3, 0), (0, 0)))[:6]
    expected = np.concatenate([before[:, :2], constant[:, :2]] * 2, 1)
    np.testing.assert_array_equal(stream.reset().run(constant), expected)
