"""``h_n`` in ordinary loops: it holds its clock, or a layer refuses it; never a silent restart."""

import copy
import io

import pytest
import torch
from torch import nn

import surnn
from helpers.scans import close, tensors
from surnn import ClockedTensor, ClockError, SuGRU, SuLSTM, SuSNN

STEPS, BATCH, FEATURES, HIDDEN = 17, 3, 5, 12
GATES = ["rhythm", "ssm", "every_n", surnn.FullGate(conv=2)]
X = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64)


def make(cls=SuGRU, gate="rhythm", **options):
    return cls(FEATURES, HIDDEN, num_layers=2, heads=3, gate=gate, **options).double().eval()


def each(function, hidden):
    """``function`` of h, or of each of (h, c)."""
    return (
        function(hidden) if isinstance(hidden, torch.Tensor) else tuple(function(v) for v in hidden)
    )


def loop(layer, function, pieces=(1, 1, 7, 8), x=X):
    """Outputs of a loop as it is written for nn.GRU, with ``function`` of h between the calls."""
    outputs, h = [], None
    for piece in x.split(list(pieces)):
        y, h = layer(piece, h)
        outputs.append(y)
        h = function(h)
    return torch.cat(outputs)


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _assigned(v):
    other = torch.cat([v[:, :2], v[:, 2:] * 0], 1)
    other[:, 2] = v[:, 2]
    return other


CARRIES = {
    "as it is": lambda v: v,
    "detach": lambda v: v.detach(),
    "data": lambda v: v.data,
    "clone": lambda v: v.clone(),
    "to": lambda v: v.to("cpu", torch.float64).cpu().double().contiguous(),
    "deepcopy": lambda v: copy.deepcopy(v.detach()),
    "save": lambda v: saved(v.detach()),
    "index and cat": lambda v: torch.cat([v[:, 2:], v[:, :2]], 1)[:, [1, 2, 0]],
    "index_select": lambda v: v.index_select(1, torch.tensor([2, 0, 1]))[:, [1, 2, 0]],
    "mask": lambda v: torch.cat([v[:, torch.tensor([True, False, True])], v[:, 1:2]], 1)[
        :, [0, 2, 1]
    ],
    "unbind and stack": lambda v: torch.stack(v.unbind(1), 1),
    "split": lambda v: torch.cat(v.split(1, 1), 1),
    "one sequence": lambda v: torch.cat([v[:, i].unsqueeze(1) for i in range(BATCH)], 1),
    "batch first": lambda v: v.transpose(0, 1).contiguous().transpose(0, 1),
    "flat": lambda v: v.reshape(-1, HIDDEN).view(2, BATCH, HIDDEN),
    "a buffer in time": lambda v: torch.stack([v, v])[1],
    "no one done": lambda v: v * (1 - torch.zeros(BATCH, dtype=torch.float64))[None, :, None],
    "assignment": _assigned,
}


@pytest.mark.parametrize("cls", [SuGRU, SuLSTM, SuSNN])
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("carry", CARRIES)
@torch.no_grad()
def test_a_loop_equals_one_pass(cls, gate, carry):
    layer = make(cls, gate)
    whole, end = layer(X)
    close(loop(layer, lambda h: each(CARRIES[carry], h)), whole)
    assert all(isinstance(v, ClockedTensor) for v in tensors(end))


@pytest.mark.parametrize("cls", [SuGRU, SuLSTM])
def test_a_loop_that_starts_from_zeros_equals_one_pass(cls):
    layer = make(cls)
    zeros = torch.zeros(2, BATCH, HIDDEN, dtype=torch.float64)
    h = zeros if cls is SuGRU else (zeros, zeros)
    outputs = []
    for x_t in X:
        y, h = layer(x_t.unsqueeze(0), h)
        outputs.append(y)
    close(torch.cat(outputs), layer(X)[0])


def test_gradients_flow_through_the_loop():
    for gate in ("rhythm", "ssm"):
        spec = surnn.nn.gates.GATES[gate](mode="soft")
        layer = make(SuGRU, spec)
        found = [
            torch.autograd.grad(y.square().sum(), list(layer.parameters()))
            for y in (layer(X)[0], loop(layer, lambda h: h[:, [2, 0, 1]][:, [1, 2, 0]]))
        ]
        close(*found)


DONE = torch.tensor([False, True, False])
RESETS = {
    "product": lambda v: v * (~DONE).double().view(1, BATCH, 1),
    "product from the left": lambda v: (~DONE).double().view(1, BATCH, 1) * v,
    "product in place": lambda v: v.detach().clone().mul_((~DONE).double().view(1, BATCH, 1)),
    "where": lambda v: torch.where(DONE.view(1, BATCH, 1), torch.zeros_like(v), v),
    "where a number": lambda v: torch.where(DONE.view(1, BATCH, 1), 0.0, v),
    "masked_fill": lambda v: v.masked_fill(DONE.view(1, BATCH, 1), 0.0),
    "assignment": lambda v: _with_zero(v.clone(), DONE),
    "join of new sequences": lambda v: torch.cat(
        [v[:, :1], torch.zeros(2, 1, HIDDEN).to(v), v[:, 2:]], 1
    ),
}


def _with_zero(v, rows):
    v[:, rows] = 0
    return v


@pytest.mark.parametrize("cls", [SuGRU, SuLSTM])
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("reset", RESETS)
@torch.no_grad()
def test_a_sequence_whose_state_is_set_to_zero_starts_again(cls, gate, reset):
    layer = make(cls, gate)
    first, second = X.split([9, 8])
    _, h = layer(first)
    found, _ = layer(second, each(RESETS[reset], h))
    close(found[:, [0, 2]], layer(X)[0][9:, [0, 2]])
    close(found[:, 1:2], layer(second[:, 1:2])[0])


LOSSES = {
    "tanh": torch.tanh,
    "sum": lambda v: v + 1,
    "dropout": lambda v: nn.functional.dropout(v, 0.5),
    "by unit": lambda v: v * torch.ones(HIDDEN).to(v),
    "in place": lambda v: v.detach().clone().add_(1),
    "gather": lambda v: v.gather(1, torch.zeros(2, BATCH, HIDDEN, dtype=torch.long)),
    "features": lambda v: torch.cat([v[..., :6], v[..., 6:]], -1),
    "units assigned": lambda v: _with_unit(v.clone()),
    "lost before": lambda v: torch.tanh(v).detach()[:, [0, 1, 2]],
    "where by unit": lambda v: torch.where(torch.ones(HIDDEN, dtype=torch.bool), v, 0.0),
}


def _with_unit(v):
    v[..., 0] = 0
    return v


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("loss", LOSSES)
@torch.no_grad()
def test_a_state_whose_clock_is_lost_is_refused_with_the_way_out(gate, loss):
    layer = make(SuGRU, gate)
    _, h = layer(X)
    changed = LOSSES[loss](h)
    for piece in (X, X[:1]):
        with pytest.raises(ClockError, match=r"lost in .*h.plain\(\).*init_state"):
            layer(piece, changed)
    assert torch.equal(layer(X, changed.plain())[0], layer(X, changed.plain().clone())[0])
    assert "clock lost by" in repr(changed)


STORES = {
    "numpy": lambda v: v.numpy(),
    "array": lambda v: __import__("numpy").asarray(v),
    "buffer": lambda v: torch.zeros(4, *v.shape).__setitem__(0, v),
    "copy": lambda v: torch.zeros_like(v).copy_(v),
    "out": lambda v: torch._foreach_copy_([torch.zeros_like(v)], [v]),
}


@pytest.mark.parametrize("store", STORES)
def test_a_place_without_a_clock_is_refused(store):
    _, h = make()(X)
    with pytest.raises(ClockError, match=r"cannot hold the clock.*pack\(\).*plain\(\)"):
        STORES[store](h.detach())
    assert STORES[store](h.detach().plain()) is not False


def test_readouts_are_plain_tensors():
    _, h = make()(X)
    for value in (
        h[-1],
        h.plain(),
        nn.functional.linear(h, torch.zeros(2, HIDDEN).to(h)),
        h.mean(),
    ):
        assert type(value) is torch.Tensor
    assert type(torch.zeros_like(h)) is torch.Tensor
    h[-1].detach().numpy()
    h.square().mean().backward()


@pytest.mark.parametrize("gate", ["open", "input"])
def test_layers_that_need_no_clock_return_plain_tensors(gate):
    layer = make(SuGRU, gate)
    whole, end = layer(X)
    assert type(end) is torch.Tensor
    close(loop(layer, lambda h: torch.tensor(h.detach().numpy())), whole)


def test_a_gate_of_the_users_own_is_taken_to_read_the_clock():
    class Late(surnn.InputGate):
        def preactivation(self, t, x, memory):
            return (t > 5).float().unsqueeze(-1) - 0.5, memory

    assert Late.reads_clock
    layer = make(SuGRU, Late())
    close(loop(layer, lambda h: h.detach()), layer(X)[0])


# ---------------------------------------------------------------------------- plain states


@pytest.mark.parametrize("gate", GATES)
def test_an_own_initial_state_starts_a_whole_sequence(gate, recwarn):
    layer = make(SuLSTM, gate)
    first = nn.Parameter(torch.randn(2, 1, HIDDEN, dtype=torch.float64))
    h_0 = first.expand(-1, BATCH, -1).contiguous()
    y, _ = layer(X, (h_0, h_0))
    close(y, layer(X, layer.init_state(BATCH, (h_0, h_0)))[0])
    assert not recwarn.list
    y.sum().backward()
    assert first.grad.abs().sum() > 0


def test_one_time_step_from_a_plain_state_is_refused():
    layer = make()
    _, h = layer(X)
    with pytest.raises(
        ClockError, match=r"hx=None.*init_state\(B\).*pack\(\).*init_state\(B, h_0\)"
    ):
        layer(X[:1], h.plain())
    make(SuGRU, "open")(X[:1], h.plain())


@pytest.mark.filterwarnings("ignore")
def test_traced_exported_and_transformed_layers_refuse_plain_states():
    layer = make().requires_grad_(False)
    h_0 = torch.zeros(2, BATCH, HIDDEN, dtype=torch.float64)
    with pytest.raises(ClockError, match=r"init_state\(B, h_0\)"):
        torch.func.vmap(lambda h: layer(X, h)[0])(h_0.unsqueeze(0))
    with pytest.raises(Exception, match=r"init_state\(B, h_0\)"):
        torch.export.export(layer, (X, h_0), strict=False)
    with pytest.raises(ClockError, match=r"init_state\(B, h_0\)"):
        torch.jit.trace(layer, (X, h_0))
    torch.export.export(layer, (X, layer.init_state(BATCH).pack()), strict=False)


def test_states_of_other_layers_with_other_memories_are_refused():
    plain, memory, wide = make(), make(SuGRU, "ssm"), make(SuGRU, surnn.SSMGate(modes=3))
    with pytest.raises(ClockError, match=r"\[16, 16\] .*have none"):
        memory(X, plain(X)[1])
    with pytest.raises(ClockError, match=r"\[16, 16\] .*brings 3"):
        memory(X, wide(X)[1])


def test_bidirectional_layers_have_no_clock_to_carry():
    layer = SuGRU(FEATURES, HIDDEN, bidirectional=True).double()
    _, h = layer(X)
    assert type(h) is torch.Tensor
    layer(X, h)
    with pytest.raises(ValueError, match="cannot stream"):
        layer(X, make()(X)[1])


# ---------------------------------------------------------------------------- torch.compile


@pytest.mark.parametrize("gate", ["rhythm", "ssm", surnn.FullGate(conv=2, hidden=5)])
@torch.no_grad()
def test_compiled_loops_equal_one_pass(gate):
    layer = make(SuGRU, gate)
    whole, _ = layer(X)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    close(loop(compiled, lambda h: h.detach()[:, [2, 0, 1]][:, [1, 2, 0]], (5, 6, 6)), whole)
    kept = (~DONE).double().view(1, BATCH, 1)
    masked = torch.compile(
        lambda x: loop(layer, lambda h: h * kept, (9, 8), x), fullgraph=True, backend="eager"
    )
    close(masked(X), loop(layer, lambda h: h * kept, (9, 8)))
    lossy = torch.compile(
        lambda x: loop(layer, torch.tanh, (9, 8), x), fullgraph=True, backend="eager"
    )
    with pytest.raises(Exception, match="lost in tanh"):
        lossy(X)


@torch.no_grad()
def test_what_the_compiler_does_not_follow_is_refused():
    """Dynamo does not ask a tensor class about ``cat`` of a tuple: the layer sees a plain state."""
    layer = make()
    joined = lambda x: loop(layer, lambda h: torch.cat((h[:, :1], h[:, 1:]), 1), (9, 8), x)  # noqa: E731
    for fullgraph in (True, False):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=r"init_state\(B, h_0\)"):
            torch.compile(joined, fullgraph=fullgraph, backend="eager")(X)
    torch._dynamo.reset()
    with pytest.raises(ClockError, match=r"init_state\(B, h_0\)"):
        torch.compile(layer, backend="eager")(X, torch.zeros(2, BATCH, HIDDEN, dtype=X.dtype))
    y, _ = torch.compile(layer, backend="eager")(X, layer.init_state(BATCH).pack())
    close(y, layer(X)[0])
