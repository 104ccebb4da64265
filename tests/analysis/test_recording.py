"""What is recorded is what the model did, and the model is left as it was."""

import pytest
import torch

import surnn
from surnn import analysis
from surnn.config import ModelConfig, RhythmConfig
from surnn.models.model import SequenceModel
from surnn.tasks.base import Output, Tokens, Values

BATCH, STEPS, FEATURES, HIDDEN = 3, 20, 4, 8


def model_of(**options):
    gate = options.pop("gate", RhythmConfig(rate=0.3))
    options = {"layers": 2, "width": HIDDEN, "heads": 2} | options
    return SequenceModel(
        ModelConfig(**options), gate, Values(FEATURES), Output(5, "sequence"), STEPS
    )


def layer_of(cls=surnn.SuGRU, **options):
    gate = options.pop("gate", surnn.Rhythm(rate=0.3, horizon=STEPS))
    return cls(FEATURES, HIDDEN, gate=gate, batch_first=True, **options)


def frames():
    return torch.randn(BATCH, STEPS, FEATURES)


def assert_rates(recording, layer):
    torch.testing.assert_close(
        analysis.update_rates(recording).to(layer.update_rate), layer.update_rate
    )


def carried(layer):
    """Where a step's gate is closed, the state before it, and the state after it."""
    closed = layer.gate[:, 1:] == 0
    return layer.state[:, :-1][closed], layer.state[:, 1:][closed]


@pytest.mark.parametrize("cls", [surnn.SuRNN, surnn.SuGRU, surnn.SuLSTM])
@pytest.mark.parametrize("heads", [1, 4])
def test_closed_units_carry_in_every_layer_of_a_stack(cls, heads):
    layer, x = layer_of(cls, num_layers=3, heads=heads), frames()
    recording = analysis.record(layer, x)
    assert [found.name for found in recording.layers] == ["layer 1", "layer 2", "layer 3"]
    for found in recording.layers:
        assert found.gate.shape == found.state.shape == (BATCH, STEPS, HIDDEN)
        before, after = carried(found)
        assert len(before)
        assert torch.equal(before, after)
    with torch.no_grad():
        y, _ = layer(x)
    assert torch.equal(recording.layers[-1].state, y)
    assert torch.equal(recording.output, y)
    assert_rates(recording, layer)


def test_states_are_those_of_the_stream():
    layer, x = layer_of(surnn.SuLSTM, num_layers=2, heads=2), frames()
    recording = analysis.record(layer, x)
    state = layer.init_state(BATCH)
    for t in range(STEPS):
        _, state = layer.step(x[:, t], state)
        for number, found in enumerate(recording.layers):
            torch.testing.assert_close(found.state[:, t], state.cell[number, 0])


@pytest.mark.parametrize("block", ["residual", "feedforward", "stack"])
def test_a_models_layers_and_blocks(block):
    model, x = model_of(block=block), frames()
    recording = analysis.record(model, x)
    assert [found.name for found in recording.layers] == ["layer 1", "layer 2"]
    assert all(found.granularity == "4 units" for found in recording.layers)
    assert len(recording.blocks) == len(model.blocks)
    assert recording.blocks[-1].shape == (BATCH, STEPS, HIDDEN)
    with torch.no_grad():
        assert torch.equal(recording.output, model(x))


@pytest.mark.parametrize(
    ("granularity", "heads", "shown", "group"),
    [
        ("unit", 2, "unit", 1),
        ("head", 2, "4 units", 4),
        ("layer", 1, "layer", 8),
        (2, 1, "2 units", 2),
    ],
)
def test_granularity(granularity, heads, shown, group):
    gate = surnn.Rhythm(rate=0.3, horizon=STEPS, granularity=granularity)
    (found,) = analysis.record(layer_of(gate=gate, heads=heads), frames()).layers
    assert (found.granularity, found.group) == (shown, group)
    each = found.gate[..., ::group]
    assert torch.equal(each.repeat_interleave(group, -1), found.gate)
    assert analysis.raster(found).shape == (HIDDEN // group, STEPS)


def test_gates_that_see_the_input_differ_between_sequences():
    layer = layer_of(gate=surnn.InputGate(rate=0.3), heads=2, num_layers=2)
    for found in analysis.record(layer, frames()).layers:
        assert not torch.equal(found.gate[0], found.gate[1])


def test_lengths_and_both_directions():
    layer, x = layer_of(bidirectional=True), frames()
    lengths = torch.tensor([STEPS, 5, 9])
    recording = analysis.record(layer, x, lengths)
    forwards, backwards = recording.layers
    assert (forwards.name, backwards.name) == ("layer 1", "layer 1, backwards")
    with torch.no_grad():
        y, _ = layer(x, lengths=lengths)
    assert torch.equal(torch.cat((forwards.state, backwards.state), -1), y)
    for found in recording.layers:
        assert (found.gate[1, 5:] == 0).all()
    assert_rates(recording, layer)


@pytest.mark.parametrize("kind", ["gru", "lstm", "rnn", "mingru", "s4d"])
def test_baselines_update_everything(kind):
    model = model_of(kind=kind, heads=None, gate=RhythmConfig())
    recording = analysis.record(model, frames(), torch.tensor([STEPS, 5, 9]))
    assert analysis.update_rates(recording).tolist() == [1.0, 1.0]
    assert all(found.granularity == "none" for found in recording.layers)
    assert all((found.state[1, 5:] == 0).all() for found in recording.layers)


def test_tokens_pairs_and_expanded_states():
    model = SequenceModel(
        ModelConfig(layers=1, width=HIDDEN, expand=2, heads=2, groups=2),
        RhythmConfig(rate=0.3),
        Tokens(7),
        Output(2, "sequence", pairs=True),
        STEPS,
    )
    pairs = torch.randint(7, (BATCH, 2, STEPS))
    (found,) = analysis.record(model, pairs, torch.full((BATCH, 2), STEPS)).layers
    assert found.state.shape == (2 * BATCH, STEPS, 2 * HIDDEN)


def test_the_model_is_left_as_it_was():
    model = model_of(dropout=0.5).train()
    hooks = [len(module._forward_hooks) for module in model.modules()]
    analysis.record(model, frames())
    assert model.training
    assert [len(module._forward_hooks) for module in model.modules()] == hooks
    assert all("_scan" not in vars(layer) for layer in model.selective_layers())


def test_a_model_without_recurrence():
    with pytest.raises(ValueError, match="no recurrent layer"):
        analysis.record(model_of(kind="transformer", heads=2, gate=RhythmConfig()), frames())
    with pytest.raises(ValueError, match="no recurrent layer"):
        analysis.record(torch.nn.Linear(FEATURES, 2), frames())


# ---------------------------------------------------------------------------- rates


def record_of(rows):
    """A layer of hand-made schedules, a string for each unit."""
    gate = torch.tensor([[float(c == "x") for c in row] for row in rows]).T.unsqueeze(0)
    return analysis.LayerRecord("layer 1", "unit", gate, torch.zeros_like(gate))


def test_intervals_of_a_hand_made_schedule():
    layer = record_of(["x..x.x", ".x....", "xxxxxx", "......"])
    #                   3  2      none     1 five times   none
    assert analysis.intervals(layer).tolist() == [0, 5, 1, 1, 0, 0]
    assert analysis.unit_rates(layer).tolist() == pytest.approx([3 / 6, 1 / 6, 1.0, 0.0])
    assert analysis.raster(layer)[0].tolist() == [True, False, False, True, False, True]


def test_intervals_do_not_run_from_one_sequence_into_the_next():
    gate = torch.zeros(2, 5, 1)
    gate[0, 4], gate[1, 0] = 1, 1
    layer = analysis.LayerRecord("layer 1", "unit", gate, gate)
    assert analysis.intervals(layer).sum() == 0
