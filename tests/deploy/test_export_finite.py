"""Weights that are not finite are refused by every export, by name."""

from types import SimpleNamespace

import pytest
import torch

import surnn
from surnn.config import ModelConfig, RhythmConfig
from surnn.deploy.export import to_c_folder, to_engine, to_onnx, to_pt2
from surnn.deploy.export.finite import NonFiniteWeights, check_finite
from surnn.models.model import SequenceModel
from surnn.tasks import Output, Values
from surnn.tasks.enwik8 import Enwik8

EXPORTS = {
    "engine": to_engine,
    "int8": lambda model, path: to_engine(model, path, "int8"),
    "c": to_c_folder,
    "onnx": to_onnx,
    "pt2": lambda model, path: to_pt2(model, path.with_suffix(".pt2")),
}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("export", EXPORTS)
def test_weights_of_layers(export, value, tmp_path):
    layer = surnn.SuGRU(3, 8, 2, gate="rhythm")
    with torch.no_grad():
        layer.weight_hh_l1[2, 1] = value  # type: ignore[index]
    message = rf"weight_hh_l1 has 1 of 192 weights .* the first is {value} at \[2, 1\]"
    with pytest.raises(NonFiniteWeights, match=message) as raised:
        EXPORTS[export](layer, tmp_path / "model")
    assert isinstance(raised.value, surnn.SurnnError)
    assert isinstance(raised.value, ValueError)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["gates.0.amplitude", "gates.0.bias"])
def test_gates(name, tmp_path):
    layer = surnn.SuGRU(3, 8, gate="rhythm")
    with torch.no_grad():
        layer.get_parameter(name).view(-1)[0] = torch.nan
    with pytest.raises(NonFiniteWeights, match=name):
        to_engine(layer, tmp_path / "model")


def test_buffers_of_models(tmp_path):
    config = ModelConfig(width=8, layers=1, norm="batch")
    model = SequenceModel(config, RhythmConfig(), Values(3), Output(2, "step"), 8).eval()
    check_finite(model)
    model.blocks[0].norm.norm.running_var[3] = torch.inf  # type: ignore[union-attr]
    with pytest.raises(NonFiniteWeights, match=r"running_var has 1 of 8 .* inf at \[3\]"):
        to_engine(model, tmp_path / "model")


def test_weights_that_float32_cannot_hold(tmp_path):
    layer = surnn.SuGRU(3, 8, gate="rhythm").double()
    with torch.no_grad():
        layer.weight_ih_l0[0, 0] = 1e300  # type: ignore[index]
    with pytest.raises(NonFiniteWeights, match=r"not finite in float32, the first is 1e\+300"):
        to_engine(layer, tmp_path / "model")
    check_finite(layer)


def test_hugging_face_folders(tmp_path):
    hf = pytest.importorskip("surnn.deploy.hf")
    layer = surnn.SuGRU(3, 8, gate="rhythm")
    with torch.no_grad():
        layer.bias_hh_l0[0] = torch.nan  # type: ignore[index]
    trained = SimpleNamespace(task=object.__new__(Enwik8), model=layer)
    with pytest.raises(NonFiniteWeights, match="bias_hh_l0"):
        hf.to_folder(trained, tmp_path, tmp_path / "folder")
