"""Launching Triton kernels with little work on the host.

``kernel[grid](...)`` takes Triton 30 to 100 µs: it binds and inspects all arguments, constants
included, at every launch. :func:`launch` looks up the compiled kernel by what its code depends on:
constants, dtypes, alignment of pointers, and the integers that Triton specializes on. The first
launch of each kind goes through Triton, which compiles the kernel.
"""

from typing import Any

import torch

from .pieces import Piece
from .runtime import is_interpreted

# By kernel: which arguments Triton inspects, and what it has compiled, by key.
_KERNELS: dict[Any, tuple[tuple[bool, ...], dict[tuple, tuple[Any, tuple]]]] = {}


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Run ``kernel`` on the current CUDA stream.

    Args:
        kernel: a function decorated with ``triton.jit``, whose constants come last.
        grid: one to three numbers of programs.
        *arguments: tensors, pieces of tensors, and numbers, in order.
        **constants: compile-time constants and launch options, in the same order at every call.
    """
    if is_interpreted():
        interpret(kernel, grid, arguments, constants)
        return
    known = _KERNELS.get(kernel)
    if known is None:
        inspected = tuple(not parameter.do_not_specialize for parameter in kernel.params)
        known = _KERNELS[kernel] = inspected, {}
    inspected, compiled_by_key = known
    device = current_device()
    key: list[Any] = [device, *constants.values()]
    for value, special in zip(arguments, inspected, strict=False):
        if type(value) is int:
            if special:
                # Not 1, which as a key equals True.
                key.append("one" if value == 1 else value % 16 == 0)
            if not -(1 << 31) <= value < 1 << 31:
                key.append("int64")
        elif type(value) is float:
            continue  # always a 32-bit argument
        else:
            key.append(value.dtype)
            if value.data_ptr() % 16:
                key.append("unaligned")
    found = compiled_by_key.get(tuple(key))
    if found is None:
        compiled = kernel[grid](*arguments, **constants)
        names = kernel.arg_names[len(arguments) :]
        compiled_by_key[tuple(key)] = compiled, tuple(constants[name] for name in names)
        return
    compiled, rest = found
    x, y, z = (*grid, 1, 1)[:3]
    if not (x and y and z):
        return
    hooks = _hooks()
    stream = current_stream(device)
    bound = arguments + rest
    metadata = compiled.launch_metadata((x, y, z), stream, *bound)
    compiled.run(
        x, y, z, stream, compiled.function, compiled.packed_metadata, metadata,
        hooks.launch_enter_hook, hooks.launch_exit_hook, *bound,
    )  # fmt: skip


def current_device() -> int:
    """The number of the current CUDA device."""
    return torch._C._cuda_getDevice()


def current_stream(device: int) -> int:
    """The address of the current CUDA stream."""
    return torch._C._cuda_getCurrentRawStream(device)


def interpret(kernel: Any, grid: tuple[int, ...], arguments: Any, constants: Any) -> None:
    """Run ``kernel`` in Triton's interpreter, which takes tensors only."""
    tensors = [v.tensor() if type(v) is Piece else v for v in arguments]
    kernel[grid](*tensors, **constants)


def _hooks() -> Any:
    """Where profilers put functions that Triton calls at each launch."""
    global _KNOBS  # noqa: PLW0603 (an import that is looked up once)
    if _KNOBS is None:
        from triton import knobs  # noqa: PLC0415 (optional)

        _KNOBS = knobs.runtime
    return _KNOBS


_KNOBS: Any = None
