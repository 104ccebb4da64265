# %% [markdown]
# # Your own CSV, from the file to C
#
# A factory records the current and the voltage of its motors, 150 time steps each, and somebody
# has labelled 2,000 recordings: *idle*, *spin* or *jam*. We train a classifier, look at it, and
# end with C code. All of this is `python examples/tutorials/own_csv.py`.
#
# ## The data
#
# We generate the recordings here. A jam is a bump of twelve time steps in the current. The file
# has one row for each time step. Columns named `id`, `time` and `label` are recognised.

# %%
import csv
import shutil
import subprocess
from pathlib import Path

import numpy as np
import torch

import surnn

folder = Path("runs/tutorials/own_csv")
shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
folder.mkdir(parents=True)


def recording(label, random):
    t = np.arange(150)
    current = 20 + random.normal(0, 1, 150)
    if label != "idle":
        current += 3 * np.sin(1.26 * t + random.uniform(0, 6))
    if label == "jam":
        begin = random.integers(20, 130)
        current[begin : begin + 12] += 6
    return current, 230 + random.normal(0, 2, 150)


random = np.random.default_rng(0)
with open(folder / "motors.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["id", "time", "current", "voltage", "label"])
    for n in range(2000):
        label = ("idle", "spin", "jam")[n % 3]
        for t, (a, v) in enumerate(zip(*recording(label, random), strict=True)):
            rows.writerow([n, t, f"{a:.3f}", f"{v:.3f}", label])

print((folder / "motors.csv").read_text()[:102])


# %% [markdown]
# ## Advice first
#
# The tutorial runs the commands of surnn from Python. In a terminal, type what follows the `$`.


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


sh("surnn advise motors.csv")

# %% [markdown]
# ## Train
#
# One command. It finds the goal (one class for each sequence), divides the recordings into
# training, validation and test, and chooses the options. Every choice comes with its reason.

# %%
sh("surnn train sequences --task.path motors.csv --out run")

# %% [markdown]
# The test set has 300 recordings that training has not seen:

# %%
sh("surnn eval run --split test")

# %% [markdown]
# ## Look at it
#
# The report is one HTML file: learning curves, the gates over time, every option.

# %%
sh("surnn report run --data .")

# %% [markdown]
# ## Use it from Python
#
# The model takes raw values: it subtracts the means of the training set by itself. A fresh
# recording of a jam:

# %%
trained = surnn.load(folder / "run")
fresh = np.stack(recording("jam", np.random.default_rng(7)), 1).astype(np.float32)  # [T, 2]
scores = trained.model(torch.from_numpy(fresh)[None])[0]
print("classes:", trained.task.classes)
print("answer:", trained.task.classes[scores.argmax()])

# %% [markdown]
# ## Take it to C
#
# The export is a folder of C files with the weights in them. It needs a C compiler and nothing
# else. The program reads a frame per line and prints the scores after each frame.

# %%
sh("surnn export run --to c --out c_code")
sh("make -C c_code")
np.savetxt(folder / "fresh.txt", fresh, fmt="%.6f")
sh("c_code/model < fresh.txt | tail -n 1")

# %% [markdown]
# These are the scores of the whole recording. They equal those of Python up to rounding:

# %%
print(" ".join(f"{score:.4f}" for score in scores.tolist()))

# %% [markdown]
# [Your own data](../own_data.md) lists all file formats and options.
