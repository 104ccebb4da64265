"""surnn.load: a trained model back from its run's folder."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import surnn
from helpers.training import CONFIG, TASK, trainer, weights
from surnn.errors import RunError


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trainer at its end, its best weights not the last ones, and its folder."""
    path = tmp_path_factory.mktemp("runs") / "run"
    run = trainer(path, steps=6, evaluate_every=6)
    run.fit()
    best = weights(run)
    run.step = 9
    with torch.no_grad():
        run.model.head.weight += 1
    run.save()
    run.close()
    return path, best, weights(run)


@pytest.fixture
def run(trained, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(trained[0], tmp_path / "run")


def test_weights_task_and_configuration_come_back(trained):
    path, best, last = trained
    for checkpoint, wanted, step in (("best", best, 6), ("last", last, 9)):
        found = surnn.load(str(path), checkpoint)
        state = found.model.state_dict()
        assert state.keys() == wanted.keys()
        assert all(torch.equal(state[name], wanted[name]) for name in wanted)
        assert not found.model.training
        assert (found.step, found.task) == (step, TASK)
        assert found.config.model == CONFIG.model
    assert isinstance(found, surnn.Trained)


def test_a_run_of_the_kernels_loads_without_a_gpu(run):
    change(run, lambda config: config["model"].update(backend="triton"))
    model, *_, config, _ = surnn.load(run)
    assert config.model == replace(CONFIG.model, backend="auto")
    assert model.selective_layers()[0].backend == "auto"


def test_the_function_is_not_hidden_by_a_module(trained):
    """Whatever was imported first."""
    code = "import sys, surnn.runs.loading, surnn; print(surnn.load(sys.argv[1]).step)"
    found = subprocess.run(
        [sys.executable, "-c", code, str(trained[0])], check=True, capture_output=True, text=True
    )
    assert found.stdout == "6\n"


def change(run, how) -> None:
    config = json.loads((run / "config.json").read_text())
    how(config)
    (run / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("spoil", "checkpoint", "message"),
    [
        (shutil.rmtree, "best", "there is no folder .*/run; surnn train"),
        (lambda run: (run / "config.json").unlink(), "best", "no config.json; surnn train"),
        (lambda run: (run / "config.json").write_text("{"), "best", "config.json is damaged"),
        (lambda run: (run / "config.json").write_text("{}"), "best", "damaged: .*'task'"),
        (
            lambda run: shutil.rmtree(run / "best"), "best",
            "'best'; no validation has finished yet; use --checkpoint last "
            r"\(in Python checkpoint='last'\)",
        ),
        (lambda run: None, "bset", r"'bset'; use --checkpoint best"),
        (
            lambda run: [shutil.rmtree(run / name) for name in ("best", "last", "previous")],
            "best", "'best'; the checkpoints were deleted",
        ),
        (
            lambda run: [
                *(shutil.rmtree(run / name) for name in ("best", "last", "previous")),
                (run / "metrics.jsonl").unlink(),
            ],
            "best", "before its first checkpoint: surnn resume .*/run",
        ),
        (
            lambda run: (run / "best/model.safetensors").write_bytes(b"0"), "best",
            "model.safetensors does not match; .* --checkpoint last",
        ),
        (
            lambda run: change(run, lambda c: c["task"].update(name="chess")), "best",
            "'chess' is none of this version of surnn: copying",
        ),
        (
            lambda run: change(run, lambda c: c["gate"].update(tempo=3)), "best",
            "has tempo, which RhythmConfig",
        ),
        (
            lambda run: change(run, lambda c: c["model"].update(dropout=3)), "best",
            "configuration: model.dropout is a share",
        ),
        (
            lambda run: change(run, lambda c: c["model"].update(width=32)), "best",
            "do not fit the model that .*config.json describes",
        ),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(run, spoil, checkpoint, message):
    spoil(run)
    with pytest.raises(RunError, match=message):
        surnn.load(run, checkpoint)


def test_a_gpu_that_is_not_there(trained, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("cuda", torch.device("cuda", 0)):
        with pytest.raises(ValueError, match=r"no CUDA device .* use device='cpu'"):
            surnn.load(trained[0], device=device)


def test_a_checkpoints_folder_is_not_the_runs(trained):
    with pytest.raises(surnn.RunError, match=r"did you mean .*/run\?"):
        surnn.load(trained[0] / "best")
