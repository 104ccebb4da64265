# %% [markdown]
# # Heartbeats, from raw records to C
#
# An electrocardiogram is mostly rest: a beat lasts a tenth of a second, a pause most of one. We
# train a network that updates at the beats only, and run it in C over hours of recordings from
# patients that it has never seen. All of this is `python examples/tutorials/ecg.py`.
#
# The data are the 48 half-hour recordings of the MIT-BIH arrhythmia database (ODC-By 1.0): `surnn
# data get mitbih` downloads them; `SURNN_DATA` names a folder that has them already.
#
# ## The raw records

# %%
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import torch

import surnn
from surnn.data.ecg import mitbih
from surnn.tasks.ecg import NEAR, RATE, RECORDS, TOLERANCE, TYPES

folder = Path("runs/tutorials/ecg")
shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
folder.mkdir(parents=True)
records = mitbih()
signal, at, symbols = records["100"]
print(f"{len(records)} records of {len(signal) / RATE / 60:.0f} minutes, {RATE} samples a second")
print("record 100 begins with", signal[:8], "and has", sum(s in TYPES for s in symbols), "beats")


# %% [markdown]
# ## Train
#
# The task `ecg_beats` cuts windows from these records and divides them by patient, as the
# literature does. At each time step the model says whether a beat was 100 ms ago, and of which
# class. A single sample looks the same in a beat and at rest, so each layer and its gates read
# sums of the last 32 samples, a tenth of a second (`--model.convolution`). The rest of the command
# says *how sparse*: gates that see the input (`--gate.kind input`), a penalty that pulls the update
# rate towards 3 %, and gates that begin at random and become hard (`--train.anneal`).


# %%
def sh(command):
    print("$", command)
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    print(done.stdout.strip())
    done.check_returncode()


sh(
    "surnn train ecg_beats --task.window 1024 --model.layers 2 --model.width 64"
    " --model.convolution 32 --gate.kind input --gate.rate 0.2 --gate.target-rate 0.03"
    " --train.rate-penalty 2 --train.anneal 0.2 0.5 --train.batch 16 --train.steps 300"
    " --train.warmup 20 --train.lr 4e-3 --train.evaluate-every 50"
    " --train.evaluation-batches 10 --train.device cpu --out run"
)

# %% [markdown]
# ## Where does it update?
#
# At the beats, and hardly ever at rest. *Chance* in the output above is the best score of answers
# at regular times, without looking at the signal.

# %%
trained = surnn.load(folder / "run")
trained.task.prepare(torch.device("cpu"))
batch = trained.task.batch("valid", 0, 32, seed=0, device=torch.device("cpu"))
recording = surnn.analysis.record(trained.model, batch.x)
beat = batch.kinds == 0
for layer in recording.layers:
    open_units = layer.gate.float().mean(-1)
    print(
        f"{layer.name}: {open_units[beat].mean():.1%} of units update within "
        f"{1000 * NEAR // RATE} ms of a beat, {open_units[~beat].mean():.1%} elsewhere"
    )

# %% [markdown]
# `surnn plot updates-on-signal run` draws it, `surnn report run` writes a page about the run.
#
# ## To C
#
# One file holds the model. The C engine reads it without torch. We feed it the test patients'
# records as a monitor would: one sample after the other, half an hour each, no windows. The task
# `ecg_beats` standardises its samples outside of the model, so we do too. (Models that `surnn train
# sequences` trains on your own data take raw values.)

# %%
sh("surnn export run --to engine --out ecg.surnn")
engine = surnn.Engine(folder / "ecg.surnn")
learned = np.stack([records[str(name)].signal for name in RECORDS["train"]])
middle, spread = learned.mean(), learned.std()  # the model reads standardised samples

found = hits = beats = 0
seconds = work = 0.0
for name in RECORDS["test"]:
    signal, at, symbols = records[str(name)]
    frames = ((signal - middle) / spread).astype(np.float32)[:, None]
    stream = engine.stream()
    begin = time.perf_counter()
    answers = stream.run(frames).argmax(1)
    seconds += time.perf_counter() - begin
    work += stream.work.update_rate / len(RECORDS["test"])
    edges = np.flatnonzero(np.diff(np.concatenate(([0], answers > 0, [0]))))
    detections = edges.reshape(-1, 2).mean(1) - trained.task.delay
    true = at[[s in TYPES for s in symbols]]
    distance = np.abs(detections[:, None] - true[None]).min(0)
    hits += (distance <= TOLERANCE).sum()
    found, beats = found + len(detections), beats + len(true)

steps = sum(len(records[str(name)].signal) for name in RECORDS["test"])
print(f"{len(RECORDS['test'])} patients, {steps / RATE / 3600:.1f} hours, {beats:,} beats")
print(f"found {hits / beats:.1%} of the beats; {hits / found:.1%} of the detections are beats")
print(f"F1 {2 * hits / (found + beats):.3f}")
print(f"{work:.1%} of all updates, {1e6 * seconds / steps:.2f} µs a sample on this machine")

# %% [markdown]
# ## To a device
#
# `--to c` writes C files with the model in them, which any C compiler takes:

# %%
sh("surnn export run --to c --out c_code")
sh("make -C c_code")
np.savetxt(folder / "frames.txt", frames[:1000], fmt="%.6f")
sh("c_code/model < frames.txt | head -n 2")

# %% [markdown]
# This model is small and was trained for minutes. The [results](../results.md) have one that was
# trained properly. [Stream and deploy](../deploy.md) is about the engine and about devices.
