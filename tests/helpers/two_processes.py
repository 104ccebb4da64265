"""What two processes do together; run by torchrun, asked by test_distributed.py.

Prints one line of JSON: for each scene, what every process has to say.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch

from helpers.training import BRIEF, RAGGED, SMALL
from surnn.config import InputGateConfig, ModelConfig, RhythmConfig, RunConfig
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn.tasks.copying import Copying
from surnn.tasks.text_file import TextFile
from surnn.train.distributed import join, leave
from surnn.train.trainer import Trainer

EQUAL = RunConfig(
    RAGGED,
    replace(SMALL, layers=2, dropout=0.0),
    RhythmConfig(rate=0.3),
    replace(BRIEF, steps=6, accumulate=2, evaluation_batches=3, weight_decay=0.1),
)
"""Nothing in it is random, parts have unequal weights, and three batches are not for two."""
AVERAGED = {"weight_ema": 0.5}
BALANCED = RunConfig(
    RAGGED,
    replace(SMALL, layers=2, dropout=0.0),
    InputGateConfig(rate=0.3, mode="hard", target_rate=0.3),
    replace(BRIEF, rate_penalty=1.0),
)
"""Each process's update rate is off its target, to one side or the other."""
RANDOM = RunConfig(
    RAGGED, SMALL, RhythmConfig(rate=0.3, mode="sampled"), replace(BRIEF, steps=6, log_every=4)
)


def streams(root: Path) -> RunConfig:
    """States are carried from batch to batch, in a hybrid whose embedding is tied."""
    model = ModelConfig(
        layers=2, width=16, heads=4, block="feedforward", tied_embedding=True, attention_every=2,
        attention_heads=2, window=5,
    )  # fmt: skip
    task = TextFile(context=16, streams=True, path=str(root / "text"))
    return RunConfig(task, model, RhythmConfig(rate=0.4), replace(BRIEF, steps=6, accumulate=2))


def start(path: Path, config: RunConfig, **train) -> Trainer:
    config = replace(config, train=replace(config.train, **train))
    if WORLD.is_main:
        RunFolder.create(path, config_to_dict(config))
    WORLD.any(True)  # the folder is there
    run = Trainer(config, RunFolder(path), world=WORLD)
    run.model.train()
    return run


def train(name: str, config: RunConfig, **options) -> Trainer:
    run = start(ROOT / name, config, **options)
    run.fit()
    return run


def failure(run: Trainer) -> dict:
    try:
        run.fit()
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error), "step": run.step}
    return {"error": None, "step": run.step, "interrupted": run.interrupted}


# ---------------------------------------------------------------- scenes


def plain() -> dict:
    return {"step": train("plain", EQUAL, **AVERAGED).step}


def sharded() -> dict:
    run = train("sharded", EQUAL, shard=True)
    own = sum(p.to_local().numel() for p in run.model.parameters())  # type: ignore[attr-defined]
    return {"own": own, "all": sum(p.numel() for p in run.model.parameters())}


def stopped(shard: bool) -> dict:
    """A run of its own dropout and gates in each process, and the same resumed from its middle."""
    name = f"random {shard}"
    whole = train(name, RANDOM, shard=shard)
    broken = start(ROOT / f"{name} again", RANDOM, shard=shard)
    for _ in range(3):
        broken._train_step()
    broken.save()
    again = Trainer(broken.config, broken.folder, world=WORLD)
    again.resume()
    again.fit()
    draws = torch.rand(1).item()
    pairs = zip(whole.model.parameters(), again.model.parameters(), strict=True)
    return {"same": all(torch.equal(local(a), local(b)) for a, b in pairs), "draws": draws}


def started(shard: bool) -> dict:
    """From the weights of the run before, which were saved whole."""
    run = start(ROOT / f"started {shard}", EQUAL, start=str(ROOT / "plain"), seed=1, shard=shard)
    run.load_start_weights()
    best, _ = RunFolder(ROOT / "plain").load("best")
    found = run.model.state_dict()
    whole = {name: getattr(v, "full_tensor", lambda v=v: v)() for name, v in found.items()}
    same = all(torch.equal(whole[name], value) for name, value in best.items())
    run.fit()
    return {"same": same, "step": run.step}


def local(parameter: torch.Tensor) -> torch.Tensor:
    return getattr(parameter, "to_local", lambda: parameter)()


def full_disk() -> dict:
    run = start(ROOT / "full", EQUAL)
    if WORLD.is_main:

        def full(*_, **__):
            raise OSError(28, "No space left on device")

        run.folder._append = full
    return failure(run)


def signalled() -> dict:
    """Only the second process hears of it."""
    run = start(ROOT / "signalled", EQUAL, evaluate_every=100)
    update = run._train_step

    def until_told():
        if run.step == 2 and not WORLD.is_main:
            os.kill(os.getpid(), signal.SIGTERM)
        update()

    run._train_step = until_told
    return failure(run)


def late() -> dict:
    """Only the second process's clock says that time is over."""
    run = start(ROOT / "late", EQUAL, minutes=1.0, evaluate_every=100)
    update = run._train_step

    def hurried():
        update()
        if run.step == 2 and not WORLD.is_main:
            run._start_time -= 1000

    run._train_step = hurried
    return failure(run)


def not_finite(shard: bool) -> dict:
    """Only the second process's rows are bad."""
    run = start(ROOT / f"bad {shard}", EQUAL, log_every=100, shard=shard)
    original = Copying.loss

    def bad(task, prediction, batch):
        spoiled = run.step == 2 and not WORLD.is_main
        return original(task, prediction, batch) + (float("inf") if spoiled else 0.0)

    Copying.loss = bad
    try:
        return failure(run)
    finally:
        Copying.loss = original


def penalised(shard: bool) -> dict:
    """Gradients of an update, and its rates."""
    run = start(ROOT / f"penalised {shard}", BALANCED, shard=shard)
    aim(run)
    run._train_step()
    own = run.optimizer_step.rates.tolist()
    reading = run.optimizer_step.read()
    gradients = {
        name: getattr(p.grad, "full_tensor", lambda p=p: p.grad)().tolist()
        for name, p in run.model.named_parameters()
    }
    return {"own": own, "rates": reading.rates, "loss": reading.loss, "gradients": gradients}


def aim(run: Trainer) -> None:
    """Targets between the rates of the first batch's halves, near that of the whole."""
    batch = run._make_batch(0)
    with torch.no_grad():
        halves = []
        for rows in (slice(0, 4), slice(4, 8)):
            run.model(batch.x[rows], batch.lengths[rows])
            halves.append([layer.update_rate.item() for layer in run.optimizer_step.layers])
    for layer, first, second in zip(run.optimizer_step.layers, *halves, strict=True):
        layer.gates[0].target_rate = (first + second) / 2 + 1e-3


def batch_norm() -> dict:
    try:
        Trainer(replace(EQUAL, model=replace(SMALL, norm="batch")), world=WORLD)
    except ValueError as error:
        return {"text": str(error)}
    return {}


if __name__ == "__main__":
    ROOT = Path(sys.argv[1])
    torch.set_num_threads(1)
    WORLD = join()
    scenes = {
        "plain": plain,
        "sharded": sharded,
        "stopped": lambda: stopped(False),
        "stopped sharded": lambda: stopped(True),
        "started": lambda: started(False),
        "started sharded": lambda: started(True),
        "full disk": full_disk,
        "signalled": signalled,
        "late": late,
        "not finite": lambda: not_finite(False),
        "not finite sharded": lambda: not_finite(True),
        "penalised": lambda: penalised(False),
        "penalised sharded": lambda: penalised(True),
        "batch norm": batch_norm,
        "streams": lambda: train("streams", streams(ROOT)).step,
        "streams sharded": lambda: train("streams sharded", streams(ROOT), shard=True).step,
    }
    told = {name: WORLD.gather(scene()) for name, scene in scenes.items()}
    if WORLD.is_main:
        print(json.dumps(told), flush=True)
    leave()
