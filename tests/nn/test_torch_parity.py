"""Gates open, layers are torch's: results, gradients, packed input, weights, arguments."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from helpers.scans import close
from surnn import AlwaysOpen, SuGRU, SuLSTM, SuRNN, SuSNN

PAIRS = [(SuGRU, nn.GRU, {}), (SuLSTM, nn.LSTM, {}), (SuRNN, nn.RNN, {})]
PAIRS += [(SuRNN, nn.RNN, {"nonlinearity": "relu"})]
STEPS, BATCH, FEATURES, HIDDEN = 17, 3, 5, 12


@pytest.mark.parametrize(("ours", "theirs", "options"), PAIRS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_open_gates_equal_torch(ours, theirs, options, bidirectional, batch_first, bias):
    module = theirs(
        FEATURES,
        HIDDEN,
        num_layers=2,
        bias=bias,
        batch_first=batch_first,
        bidirectional=bidirectional,
        **options,
    ).double()
    x = torch.randn(BATCH, STEPS, FEATURES, dtype=torch.float64)
    x = (x if batch_first else x.transpose(0, 1)).requires_grad_()
    first = torch.randn(2 * (1 + bidirectional), BATCH, HIDDEN, dtype=torch.float64)
    hx = (first, first * 0.5) if ours is SuLSTM else first
    for backend in ("reference", "events"):
        layer = ours.from_torch(module, gate=AlwaysOpen(), backend=backend)
        for given in (None, hx):
            expected, found = module(x, given), layer(x, given)
            close(found[0], expected[0])
            close(found[1], expected[1])
        grads = [
            torch.autograd.grad(m(x, hx)[0].square().sum(), [x, *m.parameters()])
            for m in (module, _without_gates(layer))
        ]
        close(grads[1], grads[0])


def _without_gates(layer):
    layer.gates.requires_grad_(False)
    layer.parameters = lambda: nn.Module.parameters(layer, recurse=False)
    return layer


@pytest.mark.parametrize(("ours", "theirs", "options"), PAIRS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_packed_sequences_equal_torch(ours, theirs, options, bidirectional, enforce_sorted):
    module = theirs(FEATURES, HIDDEN, num_layers=2, bidirectional=bidirectional, **options)
    module = module.double()
    lengths = [17, 9, 4] if enforce_sorted else [4, 17, 9]
    x = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
    expected = module(packed)
    for backend in ("reference", "events"):
        found = ours.from_torch(module, gate=AlwaysOpen(), backend=backend)(packed)
        close(found[0].data, expected[0].data)
        assert torch.equal(found[0].batch_sizes, expected[0].batch_sizes)
        close(pad_packed_sequence(found[0])[0], pad_packed_sequence(expected[0])[0])
        close(found[1], expected[1])


@pytest.mark.parametrize(("ours", "theirs", "options"), PAIRS)
def test_unbatched_input_equals_torch(ours, theirs, options):
    module = theirs(FEATURES, HIDDEN, **options).double()
    layer = ours.from_torch(module, gate=AlwaysOpen())
    x = torch.randn(STEPS, FEATURES, dtype=torch.float64)
    hx = module(x)[1]
    for given in (None, hx):
        expected, found = module(x, given), layer(x, given)
        close(found[0], expected[0])
        close(found[1], expected[1])


@pytest.mark.parametrize(("ours", "theirs", "options"), PAIRS)
def test_weights_go_to_torch_and_back(ours, theirs, options):
    module = theirs(FEATURES, HIDDEN, num_layers=2, dropout=0.25, bidirectional=True, **options)
    layer = ours.from_torch(module, gate="rhythm")
    back = layer.to_torch()
    assert type(back) is theirs
    assert back.dropout == 0.25
    for name, value in module.state_dict().items():
        assert torch.equal(back.state_dict()[name], value)
    heads = ours(FEATURES, HIDDEN, heads=3, gate=AlwaysOpen(), **options).double()
    x = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64)
    close(heads.to_torch()(x)[0], heads(x)[0])


@pytest.mark.parametrize(("ours", "theirs", "options"), PAIRS)
def test_requires_grad_is_preserved(ours, theirs, options):
    module = theirs(FEATURES, HIDDEN, bidirectional=True, **options)
    module.weight_hh_l0.requires_grad_(False)
    module.bias_ih_l0_reverse.requires_grad_(False)
    layer = ours.from_torch(module, gate="rhythm")
    for other in (layer, layer.to_torch()):
        for name, parameter in module.named_parameters():
            assert other.get_parameter(name).requires_grad == parameter.requires_grad, name
    assert all(parameter.requires_grad for parameter in layer.gates.parameters())


def test_what_torch_cannot_hold_is_refused():
    with pytest.raises(TypeError, match="GRU, got LSTM"):
        SuGRU.from_torch(nn.LSTM(3, 4))
    with pytest.raises(ValueError, match="heads must be 1"):
        SuGRU.from_torch(nn.GRU(3, 4), heads=2)
    with pytest.raises(ValueError, match="proj_size"):
        SuLSTM.from_torch(nn.LSTM(3, 4, proj_size=2))
    with pytest.raises(ValueError, match="no torch counterpart"):
        SuSNN(3, 4).to_torch()
    with pytest.raises(ValueError, match="no torch counterpart"):
        SuGRU(4, 4, expand=2).to_torch()


@pytest.mark.parametrize(("ours", "theirs"), [(SuGRU, nn.GRU), (SuLSTM, nn.LSTM), (SuRNN, nn.RNN)])
def test_positional_arguments_are_torchs(ours, theirs):
    kind = ("relu",) if theirs is nn.RNN else ()
    arguments = (5, 12, 2, *kind, False, True, 0.25, True)
    expected, layer = theirs(*arguments), ours(*arguments)
    names = ("num_layers", "bias", "batch_first", "dropout", "bidirectional", "nonlinearity")
    for name in names:
        assert getattr(layer, name, None) == getattr(expected, name, None)
