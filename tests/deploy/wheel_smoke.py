"""Run by cibuildwheel in an environment that has only the wheel: the library loads and is right."""

import tempfile
from pathlib import Path

import numpy as np
import torch

import surnn

torch.manual_seed(0)
layer = surnn.SuGRU(3, 16, num_layers=2).eval()
x = torch.randn(50, 1, 3)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "layer.surnn")
    surnn.export.to_engine(layer, path)
    stream = surnn.Engine(path).stream()
    y = np.stack([stream.step(frame) for frame in x[:, 0].numpy()])
expected = layer(x)[0][:, 0].detach().numpy()
assert np.abs(y - expected).max() < 1e-5, np.abs(y - expected).max()
print("the engine of this wheel agrees with torch")
