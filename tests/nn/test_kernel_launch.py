"""The launcher's key, with a kernel that counts how often it is compiled."""

from types import SimpleNamespace

import pytest
import torch

from surnn.nn import kernel_launch


class Kernel:
    """A kernel with one integer, on which its code depends."""

    params = (SimpleNamespace(do_not_specialize=False),)
    arg_names = ("size",)

    def __init__(self):
        self.compiled, self.runs = [], []

    def __getitem__(self, grid):
        def compile_for(size):
            self.compiled.append(size)
            return SimpleNamespace(
                run=lambda *arguments: self.runs.append(arguments[-1]), function=None,
                packed_metadata=None, launch_metadata=lambda *_: None,
            )  # fmt: skip

        return compile_for


@pytest.mark.parametrize(
    ("sizes", "compiled"),
    [
        ((1, 16), 2),
        ((16, 1), 2),
        ((1, 3), 2),
        ((3, 16), 2),
        ((3, 5), 1),
        ((16, 32), 1),
        ((1, 1), 1),
    ],
)
def test_code_is_used_again_only_for_sizes_that_triton_compiles_alike(monkeypatch, sizes, compiled):
    """As a part of a key, 1 equals True: code for one head would run with 16."""
    hooks = SimpleNamespace(launch_enter_hook=None, launch_exit_hook=None)
    monkeypatch.setattr(kernel_launch, "is_interpreted", lambda: False)
    monkeypatch.setattr(kernel_launch, "_hooks", lambda: hooks)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 0, raising=False)
    kernel = Kernel()
    for size in sizes:
        kernel_launch.launch(kernel, (1,), size)
    assert len(kernel.compiled) == compiled
    assert len(kernel.compiled) + len(kernel.runs) == len(sizes)
