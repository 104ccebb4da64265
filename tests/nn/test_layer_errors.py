"""Wrong use of layers: what came, what was expected, how to fix it."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import surnn
from surnn import AlwaysOpen, SelectiveLayer, SuGRU, SuLSTM, SuRNN, SuSNN
from surnn.nn.layers.options import LayerOptions

STEPS, BATCH, FEATURES = 17, 3, 5
X = torch.zeros(STEPS, BATCH, FEATURES)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: SuGRU(5, 12, heads=5), ValueError, "5 heads.* 12 units"),
        (lambda: SuGRU(5, 0), ValueError, "hidden_size .*got 0"),
        (lambda: SuGRU(5, 12, dropout=1.5), ValueError, "dropout .*got 1.5"),
        (lambda: SuGRU(5, 12, 2, dropout=True), ValueError, "dropout .*got True"),
        (lambda: SuGRU(5, 12, backend="cuda"), ValueError, "'cuda'.* auto, reference, ev"),
        (
            lambda: SuGRU(5, 12, backend="triton")(torch.zeros(3, 2, 5)),
            ValueError,
            "x is on cpu",
        ),
        (lambda: SuGRU(5, 12, max_rate=0.0), ValueError, "max_rate .*got 0.0"),
        (lambda: SuGRU(5, 12, nonfinite="warn"), ValueError, "'propagate' or 'raise'"),
        (lambda: SuGRU(5, 12, 2, gate=["open"]), ValueError, "1 gates for 2 layers"),
        (lambda: SuGRU(5, 12, expand=2, groups=2), ValueError, "in_features 5"),
        (lambda: SuRNN(5, 12, nonlinearity="gelu"), ValueError, "'tanh' or 'relu'"),
        (lambda: SuSNN(5, 12, neuron="gru"), ValueError, "not a spiking cell"),
        (lambda: SuSNN(5, 12, neuron="izhikevich"), ValueError, "unknown cell"),
        (lambda: SuGRU(5, 12)(X[0, 0]), ValueError, r"got 1 dimensions: \[5\]"),
        (lambda: SuGRU(5, 12)(X[None]), ValueError, "got 4 dimensions"),
        (lambda: SuGRU(6, 12)(X), ValueError, r"input_size, got \[17, 3, 5\]"),
        (lambda: SuGRU(5, 12)(X[:0]), ValueError, "no time steps"),
        (lambda: SuGRU(5, 12, batch_first=True)(X[:, :0]), ValueError, "no time steps"),
        (lambda: SuGRU(5, 12)(X.long()), TypeError, "torch.int64"),
        (lambda: SuGRU(5, 12)([1, 2]), TypeError, "got list"),
        (lambda: SuGRU(5, 12)(X, X), ValueError, r"initial h must be \[1, 3, 12\]"),
        (lambda: SuLSTM(5, 12)(X, X), ValueError, r"2 tensor\(s\) \(h, c\), got 1"),
        (lambda: SuGRU(5, 12)(X, lengths=[1, 2]), ValueError, "3 integers.*got"),
        (lambda: SuGRU(5, 12)(X, lengths=[0, 1, 2]), ValueError, "T = 17, got 0 to 2"),
        (lambda: SuGRU(5, 12)(X, lengths=[True] * 3), ValueError, "3 integers.*got torch.bool"),
        (lambda: SuGRU(5, 12)(X, 0), TypeError, r"tensors \[1, 3, 12\] \(h\).*got int"),
        (
            lambda: SuLSTM(5, 12)(X, (X, 0)),
            TypeError,
            r"\(h and c\).*got Tensor, int",
        ),
        (
            lambda: SuGRU(5, 12)(X, torch.zeros(1, 3, 12).double()),
            ValueError,
            r"initial h is torch.float64.* h.to\(torch.float32\)",
        ),
        (lambda: SuGRU(5, 12, bidirectional=True).init_state(), ValueError, "cannot stream"),
        (lambda: SuGRU(5, 12).step(X[0], torch.zeros(1)), TypeError, "layer.init_state"),
        (lambda: _step(SuGRU(5, 12), X), ValueError, r"\[17, 3, 5\].*layer\(x, state\)"),
        (lambda: _step(SuGRU(5, 12), X[0, :1]), ValueError, r"\[1, 1, 3, 12\].*init_state\(1\)"),
        (lambda: SuGRU(5, 12).update_rate, AttributeError, "update_rate needs a forward"),
        (lambda: SuGRU(5, 12).rate_penalty(), RuntimeError, r"rate_penalty\(\) needs a forward"),
        (lambda: _run(SuLSTM(5, 12, backend="onepass")), ValueError, "'lstm'"),
        (lambda: SuGRU(5, 12)(X.double()), ValueError, "input dtype torch.float64 does not"),
        (
            lambda: SuGRU(5, 12)(X.double()),
            ValueError,
            r"Convert input: input.to\(torch.float32\), or .*float64\)$",
        ),
        (lambda: SuGRU(5, 12)(X.half()), ValueError, r"or run under torch.autocast$"),
        (
            lambda: SuGRU(5, 12).double()(X.double(), SuGRU(5, 12).init_state(BATCH)),
            ValueError,
            r"state.cell is torch.float32.*to\(torch.float64\)",
        ),
        (lambda: _twice("events"), RuntimeError, "use backend='reference'"),
        (lambda: _twice("native"), RuntimeError, "use backend='reference'"),
        (lambda: _twice("onepass"), RuntimeError, "use backend='reference'"),
        (lambda: SuGRU(5, 12, groups=3), ValueError, "groups=3 needs expand > 1"),
        (lambda: SuRNN(5, 12, 1, "tanh", "no"), TypeError, "bias .*got 'no'"),
        (lambda: SuLSTM(5, 12, proj_size=3), ValueError, "proj_size.*got 3"),
        (lambda: SuGRU.from_torch(nn.GRU(5, 12), expand=2), ValueError, "expand must be 1"),
        (
            lambda: SuSNN(5, 12, neuron="lif", adaptation_always_decays=True),
            ValueError,
            "no adaptation",
        ),
        (lambda: _packed(lengths=[17, 9, 4]), ValueError, "leave out lengths="),
        (
            lambda: _step_with(t=torch.zeros(2).long()),
            ValueError,
            r"state.t .*got torch.int64 \[2\]",
        ),
        (lambda: _step_with(t=7), ValueError, "state.t .*got int"),
        (
            lambda: _step_with(gates=(torch.zeros(1, 4),)),
            ValueError,
            r"state.gates .*\[\[3, 0",
        ),
        (
            lambda: SuGRU(5, 12, skip_drive=5.0, backend="onepass").init_state(),
            ValueError,
            "skip_drive=5.0",
        ),
    ],
)
def test_errors_say_what_came_what_was_expected_and_how_to_mend(call, error, message):
    with pytest.raises(error, match=message):
        call()


def _step(layer, frame):
    return layer.step(frame, layer.init_state(BATCH))


def _step_with(**changes):
    layer = SuGRU(5, 12)
    return layer.step(X[0], layer.init_state(BATCH)._replace(**changes))


def _twice(backend):
    """Gradients of gradients."""
    layer = SuGRU(5, 12, gate=AlwaysOpen(), backend=backend)
    x = torch.randn(4, 2, 5, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
    return torch.autograd.grad(gradient.square().sum(), x)


def test_gradients_of_gradients_by_reference():
    assert _twice("reference")[0].abs().sum() > 0


def _packed(**options):
    return SuGRU(5, 12)(pack_padded_sequence(X, [17, 9, 4]), **options)


def _run(layer):
    return layer(X)


def test_a_gate_of_the_wrong_width_is_named():
    class Odd(surnn.Gate):
        def preactivation(self, t, x, memory):
            return torch.ones(*t.shape, 7), memory

    with pytest.raises(ValueError, match=r"\[17, 1, 7\].* width, 12"):
        SuGRU(5, 12, gate=Odd())(X)


def test_a_gate_that_forgets_its_memory_is_named():
    class Forgetful(surnn.Gate):
        def preactivation(self, t, x, memory):
            return torch.ones(*t.shape, 12)

    with pytest.raises(TypeError, match=r"Forgetful.preactivation .*got Tensor"):
        SuGRU(5, 12, gate=Forgetful())(X)


def test_a_penalty_without_a_gradient_is_refused():
    layer = SuGRU(5, 12, gate=surnn.Rhythm(target_rate=0.3))
    x = torch.randn(*X.shape, requires_grad=True)

    def checkpointed(use_reentrant):
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=use_reentrant)
        return layer.rate_penalty()

    assert checkpointed(False).requires_grad
    with pytest.raises(RuntimeError, match="use use_reentrant=False"):
        checkpointed(True)
    with torch.no_grad():
        layer(x)
        value = layer.rate_penalty()  # reading it is allowed
    with pytest.raises(RuntimeError, match="no gradient"):
        layer.rate_penalty()
    assert layer.eval().rate_penalty() == value
    for other in (surnn.Rhythm(), surnn.Rhythm(target_rate=0.3, frozen=True)):  # no gate to train
        layer = SuGRU(5, 12, gate=other)
        layer(X)
        assert not layer.rate_penalty().requires_grad
    layer = SuGRU(5, 12, gate=surnn.Rhythm(target_rate=0.3))
    layer.gates[0].frozen = True
    layer(X)
    assert not layer.rate_penalty().requires_grad
    layer = SuGRU(5, 12, gate=surnn.Rhythm(target_rate=0.3)).requires_grad_(False)
    layer(X)
    assert not layer.rate_penalty().requires_grad


def test_nonfinite_policy():
    bad = X.clone()
    bad[3, 1, 2] = float("nan")
    with pytest.raises(ValueError, match="step 3, sequence 1, feature 2"):
        SuGRU(5, 12, nonfinite="raise")(bad)
    SuGRU(5, 12, nonfinite="raise")(X)
    SuGRU(5, 12, nonfinite="raise")(bad, lengths=[17, 3, 17])  # the NaN is in the padding
    y, _ = SuGRU(5, 12, gate=AlwaysOpen())(bad)
    assert y[:3].isfinite().all()
    assert not y[3:, 1].isfinite().any()
    assert y[:, [0, 2]].isfinite().all()
    y, _ = SuGRU(5, 12, gate=surnn.InputGate()).eval()(bad)
    assert y.isfinite().all()  # a gate that sees NaN stays closed


def test_chosen_backend_resolves_auto():
    assert SuGRU(5, 12).chosen_backend == "native"
    assert SuGRU(5, 12, dtype=torch.float64).chosen_backend == "events"
    assert SuGRU(5, 12, backend="reference").chosen_backend == "reference"


def test_lengths_are_checked_again_when_they_change():
    layer = SuGRU(5, 12)
    x, lengths = torch.randn(7, 2, 5), torch.tensor([7, 3])
    layer(x, lengths=lengths)
    with pytest.raises(ValueError, match="T = 6"):
        layer(x[:6], lengths=lengths)
    layer(x, lengths=lengths)
    lengths[1] = 0
    with pytest.raises(ValueError, match="T = 7, got 0 to 7"):
        layer(x, lengths=lengths)
    with torch.inference_mode():
        lengths = torch.tensor([7, 3])
        layer(x, lengths=lengths)
        lengths[0] = 8
        with pytest.raises(ValueError, match="got 3 to 8"):
            layer(x, lengths=lengths)


@pytest.mark.parametrize("layer", [SuRNN, SuGRU, SuLSTM, SuSNN])
def test_signatures_and_texts_name_every_option(layer):
    names = set(inspect.signature(layer).parameters)
    base = set(inspect.signature(SelectiveLayer).parameters) - {"cell", "unknown"}
    assert names >= base
    assert all(
        f"    {name}: " in layer.__doc__ for name in names - {"device", "dtype", "proj_size"}
    )
    assert set(LayerOptions.__annotations__) == {
        name for name, option in inspect.signature(SelectiveLayer).parameters.items()
        if option.kind is option.KEYWORD_ONLY and name != "cell"
    }  # fmt: skip


def test_unknown_options_have_a_suggestion():
    with pytest.raises(TypeError, match=r"'droput'.*'dropout'"):
        SuGRU(3, 4, droput=0.1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'zzz'.*input_size, hidden_size"):
        SuLSTM(3, 4, zzz=1)  # type: ignore[call-arg]


def test_a_cell_without_its_parameters_is_refused():
    layer = surnn.SelectiveLayer(4, 8, cell="gru")  # only SuGRU has b_hn
    with pytest.raises(ValueError, match=r"bias_hn.*use its own layer"):
        layer(torch.zeros(3, 2, 4))
