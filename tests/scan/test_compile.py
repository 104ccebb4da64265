"""torch.compile, opcheck, torch.func, export: the operators as torch sees them."""

import pytest
import torch
import torch._dynamo.testing

import surnn
from helpers.scans import make_inputs, reference_scan
from surnn.nn.gates import GATES
from surnn.scan import onepass
from surnn.scan.events.op import events_backward, events_forward
from surnn.scan.events.plan import EventPlan
from surnn.scan.native.op import native_backward, native_forward

STEPS, BATCH, FEATURES, HIDDEN = 13, 3, 5, 12


@pytest.fixture(autouse=True)
def _reset_dynamo():
    torch._dynamo.reset()


@pytest.mark.parametrize("cell", ["gru", "lstm", "alif"])
@pytest.mark.parametrize("per_sequence", [False, True])
def test_opcheck_events(cell, per_sequence):
    i = make_inputs(cell, steps=6, per_sequence=per_sequence, per_unit=True, dtype=torch.float32)
    rows = EventPlan(i.gate.detach(), 3).rows
    torch.library.opcheck(events_forward, (*i.flat(), i.state, rows))
    y, last, *saved = (v.detach() for v in events_forward(*i.flat(), i.state, rows))
    operands = [v.detach() if isinstance(v, torch.Tensor) else v for v in i.flat()]
    torch.library.opcheck(
        events_backward,
        (*operands, torch.randn_like(y), torch.randn_like(last), *saved, True),
        test_utils=("test_schema", "test_faketensor"),
    )


@pytest.mark.parametrize("cell", ["gru", "lstm", "alif"])
@pytest.mark.parametrize("per_sequence", [False, True])
def test_opcheck_native(cell, per_sequence):
    i = make_inputs(cell, steps=6, per_sequence=per_sequence, per_unit=True, dtype=torch.float32)
    updates = int(i.gate.detach().expand(6, 3, 2, 3).sum())
    torch.library.opcheck(native_forward, (*i.flat(), i.state, updates, True))
    y, last, *saved = (v.detach() for v in native_forward(*i.flat(), i.state, 0, True))
    operands = [v.detach() if isinstance(v, torch.Tensor) else v for v in i.flat()]
    grads = torch.randn_like(y), torch.randn_like(last)
    for needs in ([True] * 7, [False] * 7):
        torch.library.opcheck(
            native_backward,
            (*operands, *grads, i.state.detach(), *saved, needs),
            test_utils=("test_schema", "test_faketensor"),
        )


def test_opcheck_fused_gru():
    shapes = [(6, 2, 5), (1, 2, 4), (12, 5), (12, 4), (12,), (12,)]
    arguments = tuple(torch.randn(s, requires_grad=True) for s in shapes)
    torch.library.opcheck(onepass.fused_gru, arguments)


@pytest.mark.parametrize("cls", [surnn.SuRNN, surnn.SuGRU, surnn.SuLSTM, surnn.SuSNN])
@pytest.mark.parametrize("gate", ["rhythm", "ssm", "full"])
def test_fullgraph_compile_equals_eager(cls, gate):
    spec = GATES[gate](target_rate=0.7, **({"conv": 2} if gate == "full" else {}))
    layer = cls(FEATURES, HIDDEN, num_layers=2, heads=3, gate=spec, bidirectional=True).eval()
    _compiled_equals_eager(layer)


def test_annealed_gates_with_a_margin_are_compiled_once():
    gate = surnn.FullGate(conv=2, mode="relaxed", margin=0.2)
    layer = surnn.SuGRU(FEATURES, HIDDEN, heads=3, gate=gate)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    x = torch.randn(STEPS, BATCH, FEATURES)
    for step in range(4):
        surnn.anneal(layer, step, begin=0, end=3)
        results = []
        for call in (layer, compiled):
            layer.zero_grad()
            y, _ = call(x)
            (y.square().sum() + layer.margin_penalty()).backward()
            results.append((y, *(p.grad for p in layer.parameters())))
        for eager, found in zip(*results, strict=True):
            torch.testing.assert_close(found, eager)
    assert counter.frame_count == 1


def test_fullgraph_compile_of_the_fused_form():
    _compiled_equals_eager(surnn.SuGRU(FEATURES, HIDDEN, backend="onepass"))


def _compiled_equals_eager(layer):
    x = torch.randn(STEPS, BATCH, FEATURES)
    lengths = torch.tensor([STEPS, 4, 9])
    results = []
    for call in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        layer.zero_grad()
        y, _ = call(x, lengths=lengths)
        (y.square().sum() + layer.rate_penalty()).backward()
        grads = [torch.zeros(()) if p.grad is None else p.grad for p in layer.parameters()]
        results.append((y, layer.update_rate, *grads))
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager)


def test_an_option_that_cannot_be_compiled_is_an_error():
    layer = surnn.SuGRU(FEATURES, HIDDEN, nonfinite="raise")
    with pytest.raises(Exception, match="nonfinite='propagate'"):
        torch.compile(layer, fullgraph=True, backend="eager")(torch.zeros(4, 2, FEATURES))


def test_meta_tensors_have_shapes():
    layer = surnn.SuGRU(FEATURES, HIDDEN, heads=3, device="meta")
    y, h_n = layer(torch.empty(STEPS, BATCH, FEATURES, device="meta"))
    assert y.shape == (STEPS, BATCH, HIDDEN)
    assert h_n.device.type == "meta"


def test_inductor_compiles_a_layer_in_a_model():
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 8), torch.nn.GELU(), _Last())
    x = torch.randn(STEPS, BATCH, FEATURES)
    compiled = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


class _Last(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = surnn.SuGRU(8, HIDDEN, heads=3)

    def forward(self, x):
        return self.layer(x)[0][-1]


def test_a_new_length_does_not_unroll_time():
    """The graph holds one operator however long the sequence is."""
    graphs = []

    def count(graph, example):
        graphs.append(sum("surnn" in str(node.target) for node in graph.graph.nodes))
        return graph

    layer = surnn.SuGRU(FEATURES, HIDDEN, heads=3)
    compiled = torch.compile(layer, fullgraph=True, backend=count)
    for steps in (5, 50, 500):
        compiled(torch.randn(steps, BATCH, FEATURES))
    assert set(graphs) == {1}


def test_the_step_exports_with_its_clock():
    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = surnn.SuGRU(FEATURES, HIDDEN, num_layers=2, heads=3, gate="ssm").eval()

        def forward(self, x, state):
            return self.layer.step(x, state)

    step = Step()
    state = step.layer.init_state(BATCH)
    exported = torch.export.export(step, (torch.randn(BATCH, FEATURES), state)).module()
    ours = theirs = state
    for _ in range(20):
        x = torch.randn(BATCH, FEATURES)
        (y, ours), (again, theirs) = step(x, ours), exported(x, theirs)
        torch.testing.assert_close(again, y)
    assert theirs.t == 20


def test_double_backward_on_reference():
    inputs = make_inputs("gru", steps=4, batch=2, width=2, features=2, binary=False)

    def run(x, gate):
        return reference_scan(inputs.__class__(**{**inputs.__dict__, "x": x, "gate": gate}))[0]

    assert torch.autograd.gradgradcheck(run, (inputs.x, inputs.gate))


def test_torch_func_on_reference():
    layer = surnn.SuGRU(FEATURES, HIDDEN, heads=3, backend="reference").double()
    parameters = {k: v.detach() for k, v in layer.named_parameters()}
    x = torch.randn(4, STEPS, FEATURES, dtype=torch.float64)

    def loss(parameters, sequence):
        y, _ = torch.func.functional_call(layer, parameters, (sequence,))
        return y.square().sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for b in range(4):
        layer.zero_grad()
        layer(x[b])[0].square().sum().backward()
        for name, parameter in layer.named_parameters():
            torch.testing.assert_close(each[name][b], parameter.grad)


def test_gradcheck_of_whole_layers():
    """Cells, granularities, clock and input gates, in soft mode where differences exist."""
    for cls in (surnn.SuRNN, surnn.SuGRU, surnn.SuLSTM):
        for granularity in ("unit", "head", "layer"):
            for gate in (surnn.Rhythm, surnn.InputGate, surnn.SSMGate):
                spec = gate(granularity=granularity, mode="soft")
                layer = cls(2, 4, heads=2, gate=spec, backend="events").double()
                x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
                names, values = zip(*layer.named_parameters(), strict=True)

                def run(x, *given, layer=layer, names=names):
                    parameters = dict(zip(names, given, strict=True))
                    return torch.func.functional_call(layer, parameters, (x,))[0]

                assert torch.autograd.gradcheck(run, (x, *values), fast_mode=True)


def test_each_of_padded_sequences_by_vmap():
    layer = surnn.SuGRU(4, 6, gate=surnn.Rhythm(rate=0.5))
    x, lengths = torch.randn(9, 3, 4), torch.tensor([9, 3, 4])
    each = torch.func.vmap(
        lambda one, length: layer(one[:, None], lengths=length[None])[0][:, 0], (1, 0), 1
    )(x, lengths)
    torch.testing.assert_close(each, layer(x, lengths=lengths)[0])
