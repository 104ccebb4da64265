# %% [markdown]
# # Fine-tune a language model and stream it
#
# A small model first reads the Python standard library, which is on your disk already. Then we
# fine-tune it on another code base (here: surnn's), compare with training from scratch, and
# stream text from a state whose size never grows. All of this is `python
# examples/tutorials/language_model.py`.
#
# ## Two texts

# %%
import os
import shutil
import subprocess
from pathlib import Path

import torch

import surnn

folder = Path("runs/tutorials/language_model")
shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
folder.mkdir(parents=True)


def write_text(name, sources, size):
    text = "\n".join(path.read_text(errors="ignore") for path in sorted(sources))[:size]
    (folder / name).write_text(text)
    print(f"{name}: {len(text):,} characters")


write_text("library.txt", Path(os.__file__).parent.glob("*.py"), 2_000_000)
write_text("ours.txt", Path(surnn.__file__).parent.rglob("*.py"), 300_000)


# %% [markdown]
# ## Train the base model
#
# Four blocks of 128 units. The first two layers update at every byte; the others have gates that
# are pulled towards 15 %.


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


MODEL = (
    "--task.context 256 --model.block feedforward --model.layers 4 --model.width 128"
    " --model.ungated-layers 2 --model.convolution 4 --model.tied-embedding"
    " --gate.rate 0.15 --gate.target-rate 0.15 --train.rate-penalty 0.02"
)
BRIEF = "--train.batch 12 --train.warmup 20 --train.evaluation-batches 4 --train.device cpu"

sh(
    f"surnn train text_file --task.path library.txt {MODEL} {BRIEF}"
    " --train.steps 200 --train.lr 4e-3 --train.evaluate-every 200 --out base"
)

# %% [markdown]
# ## Fine-tune
#
# `--train.start base` takes weights, model and gates from the other run. Next to it, the same
# number of optimizer steps from scratch:

# %%
SHORT = f"--task.path ours.txt {BRIEF} --train.steps 60 --train.evaluate-every 60"
sh(f"surnn train text_file {SHORT} --train.start base --train.lr 1e-3 --out tuned")
sh(f"surnn train text_file {SHORT} {MODEL} --train.lr 4e-3 --out scratch")

# %% [markdown]
# Bits per byte on the test part of the new text; lower is better. The base model has never seen
# it:

# %%
sh("surnn eval base --split test --task.path ours.txt")
sh("surnn eval tuned --split test")
sh("surnn eval scratch --split test")

# %% [markdown]
# ## Generate text

# %%
sh('surnn generate tuned --prompt "def " --tokens 200 --temperature 0.6 --seed 1')

# %% [markdown]
# ## Stream it
#
# The state is all that the model knows of the text. It has the same size after ten bytes and
# after a million. A program keeps it between requests:

# %%
trained = surnn.load(folder / "tuned")
state = trained.model.init_state(1)
for part in ("class Gate(Module):\n", '    """Opens at ', "a tenth of the time steps."):
    tokens = torch.tensor([list(part.encode())])
    with torch.no_grad():
        scores, state = trained.model(tokens, state=state)
for p, i in zip(*(part.tolist() for part in scores[0, -1].softmax(-1).topk(3)), strict=True):
    print(f"next byte {chr(i)!r}: {p:.0%}")

# %% [markdown]
# The same in C, with the same text as result:

# %%
sh("surnn export tuned --to engine --out tuned.surnn")
sh('surnn generate tuned.surnn --prompt "def " --tokens 60 --temperature 0')
sh('surnn generate tuned --prompt "def " --tokens 60 --temperature 0')

# %% [markdown]
# [Language models](../language_models.md) has larger models, other tokens, hybrids with
# attention, and Hugging Face.
