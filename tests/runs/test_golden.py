"""The format promise: run folders and engine files of released versions load, and compute the same.

The files were written by the released version, and are never written again.
"""

import json
import shutil

import numpy as np
import pytest
import torch

import surnn
from helpers.paths import TESTS
from surnn.cli.main import main
from surnn.runs.config_json import config_from_dict
from surnn.runs.folder import RunFolder
from surnn.runs.summary import overview_row
from surnn.train.session import resume_run

GOLDEN = TESTS / "golden"
VERSIONS = ("0.1",)

pytestmark = pytest.mark.parametrize("version", VERSIONS)


def expected(version: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Frames, and the predictions of the version that wrote the files."""
    values = json.loads((GOLDEN / f"expected-{version}.json").read_text())
    return torch.tensor(values["frames"]), torch.tensor(values["predictions"])


def test_a_run_predicts_what_it_predicted_then(version):
    frames, predictions = expected(version)
    model = surnn.load(GOLDEN / f"run-{version}").model
    state = model.init_state(1)
    for frame, wanted in zip(frames, predictions, strict=True):
        found, state = model.step(frame[None], state)
        torch.testing.assert_close(found[0].detach(), wanted, rtol=1e-4, atol=1e-5)


def test_an_engine_file_predicts_what_it_predicted_then(version):
    frames, predictions = expected(version)
    stream = surnn.Engine(GOLDEN / f"model-{version}.surnn").stream()
    found = np.stack([stream.step(frame.numpy()) for frame in frames])
    np.testing.assert_allclose(found, predictions.numpy(), rtol=1e-4, atol=1e-5)


def test_its_record_is_read(version, capsys):
    path = GOLDEN / f"run-{version}"
    folder = RunFolder(path)
    config = config_from_dict(folder.config())
    assert (config.train.weight_ema, config.train.steps, config.gate.rate) == (0.5, 6, 0.4)
    assert [line["step"] for line in folder.metrics() if line["kind"] == "valid"] == [3, 6]
    assert folder.test_metrics() is not None
    assert overview_row(path)["status"] == "finished"
    assert main(["info", str(path)]) == 0
    assert "finished at step 6/6" in capsys.readouterr().out


def test_it_resumes(version, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(GOLDEN / f"run-{version}", path)

    def longer(train):
        return type(train)(**{**vars(train), "steps": 8})

    assert not resume_run(path, change_train=longer).interrupted
    weights, state = RunFolder.open(path).load("last")
    assert state["step"] == 8
    assert state["weight_ema"]["count"] == 8
    assert all(value.isfinite().all() for value in weights.values())
