"""Launches of compiled kernels: which calls go through Triton. The kernels here only take notes."""

from types import SimpleNamespace

import pytest
import torch

from surnn.nn import constants, kernel_launch
from surnn.nn.constants import constant_zeros, count_steps, zero_clock
from surnn.nn.pieces import Piece, allocate
from surnn.nn.runtime import has_triton

pytestmark = pytest.mark.skipif(not has_triton(), reason="needs triton")


class Compiled:
    """What Triton returns for one variant of a kernel."""

    function, packed_metadata = "function", "metadata"

    def __init__(self) -> None:
        self.runs = []

    def launch_metadata(self, *_):
        return None

    def run(self, x, y, z, stream, function, metadata, _, enter, leave, *bound):
        assert (function, metadata) == ("function", "metadata")
        self.runs.append(((x, y, z), stream, bound))


class Kernel:
    """A kernel of (A, SIZE, T, FACTOR, BLOCK, HALF): Triton does not specialize on T."""

    arg_names = ("A", "SIZE", "T", "FACTOR", "BLOCK", "HALF")

    def __init__(self) -> None:
        self.params = [SimpleNamespace(do_not_specialize=n == "T") for n in self.arg_names]
        self.compiled = []

    def __getitem__(self, grid):
        def compile_and_run(*arguments, **constants):
            self.compiled.append(Compiled())
            return self.compiled[-1]

        return compile_and_run


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine with CUDA devices, the first of which is current."""
    state = SimpleNamespace(device=0, stream=7)
    monkeypatch.setattr(kernel_launch, "is_interpreted", lambda: False)
    monkeypatch.setattr(kernel_launch, "current_device", lambda: state.device)
    monkeypatch.setattr(kernel_launch, "current_stream", lambda device: (device, state.stream))
    return state


def launch(kernel, a=None, *, grid=(3,), size=5, steps=9, factor=0.5, block=16, half=False):
    a = torch.zeros(8) if a is None else a
    kernel_launch.launch(kernel, grid, a, size, steps, factor, HALF=half, BLOCK=block)
    return a


def test_a_repeated_launch_runs_the_compiled_kernel(machine):
    kernel = Kernel()
    launch(kernel)
    a = launch(kernel, grid=(3, 2), steps=11, factor=0.25)
    (compiled,) = kernel.compiled
    # The first launch is Triton's own. Constants follow in the kernel's order, not in the call's.
    assert compiled.runs == [((3, 2, 1), (0, 7), (a, 5, 11, 0.25, 16, False))]


@pytest.mark.parametrize(
    "change",
    [
        {"a": torch.zeros(8, dtype=torch.float64)},
        {"a": torch.zeros(9)[1:]},
        {"size": 1},
        {"size": 32},
        {"size": 1 << 31},
        {"size": 1 << 32},
        {"size": -(1 << 31) - 1},
        {"steps": 1 << 31},
        {"block": 32},
        {"half": True},
    ],
)
def test_what_the_code_depends_on_compiles_again(change):
    kernel = Kernel()
    launch(kernel)
    launch(kernel, **change)
    assert len(kernel.compiled) == 2
    launch(kernel, **change)
    launch(kernel)
    assert [len(compiled.runs) for compiled in kernel.compiled] == [1, 1]


def test_one_is_not_a_multiple_of_sixteen():
    kernel = Kernel()
    launch(kernel, size=1)
    launch(kernel, size=16)
    assert len(kernel.compiled) == 2


@pytest.mark.parametrize("change", [{"size": 7}, {"steps": 1}, {"steps": 16}, {"factor": 1.0}])
def test_what_the_code_does_not_depend_on_compiles_nothing(change):
    kernel = Kernel()
    launch(kernel)
    launch(kernel, **change)
    assert len(kernel.compiled) == 1


def test_each_device_has_its_own_code(machine):
    kernel = Kernel()
    launch(kernel)
    machine.device = 1
    launch(kernel)
    for machine.stream in (8, 9):
        launch(kernel)
    assert [len(compiled.runs) for compiled in kernel.compiled] == [0, 2]
    assert [run[1] for run in kernel.compiled[1].runs] == [(1, 8), (1, 9)]


def test_each_cuda_stream_has_its_own_constants(monkeypatch):
    x = torch.zeros(1)
    here = count_steps(3, x), zero_clock(x)
    assert count_steps(3, x) is here[0]
    assert zero_clock(x) is here[1]
    monkeypatch.setattr(constants, "stream_of", lambda _x: 1)
    assert count_steps(3, x) is not here[0]
    assert zero_clock(x) is not here[1]


def test_constants_survive_those_who_write_to_them():
    x = torch.zeros(1)
    for _ in range(2):
        steps, zeros = count_steps(5, x), constant_zeros((7,), torch.float32, x)
        assert steps.flatten().tolist() == [1, 2, 3, 4, 5]
        assert not zeros.any()
        steps -= 1
        zeros += 1


def test_an_empty_grid_runs_nothing():
    kernel = Kernel()
    launch(kernel)
    launch(kernel, grid=(3, 0))
    assert not kernel.compiled[0].runs


def test_kernels_do_not_share_code():
    first, second = Kernel(), Kernel()
    launch(first)
    launch(second)
    assert len(second.compiled) == 1


def test_a_piece_is_an_address_and_a_dtype():
    kernel = Kernel()
    _, (first, second) = allocate(
        torch.device("cpu"), [((3,), torch.float32), ((2, 2), torch.float32)]
    )
    launch(kernel, first)
    launch(kernel, second)
    launch(kernel, torch.zeros(8))
    assert len(kernel.compiled) == 1
    unaligned = Piece(second.buffer, second.offset + 4, (2,), torch.float32)
    launch(kernel, unaligned)
    launch(kernel, Piece(second.buffer, second.offset, (2,), torch.int32))
    assert len(kernel.compiled) == 3


def test_pieces_lie_side_by_side():
    shapes = [
        ((3,), torch.float32),
        ((0, 4), torch.int32),
        ((2, 5), torch.float64),
        ((0,), torch.int32),
    ]
    buffer, pieces = allocate(torch.device("cpu"), shapes)
    for number, piece in enumerate(pieces):
        assert piece.data_ptr() % 16 == buffer.data_ptr() % 16
        assert 0 <= piece.offset < 8 * len(buffer)
        assert piece.tensor().data_ptr() in (piece.data_ptr(), 0)
        piece.tensor().fill_(number)
    for number, (piece, (shape, dtype)) in enumerate(zip(pieces, shapes, strict=True)):
        assert piece.tensor().shape == shape
        assert piece.tensor().dtype == dtype
        assert (piece.tensor() == number).all()
