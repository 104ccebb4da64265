"""A new mixer or block needs its own class and nothing else: the library uses their protocol."""

import pytest
import torch
from torch import nn

from helpers.building import SMALL, build
from surnn import analysis
from surnn.config import SSMGateConfig
from surnn.deploy.export.check import compare
from surnn.deploy.export.engine import engine_bytes
from surnn.deploy.export.step import streaming_step
from surnn.errors import ConfigError
from surnn.models.base import Block, Mixer, select_state
from surnn.models.blocks import GLUBlock
from surnn.tasks import Output, Values
from surnn.train.evaluate import first_state


class Average(Mixer):
    """An exponential moving average: h_t = h_{t-1} + rate (W x_t - h_{t-1})."""

    dense_recurrence = outputs_state = True

    def __init__(self, width):
        super().__init__()
        self.map = nn.Linear(width, width)

    def forward(self, x, lengths=None):
        return self.run(x, self.init_state(len(x)))[0]

    def init_state(self, batch):
        return self.map.weight.new_zeros(batch, self.map.out_features)

    def step(self, x, state):
        state = state + 0.1 * (self.map(x) - state)
        return state, state

    def run(self, x, state, lengths=None):
        outputs = []
        for frame in x.unbind(1):
            y, state = self.step(frame, state)
            outputs.append(y)
        return torch.stack(outputs, 1), state

    def state_names(self, first):
        return (f"mean_{first}",)


class Difference(Block):
    """x_t - x_{t-1}: a block without a mixer."""

    num_layers = 0

    def forward(self, x, lengths=None, state=None):
        before = self.init_state(x.shape[1]) if state is None else state
        y = x - torch.cat((before.expand(x.shape[1:])[None], x[:-1]))
        return y if state is None else (y, x[-1])

    def init_state(self, batch):
        return torch.zeros(batch, 32)

    def step(self, x, state):
        return x - state, x

    def state_names(self, first):
        return (f"before_{first}",)


@pytest.fixture
def model():
    model = build(Values(3), Output(5, "step")).eval()
    model.blocks = nn.ModuleList([Difference(), model.blocks[0], GLUBlock(Average(32), SMALL)])
    return model.eval()


def test_a_new_mixer_and_block_stream(model):
    x, state = torch.randn(2, 9, 3), model.init_state(2)
    whole = model(x)
    first, state = model(x[:, :4], state=state)
    outputs = [*first.unbind(1)]
    for frame in x[:, 4:].unbind(1):
        y, state = model.step(frame, state)
        outputs.append(y)
    torch.testing.assert_close(torch.stack(outputs, 1), whole)


def test_streams_of_a_new_mixer_can_be_selected(model):
    x = torch.randn(3, 5, 3)
    _, state = model(x, state=model.init_state(3))
    rows = torch.tensor([2, 0])
    frame = torch.randn(3, 3)
    expected, _ = model.step(frame, state)
    y, _ = model.step(frame[rows], select_state(state, rows))
    torch.testing.assert_close(y, expected[rows])


def test_a_new_mixer_and_block_are_exported(model):
    step = streaming_step(model)
    assert list(step.zero_state) == ["t", "before_0", "h_0", "mean_1"]
    assert compare(step, streaming_step(model)).largest == 0
    with pytest.raises(TypeError, match="Difference"):
        engine_bytes(model)


def test_a_new_mixer_is_evaluated_and_recorded(model):
    assert len(first_state(model, 4).layers) == 3
    x = torch.randn(2, 9, 3)
    recording = analysis.record(model, x)
    assert [layer.granularity for layer in recording.layers] == ["16 units", "none"]
    profile = analysis.gradient_profile(model, x, lambda y: y[:, -1].square().sum(-1).mean())
    assert profile.norm.shape == (2, 9)
    assert (profile.norm[1] > 0).all()


def test_a_mixer_that_cannot_continue_is_refused():
    class Whole(Average):
        run = Mixer.run

    with pytest.raises(ConfigError, match="Whole"):
        Whole(4).check_resumable()
    with pytest.raises(TypeError, match="Whole"):
        Whole(4).run(torch.randn(1, 2, 4), None)


def test_the_methods_of_the_protocol_are_required():
    class Nothing(Mixer):
        pass

    with pytest.raises(TypeError, match="init_state"):
        Nothing()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"kind": "sulstm"}, ["h_0", "c_0", "h_1", "c_1"]),
        ({"kind": "lstm"}, ["h_0", "c_0", "h_1", "c_1"]),
        ({"kind": "gru", "block": "stack"}, ["h_0", "h_1"]),
        ({"kind": "sugru", "block": "stack", "gate": SSMGateConfig()},
         ["h_0", "h_1", "gate_0", "gate_1"]),
        ({"kind": "sugru", "gate": SSMGateConfig()}, ["h_0", "gate_0", "h_1", "gate_1"]),
        ({"kind": "mingru", "convolution": 3}, ["x_0", "h_0", "x_1", "h_1"]),
        ({"kind": "linear", "convolution": 3}, ["x_0", "x_1"]),
        ({"kind": "s4d", "pool": "mean"}, ["s_0", "s_1", "total"]),
    ],
    ids=str,
)  # fmt: skip
def test_names_of_exported_states(options, names):
    """Programs that run an ONNX file pass states by these names."""
    assert list(streaming_step(build(**options)).init_state()) == ["t", *names]
