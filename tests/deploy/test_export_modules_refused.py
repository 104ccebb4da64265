"""Modules that cannot be exported: the error names the place and the reason."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import surnn
from surnn.deploy.export.modules import NotExportable


class Forward(nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        self.inner = nn.ModuleDict(modules)

    def forward(self, x):
        return self.function(self.inner, x)


def first(inner, x):
    return inner["layer"](x)[0]


def gru(**options):
    return surnn.SuGRU(4, 4, gate="rhythm", batch_first=True, **options)


def gru_of_state(inner, x):
    _, state = inner["gru"](x)
    return inner["gru"](x, state)[0]


def loop(inner, x):
    return torch.stack([inner["map"](x[:, t]) for t in range(x.shape[1])], 1)


def hooked():
    module = nn.Linear(4, 4)
    module.register_forward_hook(lambda *_: None)
    return module


def in_place(inner, x):
    x = inner["map"](x)
    return x + inner["relu"](x)


def padded_twice(inner, x):
    x = functional.pad(x, (4, 0))
    return inner["two"](inner["one"](x))


REFUSED = [
    (nn.Sequential(nn.Linear(4, 4), nn.MaxPool1d(2)), "module '1': MaxPool1d is not among"),
    (nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 4)), "'1': it reads 5 features, but gets 4"),
    (nn.Sequential(gru(), nn.Linear(4, 4)), "module '1': it reads a layer's .y, h."),
    (nn.Sequential(nn.Conv1d(4, 4, 3, padding=1)), r"'0': .*1 later time steps.*pad\(x, \(2, 0\)"),
    (nn.Sequential(nn.Conv1d(4, 4, 3, padding="same")), "1 later time steps"),
    (nn.Sequential(nn.Conv1d(4, 4, 3)), "2 later time steps"),
    (nn.Sequential(nn.Conv1d(4, 4, 3, stride=2)), "stride is 2"),
    (nn.Sequential(nn.Conv1d(4, 4, 3, padding=2)), "0 extra items at its beginning and 2"),
    (nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False)), "no running statistics"),
    (nn.Sequential(nn.LayerNorm((10, 4))), "normalises over 2 dimensions"),
    (nn.Sequential(nn.Embedding(5, 4, max_norm=1.0)), "max_norm"),
    (Forward(first, layer=gru(bidirectional=True)), "'inner.layer': .*bidirectional"),
    (nn.ReLU(), "number of features is unknown"),
    (Forward(gru_of_state, gru=gru()), r"'inner.gru': .*called with more than its input"),
    (Forward(loop, map=nn.Linear(4, 4)), "the module itself: its forward is not a fixed chain"),
    (Forward(lambda inner, x: inner["map"](x), map=hooked()), "'inner.map': .*hooks"),
    (Forward(lambda inner, x: inner["gru"](x)[1][0], gru=gru(num_layers=2)), "layer 0 of a hidden"),
    (Forward(lambda inner, x: inner["gru"](x), gru=gru()), r"returns a layer's \(y, h\)"),
    (Forward(in_place, map=nn.Linear(4, 4), relu=nn.ReLU(inplace=True)), "in place.*used again"),
    (
        Forward(padded_twice, one=nn.Conv1d(4, 4, 3), two=nn.Conv1d(4, 4, 3)),
        "'inner.one': .*reads 2 earlier time steps, but 4 zeros",
    ),
    (Forward(lambda inner, x: inner["map"](x)[:, 3], map=nn.Linear(4, 4)), "reads time step 3"),
    (Forward(lambda inner, x: inner["map"](x)[:, :-1], map=nn.Linear(4, 4)), "drops time steps"),
    (Forward(lambda inner, x: inner["map"](x)[:, ::2], map=nn.Linear(4, 4)), "drops time steps"),
    (Forward(lambda inner, x: inner["map"](x).flip(1), map=nn.Linear(4, 4)), r"\.flip\(\): it"),
    (Forward(lambda inner, x: inner["map"](x).cumsum(1), map=nn.Linear(4, 4)), r"\.cumsum\(\)"),
    (Forward(lambda inner, x: torch.cat([x, x], -1), map=nn.Linear(4, 4)), "itself, cat: it"),
    (Forward(lambda inner, x: x + torch.ones(10, 4), map=nn.Linear(4, 4)), r"shape \[10, 4\]"),
    (
        Forward(lambda inner, x: functional.dropout(inner["map"](x), 0.5), map=nn.Linear(4, 4)),
        "in evaluation too; pass training=self.training",
    ),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_cannot_stream_is_refused_with_place_and_reason(number, tmp_path):
    module, reason = REFUSED[number]
    for write, name in (
        (surnn.export.to_engine, "model.surnn"),
        (surnn.export.to_pt2, "model.pt2"),
    ):
        with pytest.raises(NotExportable, match=reason):
            write(module, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_two_inputs_are_refused(tmp_path):
    with pytest.raises(NotExportable, match=r"needs 2 inputs \(input1, input2\)"):
        surnn.export.to_engine(nn.Bilinear(2, 2, 2), tmp_path / "model.surnn")


def test_a_hint_to_another_format_is_right(tmp_path):
    module = nn.Sequential(nn.Linear(3, 3), nn.CELU())
    with pytest.raises(NotExportable, match=r"module '1': the engine has no CELU.*to_onnx.*to_pt2"):
        surnn.export.to_engine(module, tmp_path / "model.surnn")
    assert surnn.export.to_pt2(module, tmp_path / "model.pt2").exists()


def test_a_gate_that_the_engine_lacks_is_named_with_its_module(tmp_path):
    class Never(surnn.Gate):
        def setup(self, width, input_size):
            self.bias = nn.Parameter(-torch.ones(width))

        def preactivation(self, t, x, memory):
            return self.bias, memory

    module = Forward(first, layer=surnn.SuGRU(3, 4, gate=Never()))
    with pytest.raises(NotExportable, match=r"'inner.layer': .*does not know the gate Never"):
        surnn.export.to_engine(module, tmp_path / "model.surnn")
