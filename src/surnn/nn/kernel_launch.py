"""Launching Triton kernels with little work on the host.

``kernel[grid](...)`` takes Triton 30 to 100 µs: it binds and inspects all arguments, constants
included, at every launch. :func:`launch` looks up the compiled kernel by what its code depends on:
constants, dtypes, alignment of pointers, and the integers that Triton specializes on. The first
launch of each kind goes through Triton, which compiles the kernel.
"""

from typing import Any

import torch

from .runtime import is_interpreted

_COMPILED: dict[tuple, tuple[Any, tuple]] = {}
_SPECIALIZED: dict[Any, tuple[bool, ...]] = {}


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Run ``kernel`` on the current CUDA stream.

    Args:
        kernel: a function decorated with ``triton.jit``, whose constants come last.
        grid: one to three numbers of programs.
        *arguments: tensors and integers, in order.
        **constants: compile-time constants and launch options, in the same order at every call.
    """
    if is_interpreted():
        kernel[grid](*arguments, **constants)
        return
    device = torch.cuda.current_device()
    specialized = _SPECIALIZED.get(kernel) or _specialized(kernel)
    key: list[Any] = [kernel, device, *constants.values()]
    for value, special in zip(arguments, specialized, strict=False):
        if type(value) is int:
            if special:
                key.append(1 if value == 1 else value % 16 == 0)
            if not -(1 << 31) <= value < 1 << 31:
                key.append("int64")
        else:
            key.append(value.dtype)
            if value.data_ptr() % 16:
                key.append("unaligned")
    known = _COMPILED.get(tuple(key))
    if known is None:
        compiled = kernel[grid](*arguments, **constants)
        names = kernel.arg_names[len(arguments) :]
        _COMPILED[tuple(key)] = compiled, tuple(constants[name] for name in names)
        return
    compiled, rest = known
    x, y, z = (*grid, 1, 1)[:3]
    if not (x and y and z):
        return
    hooks = _runtime()
    stream = torch._C._cuda_getCurrentRawStream(device)
    bound = (*arguments, *rest)
    metadata = compiled.launch_metadata((x, y, z), stream, *bound)
    compiled.run(
        x, y, z, stream, compiled.function, compiled.packed_metadata, metadata,
        hooks.launch_enter_hook, hooks.launch_exit_hook, *bound,
    )  # fmt: skip


def _specialized(kernel: Any) -> tuple[bool, ...]:
    """Which arguments Triton inspects: the value of integers."""
    found = tuple(not parameter.do_not_specialize for parameter in kernel.params)
    _SPECIALIZED[kernel] = found
    return found


def _runtime() -> Any:
    from triton import knobs  # noqa: PLC0415 (optional)

    return knobs.runtime
