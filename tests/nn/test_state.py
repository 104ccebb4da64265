"""``SuState``: reset, selection, joining, packing, saving, its text."""

import zipfile

import numpy as np
import pytest
import torch

import surnn
from helpers.scans import close
from surnn import FullGate, SuGRU, SuLSTM, SuSNN, SuState

STEPS, BATCH, FEATURES, HIDDEN = 17, 3, 5, 12
X = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64)
CASES = [(SuGRU, "rhythm"), (SuLSTM, "ssm"), (SuSNN, ["ssm", "rhythm"]), (SuLSTM, "open")]
CASES.append((SuGRU, FullGate(conv=2)))


def make(cls, gate):
    return cls(FEATURES, HIDDEN, num_layers=2, heads=3, gate=gate).double().eval()


def flat(state):
    return (state.cell, state.t.expand(state.cell.shape[2]).double(), *state.gates)


@pytest.mark.parametrize(("cls", "gate"), CASES)
@torch.no_grad()
def test_reset_starts_the_sequences_that_are_done(cls, gate):
    layer = make(cls, gate)
    _, state = layer(X[:9], layer.init_state(BATCH))
    for done in (torch.tensor([False, True, False]), torch.tensor([0.0, 1.0, 0.0])):
        again = state.reset(done)
        assert again.t.tolist() == [9, 0, 9]
        y, _ = layer(X[9:], again)
        close(y[:, [0, 2]], layer(X)[0][9:, [0, 2]])
        close(y[:, 1:2], layer(X[9:, 1:2])[0])
    with pytest.raises(ValueError, match=r"done must be \[3\].*got \[2\]"):
        state.reset(torch.zeros(2))


@pytest.mark.parametrize(("cls", "gate"), CASES)
@torch.no_grad()
def test_selection_and_joining(cls, gate):
    layer = make(cls, gate)
    _, state = layer(X[:9], layer.init_state(BATCH), lengths=[9, 4, 2])
    parts = [state.select(i) for i in (0, 1, -1)]
    close(flat(SuState.cat(parts)), flat(state))
    mixed = SuState.cat([state.select(slice(0, 2)), layer.init_state(1)])
    assert mixed.t.tolist() == [9, 4, 0]
    close(flat(mixed.select(torch.tensor([True, True, False]))), flat(state.select([0, 1])))
    shared = layer.init_state(2)
    assert SuState.cat([shared.select(0), shared.select(1)]).t.dim() == 0  # one clock for all


@pytest.mark.parametrize(("cls", "gate"), CASES)
@torch.no_grad()
def test_a_packed_state_passes_as_hx_and_through_any_buffer(cls, gate):
    layer = make(cls, gate)
    buffer = np.zeros((4, *layer.packed_shape(BATCH)))
    outputs = []
    for i, piece in enumerate(X.split([1, 1, 15])):
        y, packed = layer(piece, torch.from_numpy(buffer[i]))
        assert type(packed) is torch.Tensor
        buffer[i + 1] = packed.numpy()
        outputs.append(y)
    close(torch.cat(outputs), layer(X)[0])
    _, state = layer(X, layer.init_state(BATCH))
    close(flat(SuState.unpack(state.pack(), like=layer.init_state(BATCH))), flat(state))
    close(torch.from_numpy(buffer[3]), state.pack())
    done = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64).view(1, BATCH, 1)
    close(layer(X, state.pack() * (1 - done))[0], layer(X, state.reset(done.flatten()))[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_packed_clock_is_exact_in_every_dtype(dtype):
    layer = SuGRU(FEATURES, HIDDEN, gate="ssm", dtype=dtype)
    for t in (0, 255, 256, 10**9 + 7, 2**50):
        state = layer.init_state(2)._replace(t=torch.tensor([t, 3]))
        packed = state.pack()
        assert packed.dtype == torch.float32  # the gate's memory
        assert SuState.unpack(packed.to(dtype), like=state).t.tolist() == [t, 3]


def test_a_state_starts_from_an_own_hidden_state():
    layer = make(SuLSTM, "rhythm")
    h, c = torch.randn(2, 2, BATCH, HIDDEN, dtype=torch.float64)
    state = layer.init_state(BATCH, (h, c))
    assert torch.equal(state.cell, torch.stack((h, c), 1))
    assert state.t == 0
    with pytest.raises(ValueError, match=r"2 tensor\(s\)"):
        layer.init_state(BATCH, h)


def test_the_text_of_a_state_is_one_line():
    state = make(SuLSTM, "ssm").init_state(BATCH)
    assert repr(state) == (
        "SuState(t=0, cell: 2 layers x 2 components x 3 sequences x 12 units, torch.float64 on "
        "cpu, gate memory: [16, 16])"
    )
    assert "t=[10] clocks" not in repr(state)
    many = state._replace(t=torch.zeros(10, dtype=torch.int64))
    assert "t=[10] clocks" in repr(many)
    assert "t=[] clocks" in repr(state.to("meta"))
    assert "ClockedTensor" in repr(surnn.SuGRU(2, 4)(torch.zeros(3, 1, 2))[1])


def test_a_state_is_detached_moved_and_saved(tmp_path):
    layer = SuGRU(5, 8, gate=surnn.SSMGate())
    _, state = layer(torch.randn(6, 2, 5), layer.init_state(2))
    assert state.cell.requires_grad
    cut = state.detach()
    assert not any(tensor.requires_grad for tensor in (cut.cell, *cut.gates))
    assert cut.to("meta").t.is_meta
    torch.save(cut, tmp_path / "state.pt")
    found = torch.load(tmp_path / "state.pt")
    assert isinstance(found, surnn.SuState)
    assert torch.equal(found.cell, cut.cell)
    assert torch.equal(found.t, cut.t)
    assert torch.equal(found.gates[0], cut.gates[0])


def test_a_state_saved_by_the_version_before_still_loads(tmp_path):
    """Its pickle names the module that held SuState then."""
    state = SuGRU(5, 8, gate=surnn.SSMGate()).init_state(2)
    torch.save(state, tmp_path / "new.pt")
    with (
        zipfile.ZipFile(tmp_path / "new.pt") as new,
        zipfile.ZipFile(tmp_path / "old.pt", "w") as old,
    ):
        for name in new.namelist():
            content = new.read(name)
            if name.endswith("data.pkl"):
                assert b"csurnn.nn.state\nSuState\n" in content
                content = content.replace(b"csurnn.nn.state\n", b"csurnn.state\n")
            old.writestr(name.replace("new/", "old/"), content)
    found = torch.load(tmp_path / "old.pt", weights_only=True)
    assert isinstance(found, surnn.SuState)
    assert all(torch.equal(a, b) for a, b in zip(flat(found), flat(state), strict=True))
