"""The trainer: it learns, and can be stopped, killed and damaged without loss."""

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from surnn.config import GateConfig, ModelConfig, RunConfig, TrainConfig
from surnn.runs import RunError, RunFolder, config_to_dict
from surnn.schedule import gate_noise, learning_rate
from surnn.tasks.copying import Copying
from surnn.train import NotFinite, Trainer, make_optimizer

TASK = Copying(delay=10)
SMALL = ModelConfig(width=16, heads=4, layers=1, dropout=0.1)
BRIEF = TrainConfig(
    steps=12, batch=8, warmup=2, log_every=1, evaluate_every=4, checkpoint_every=3,
    evaluation_batches=2, device="cpu",
)  # fmt: skip
CONFIG = RunConfig(TASK, SMALL, GateConfig(rate=0.3), BRIEF)


def trainer(path: Path | None = None, config: RunConfig = CONFIG, **train) -> Trainer:
    config = replace(config, train=replace(config.train, **train))
    folder = None if path is None else RunFolder.create(path, config_to_dict(config))
    return Trainer(config, folder)


def same(a: Trainer, b: Trainer) -> bool:
    pairs = zip(a.model.state_dict().values(), b.model.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def test_it_learns():
    """Copying over a short gap, far above guessing."""
    config = RunConfig(
        Copying(delay=10), ModelConfig(width=64, heads=8, layers=1, block="stack"),
        GateConfig(rate=0.3),
        replace(BRIEF, steps=300, batch=32, learning_rate=2e-2, evaluate_every=300, log_every=50),
    )  # fmt: skip
    assert Trainer(config).fit()["accuracy"] > 0.35  # guessing: 0.125


def test_the_folder_is_the_record(tmp_path):
    trainer(tmp_path / "run").fit()
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert {"config.json", "environment.json", "metrics.jsonl", "last", "best"} <= names
    lines = RunFolder.open(tmp_path / "run").metrics()
    assert [m["step"] for m in lines if m["kind"] == "train"] == list(range(1, 13))
    valid = [m for m in lines if m["kind"] == "valid"]
    assert [m["step"] for m in valid] == [4, 8, 12]
    assert set(valid[0]["update_rate_by_kind"][0]) == set(TASK.kinds)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["task"]["name"] == "copying"
    assert config["task"]["delay"] == 10


def test_a_folder_is_never_overwritten(tmp_path):
    trainer(tmp_path / "run")
    with pytest.raises(RunError, match="surnn resume"):
        trainer(tmp_path / "run")


@pytest.mark.parametrize("stop_at", [3, 6])
@pytest.mark.parametrize("mode", ["hard", "sampled"])
def test_resumed_run_is_the_run_that_was_not_stopped(tmp_path, stop_at, mode):
    config = replace(CONFIG, gate=GateConfig(rate=0.3, mode=mode))
    whole = trainer(tmp_path / "whole", config)
    whole.fit()
    broken = trainer(tmp_path / "broken", config)
    broken.config = replace(config, train=replace(config.train, steps=12))
    while broken.step < stop_at:  # then the process is gone, without a word
        broken._update()
        broken.step += 1
    broken.save()
    broken.folder.log(kind="train", step=stop_at + 1, loss=0.0)  # written, but not checkpointed
    again = Trainer(config, RunFolder.open(tmp_path / "broken"))
    again.resume()
    again.fit()
    assert same(whole, again)
    tail = [m for m in again.folder.metrics() if m["kind"] == "train"]
    assert [m["step"] for m in tail] == list(range(stop_at + 1, 13))
    expected = [m["loss"] for m in whole.folder.metrics() if m["kind"] == "train"][stop_at:]
    assert [m["loss"] for m in tail] == expected


SCRIPT = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from test_train import *
    t = trainer(Path(sys.argv[1]), steps=100_000, checkpoint_every=2, evaluate_every=100_000)
    t.fit()
    sys.exit(3 if t.interrupted else 0)
    """
)


def start(tmp_path: Path) -> subprocess.Popen:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, script, tmp_path / "run"], env=environment)
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "previous").exists():
        assert process.poll() is None, "the trainer ended by itself"
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.05)
    return process


def test_sigterm_checkpoints_and_exits(tmp_path):
    process = start(tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 3
    folder = RunFolder.open(tmp_path / "run")
    assert folder.load("last")[1]["step"] == folder.metrics()[-1]["step"]


def test_kill_9_leaves_a_whole_checkpoint(tmp_path):
    process = start(tmp_path)
    process.kill()
    process.wait(30)
    folder = RunFolder.open(tmp_path / "run")
    step = folder.load("last")[1]["step"]
    config = replace(CONFIG, train=replace(BRIEF, steps=step + 2))
    again = Trainer(config, folder)
    again.resume()
    again.fit()
    assert again.step == step + 2


def test_a_damaged_checkpoint_is_noticed(tmp_path):
    trainer(tmp_path / "run").fit()
    weights = tmp_path / "run" / "last" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    folder = RunFolder.open(tmp_path / "run")
    with pytest.raises(RunError, match=r"damaged: model.safetensors.*previous.*--checkpoint"):
        folder.load("last")
    folder.load("previous")


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    run = trainer(tmp_path / "run")
    run.fit()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("surnn.runs.torch.save", full)
    run.step += 1
    with pytest.raises(RunError, match=r"No space left.*untouched"):
        run.save()
    assert RunFolder.open(tmp_path / "run").load("last")[1]["step"] == 12
    assert not (tmp_path / "run" / "last.new").exists()


def test_killed_between_renames(tmp_path):
    trainer(tmp_path / "run").fit()
    shutil.rmtree(tmp_path / "run" / "last")  # renamed away, and the new one not yet in place
    assert RunFolder.open(tmp_path / "run").load("last")[1]["step"] == 9


def test_not_a_run(tmp_path):
    with pytest.raises(RunError, match=r"holds no config\.json"):
        RunFolder.open(tmp_path)


def test_nan_stops_with_the_step_and_keeps_the_good_state(tmp_path):
    run = trainer(tmp_path / "run", log_every=100)
    for _ in range(5):
        run._update()
        run.step += 1
    good = {k: v.clone() for k, v in run.model.state_dict().items()}
    original = run.task.__class__.loss
    try:
        run.task.__class__.loss = lambda *a: original(*a) * float("nan")
        with pytest.raises(NotFinite, match="at update 5"):
            run.fit()
    finally:
        run.task.__class__.loss = original
    weights, state = RunFolder.open(tmp_path / "run").load("last")
    assert state["step"] == 5
    assert all(torch.equal(weights[k], v) for k, v in good.items())


def test_accumulated_parts_are_the_batch():
    model = replace(SMALL, dropout=0.0)
    whole = trainer(config=replace(CONFIG, model=model))
    parts = trainer(config=replace(CONFIG, model=model), accumulate=4)
    for run in (whole, parts):
        run._update()
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_batch_that_cannot_be_divided():
    with pytest.raises(ValueError, match="use a multiple of 3"):
        trainer(accumulate=3)


def test_patience_and_time():
    run = trainer(steps=1000, evaluate_every=1, patience=2, learning_rate=1e-9)
    run.fit()
    assert run.step < 20
    run = trainer(steps=100_000, minutes=0.01, evaluate_every=100_000)
    run.fit()
    assert run.step < 100_000


def test_gates_have_a_group_of_their_own():
    run = trainer(gate_learning_rate=0.5, weight_decay=0.1)
    groups = make_optimizer(run.model, run.config).param_groups
    gates = {id(p) for p in run.model.gate_parameters()}
    for group in groups:
        own = {id(p) for p in group["params"]} <= gates
        assert (group["lr"] == 0.5) == own
        matrices = all(p.dim() > 1 for p in group["params"])
        assert (group["weight_decay"] > 0) == (matrices and not own)


def test_rate_target_holds_rates_down():
    def rate(penalty: float) -> float:
        gate = GateConfig(rate=0.5, target_rate=0.1)
        run = trainer(
            config=replace(CONFIG, gate=gate), steps=60, learning_rate=2e-2, evaluate_every=60,
            rate_penalty=penalty,
        )  # fmt: skip
        return run.fit()["update_rate"][0]

    assert rate(10.0) < rate(0.0) - 0.1


def test_schedules():
    train = TrainConfig(steps=100, warmup=10, hold=0.5, final=0.1, anneal=(0.5, 0.75))
    shares = [learning_rate(train, step) for step in range(101)]
    assert shares[0] == 0.1
    assert shares[9] == shares[50] == 1
    assert shares[100] == pytest.approx(0.1)
    assert all(a >= b for a, b in pairwise(shares[50:]))
    assert [gate_noise(train, s) for s in (0, 50, 75, 100)] == [1, 1, 0, 0]
    assert 0 < gate_noise(train, 60) < 1


def test_two_processes_are_one(tmp_path):
    """torchrun with two gloo processes: the loss of one process at the same batch."""
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys, torch
            from dataclasses import replace
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            from test_train import CONFIG, SMALL
            from surnn.distributed import join, leave
            from surnn.train import Trainer
            torch.set_num_threads(1)
            world = join()
            run = Trainer(replace(CONFIG, model=replace(SMALL, dropout=0.0)), world=world)
            losses = [world.mean(run._update()).item() for _ in range(1)]
            for _ in range(3):
                run.step += 1
                losses.append(world.mean(run._update()).item())
            if world.first:
                print(losses)
            run.close()
            leave()
            """
        )
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = []
    for command in ([sys.executable], [*torchrun, "2"]):
        done = subprocess.run(
            [*command, script], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.strip().splitlines()[-1]))
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("operation", range(8))
def test_a_kill_at_any_file_operation(tmp_path, monkeypatch, best, operation):
    """Whatever is the last thing that a process did, the next one finds a whole checkpoint."""
    run = trainer(tmp_path / "run")
    run.fit()
    folder, name = run.folder, "best" if best else "last"
    save = folder.save_best if best else folder.save
    left = operation

    def dying(original):
        def call(*arguments, **options):
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            return original(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dying(Path.rename))
        patch.setattr(shutil, "rmtree", dying(shutil.rmtree))
        patch.setattr("surnn.runs.save_file", dying(save_file))
        with contextlib.suppress(KeyboardInterrupt):
            save(run.model.state_dict(), {"step": 99})
    again = RunFolder.open(tmp_path / "run")
    assert again.load(name)[1]["step"] in (4, 8, 9, 12, 99)
    (again.save_best if best else again.save)(run.model.state_dict(), {"step": 100})
    assert again.load(name)[1]["step"] == 100


def test_a_metric_that_is_no_number_is_never_the_best():
    run = trainer()
    run.best = 0.5
    for value in (float("nan"), float("inf")):
        assert not (math.isfinite(value) and run._is_better(value))
    assert run._is_better(0.6)
    assert not run._is_better(0.4)


def test_a_resumed_run_has_its_time_too(tmp_path):
    config = replace(CONFIG, train=replace(BRIEF, steps=100_000, minutes=0.01))
    first = trainer(tmp_path / "run", config)
    first.fit()
    again = Trainer(config, RunFolder.open(tmp_path / "run"))
    again.resume()
    again.fit()
    assert again.step > first.step + 1
    assert (tmp_path / "run" / "best").exists()  # it was evaluated when time was over


def test_a_state_space_models_dynamics_do_not_decay():
    run = trainer(config=replace(CONFIG, model=replace(SMALL, kind="s4d")), weight_decay=0.1)
    names = {id(p): n for n, p in run.model.named_parameters()}
    decayed = [
        names[id(p)] for g in run.optimizer.param_groups if g["weight_decay"] for p in g["params"]
    ]
    assert not any("frequency" in n or "log_decay" in n for n in decayed)
    assert any("out.weight" in n for n in decayed)
