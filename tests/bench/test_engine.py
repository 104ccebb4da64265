"""The engine's benchmark runs, compares equals, and keeps what it found."""

import json

import numpy as np
import pytest
import torch

from surnn import AlwaysOpen, SuGRU
from surnn.bench import engine
from surnn.cli.main import main


def test_it_runs_and_keeps_what_it_found(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(engine, "STEPS", 40)
    monkeypatch.setattr(engine, "WIDTH", 32)
    threads = torch.get_num_threads()
    assert main(["bench", "engine", "--turns", "2", "--out", str(tmp_path / "out")]) in (0, None)
    assert torch.get_num_threads() == threads
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    records = {r["name"]: r for r in result["records"]}
    half = records["engine, 50% closed, float32"]
    assert half["sparsity"] == pytest.approx(0.5, abs=0.1)
    assert half["macs_done"] == pytest.approx(1 - half["sparsity"], abs=0.1)
    assert len(half["turns_us"]) == 2
    assert all(r["p99_us"] >= r["p50_us"] > 0 for r in records.values() if "p50_us" in r)
    exact = [r["difference"] for name, r in records.items() if "float32" in name]
    assert len(exact) == 5 + 2 + 2  # groups, units, whole sequences
    assert max(exact) < 1e-5
    shown = {"dense", *(f"{s:.0%} closed" for s in engine.SPARSITIES)}
    for form in ("parts", "parts_reset_before"):
        assert set(result[form]) == {f"engine, {name}" for name in shown}
    assert result["clock"] == 40  # past the horizon: the file has no table of these gates
    assert half["p50_us"] <= half["worst_us"]
    assert 0 < half["open_at_worst"] <= 1
    assert len(result["streams"]) == 9  # dense, groups and units, in three precisions
    assert all(0 < n["c_us"] < n["python_us"] for n in result["python"].values())
    assert half["worst_of_alike"] >= 1
    assert all(0 < n["together_us"] < 1000 * n["alone_us"] for n in result["streams"].values())
    assert (tmp_path / "out" / "engine.png").stat().st_size > 0
    table = (tmp_path / "out" / "table.txt").read_text()
    assert "candidate" in table
    assert "engine, 83% closed, int8" in table
    assert "if the reset came before" in table
    assert "results are in" in capsys.readouterr().out


def test_the_worst_step_is_compared_with_steps_of_like_work():
    work = np.arange(1, 1001)
    times = 50.0 + work
    assert engine.worst_of_alike(times, work) == pytest.approx(1)
    times[700] *= 2
    assert engine.worst_of_alike(times, work) == pytest.approx(2, rel=0.02)
    assert engine.worst_of_alike(np.array([2.0, 6.0]), np.array([7, 7])) == pytest.approx(1.5)


@torch.inference_mode()
def test_rivals_compute_the_same():
    layer = SuGRU(1, 32, 2, gate=AlwaysOpen())
    frames = np.random.default_rng(0).random((30, 1), np.float32)
    expected = layer(torch.from_numpy(frames)[:, None])[0][:, 0].numpy()
    rivals, _ = engine.rivals(layer)
    for rival in rivals:
        np.testing.assert_allclose(rival.run(frames), expected, atol=1e-5, err_msg=rival.name)
        if rival.each is not None:
            assert len(rival.each(frames)) == 30
