"""Modules that a user could write, for tests of exports: inputs and predictions."""

import torch
from torch import nn
from torch.nn import functional

import surnn

STEPS = 24


class First(nn.Module):
    """A layer's output, without its state."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.layer = surnn.SuLSTM(width, width, heads=2, gate="rhythm", batch_first=True)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Sequential(nn.GLU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x, state=None):
        y, state = self.layer(self.norm(x), state)
        x = x + y
        return x + self.narrow(self.wide(x)), state


class Residual(nn.Module):
    """Blocks in a list that return their states."""

    def __init__(self):
        super().__init__()
        self.inputs = nn.Linear(3, 8)
        self.blocks = nn.ModuleList(ResidualBlock(8) for _ in range(2))
        self.readout = nn.Linear(8, 4)

    def forward(self, x):
        x, states = self.inputs(x), []
        for block in self.blocks:
            x, state = block(x)
            states.append(state)
        return self.readout(functional.gelu(x)), states


class Depthwise(nn.Module):
    """A convolution that pads both sides, a norm over channels, and the last time step."""

    def __init__(self):
        super().__init__()
        self.inputs = nn.Linear(3, 8)
        self.conv = nn.Conv1d(8, 8, 4, padding=3, groups=8)
        self.norm = nn.BatchNorm1d(8)
        self.layer = surnn.SuGRU(8, 16, heads=4, gate="rhythm", batch_first=True)
        self.scale = nn.Parameter(torch.rand(8))
        self.readout = nn.Sequential(nn.Linear(16, 6), nn.LogSoftmax(-1))
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x):
        x = self.inputs(x)
        y = functional.silu(self.norm(self.conv(x.transpose(1, 2))[..., : x.shape[1]]))
        y, _ = self.layer(x + y.transpose(1, 2) * self.scale.exp())
        return self.readout(y[:, -1])


class CausalConv1d(nn.Conv1d):
    def forward(self, x):
        return super().forward(functional.pad(x, ((self.kernel_size[0] - 1) * self.dilation[0], 0)))


class Dilated(nn.Module):
    """A temporal convolutional network with a mean over time; input [batch, channels, time]."""

    def __init__(self):
        super().__init__()
        self.first = CausalConv1d(3, 8, 3)
        self.rest = nn.ModuleList(CausalConv1d(8, 8, 3, dilation=2**i, groups=2) for i in (1, 2))
        self.mix = nn.Conv1d(8, 8, 1, groups=4)
        self.readout = nn.Linear(8, 2)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for conv in self.rest:
            x = x + self.mix(functional.elu(conv(x)))
        return self.readout(x.mean(-1))


class Spiking(nn.Module):
    """A spiking layer, time first, with gates on features and one output."""

    def __init__(self):
        super().__init__()
        self.layer = surnn.SuSNN(3, 16, gate=surnn.EveryN(2))
        self.wide = nn.Linear(16, 9)
        self.readout = nn.Linear(4, 1)

    def forward(self, x):
        y = self.wide(self.layer(x)[0])
        value, gate, one = y.split([4, 4, 1], -1)
        return self.readout(value * torch.sigmoid(gate) * one - 0.5 * value / 3).squeeze(-1)


class LastState(nn.Module):
    """torch's own layer, read by its last hidden state."""

    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(3, 8, num_layers=2, batch_first=True)
        self.readout = nn.Linear(8, 2)

    def forward(self, x):
        _, (h, _) = self.layer(x)
        return self.readout(h[-1])


def tagger():
    layer = surnn.SuGRU(6, 8, gate="rhythm", batch_first=True)
    return nn.Sequential(nn.Embedding(11, 6), First(layer), nn.LayerNorm(8), nn.Linear(8, 11))


MODULES = {
    "tokens": tagger, "residual": Residual, "depthwise": Depthwise, "dilated": Dilated,
    "spiking": Spiking, "last state": LastState,
}  # fmt: skip
TIME = {"dilated": 2, "spiking": 0}
"""The time dimension of the input, if it is not 1."""
READOUTS = ("depthwise", "dilated", "last state")
"""Modules that read the last time step, or all: a stream predicts at every one."""


def make_module(name):
    """A module in evaluation mode, an input [T, features], and its predictions [T, size]."""
    torch.manual_seed(1)
    module = MODULES[name]().eval()
    x = torch.randint(11, (STEPS,)) if name == "tokens" else torch.randn(STEPS, 3)
    with torch.no_grad():
        if name in READOUTS:
            parts = [run(module, name, x[: t + 1]) for t in range(STEPS)]
            return module, x, torch.stack(parts)
        return module, x, run(module, name, x).reshape(STEPS, -1)


def run(module, name, x):
    """The module on one sequence with the time first."""
    time = TIME.get(name, 1)
    batch = 1 if time == 0 else 0
    x = x.unsqueeze(batch)
    y = module(x.transpose(1, 2) if time == 2 else x)
    y = y[0] if isinstance(y, tuple) else y
    return y.squeeze(batch)
