"""Several processes are one: the same losses and weights, and they stop and fail together."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.paths import TESTS
from helpers.training import CONFIG, RAGGED, record, train_steps, trainer
from helpers.two_processes import AVERAGED, BALANCED, EQUAL, aim, streams
from surnn.config import ModelConfig
from surnn.models.model import SequenceModel
from surnn.runs.folder import RunFolder
from surnn.train.devices import pick_device
from surnn.train.distributed import World, synchronised_norms
from surnn.train.trainer import Trainer

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def torchrun(*command: str | Path) -> subprocess.CompletedProcess:
    here = str(TESTS)
    paths = os.pathsep.join(p for p in (here, os.environ.get("PYTHONPATH")) if p)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    return subprocess.run(
        [*TORCHRUN, *command], capture_output=True, text=True, check=False, env=environment,
        timeout=600,
    )  # fmt: skip


def is_one_process(root: Path, name: str, **options) -> None:
    """The record and the checkpoint of a run of two are those of one, and one can go on."""
    one = trainer(root / f"one {name}", EQUAL, **options)
    one.fit()
    alone = record(root / f"one {name}")
    for found, expected in zip(record(root / name), alone, strict=True):
        assert found.keys() == expected.keys()
        for key in found.keys() - {"kind", "update_rate_by_kind"}:
            assert found[key] == pytest.approx(expected[key], rel=1e-4), (name, key)
    weights, state = RunFolder.open(root / name).load("last")
    for key, value in one.model.state_dict().items():
        torch.testing.assert_close(
            weights[key], value, rtol=1e-4, atol=1e-5, msg=lambda m, k=key: f"{k}: {m}"
        )
    assert len(state["random_states"]) == 2
    if one.optimizer_step.weight_ema is not None:
        mean = one.optimizer_step.weight_ema.mean
        assert state["weight_ema"]["count"] == 6
        torch.testing.assert_close(state["weight_ema"]["mean"], mean, rtol=1e-4, atol=1e-5)
    # And one process goes on from there.
    again = Trainer(one.config, RunFolder.open(root / name))
    again.resume()
    assert (again.optimizer_step.weight_ema is not None) == ("weight_ema" in state)
    again.config = replace(EQUAL, train=replace(EQUAL.train, steps=7))
    assert again.fit()["sequences"] == 24


def test_two_processes_are_one_and_act_together(tmp_path):
    (tmp_path / "text").write_bytes(bytes(97 + i * i % 7 for i in range(1500)))
    done = torchrun(TESTS / "helpers" / "two_processes.py", tmp_path)
    assert done.returncode == 0, done.stderr[-5000:]
    told = json.loads(done.stdout.strip().splitlines()[-1])

    is_one_process(tmp_path, "plain", **AVERAGED)
    is_one_process(tmp_path, "sharded")
    assert all(0 < half["own"] < half["all"] for half in told["sharded"])

    for name in ("stopped", "stopped sharded"):
        first, second = told[name]
        assert [first["same"], second["same"]] == [True, True], name
        assert first["draws"] != second["draws"], "processes draw alike"

    assert told["started"] == told["started sharded"] == [{"same": True, "step": 6}] * 2
    first, second = told["full disk"]
    assert first["error"] == "OSError"
    assert second["error"] == "RemoteFailure"
    assert "process 0 failed: [Errno 28] No space left on device" in second["text"]
    expected = {"error": None, "step": 3, "interrupted": True}
    assert told["signalled"] == [expected] * 2
    assert told["late"] == [{"error": None, "step": 2, "interrupted": False}] * 2
    for process in told["not finite"] + told["not finite sharded"]:
        assert process["error"] == "NotFinite"
        assert process["step"] == 2
        assert "loss inf" in process["text"]
    good = trainer(config=EQUAL)
    train_steps(good, 2)
    for name in ("bad False", "bad True"):
        weights, state = RunFolder.open(tmp_path / name).load("last")
        assert state["step"] == 2
        torch.testing.assert_close(weights, dict(good.model.state_dict()), rtol=1e-4, atol=1e-5)
    one = trainer(config=BALANCED)
    aim(one)
    train_steps(one, 1)
    targets = [layer.gates[0].target_rate for layer in one.optimizer_step.layers]
    for name in ("penalised", "penalised sharded"):
        first, second = told[name]
        sides = [
            a < t / 2 < b or b < t / 2 < a
            for a, b, t in zip(first["own"], second["own"], targets, strict=True)
        ]
        assert any(sides), "rates are on one side of their targets: nothing is tested"
        assert first["loss"] == pytest.approx(one.optimizer_step.read().loss, rel=1e-5)
        assert first["rates"] == pytest.approx(one.optimizer_step.read().rates, rel=1e-5)
        for key, parameter in one.model.named_parameters():
            expected = torch.tensor(first["gradients"][key])
            torch.testing.assert_close(expected, parameter.grad, rtol=1e-4, atol=1e-6)
    assert all("--model.norm layer" in process["text"] for process in told["batch norm"])
    trainer(tmp_path / "one stream", streams(tmp_path)).fit()
    expected = [line["loss"] for line in record(tmp_path / "one stream")]
    for name in ("streams", "streams sharded"):
        assert [line["loss"] for line in record(tmp_path / name)] == pytest.approx(expected, 1e-4)


def test_batch_norm_is_of_the_whole_batch_on_gpus():
    config = ModelConfig(width=16, heads=2, layers=1, norm="batch")
    model = SequenceModel(config, CONFIG.gate, RAGGED.input, RAGGED.output, RAGGED.steps)
    names = set(model.state_dict())
    synchronised = synchronised_norms(model, torch.device("cuda"))
    kinds = {type(m).__name__ for m in synchronised.modules()}
    assert "SyncBatchNorm" in kinds
    assert "BatchNorm1d" not in kinds
    assert set(synchronised.state_dict()) == names


def test_more_processes_than_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="more processes on this machine than its 1 GPU"):
        pick_device("cuda", World(1, 2, 1))
    assert pick_device("auto", World(0, 2, 0)) == torch.device("cuda", 0)
    assert pick_device("cpu", World(1, 2, 1)) == torch.device("cpu")
