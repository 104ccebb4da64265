"""Mistakes of Triton's interpreter, mended for the tests. Kernels on a GPU have none of them."""

import inspect
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from triton import language
from triton.runtime import interpreter

_Builder = interpreter.InterpreterBuilder
_Handle = interpreter.TensorHandle


def mend() -> None:
    """Make the interpreters of Triton 3.6 to 3.9 run our kernels, beside any numpy, and faster.

    A comparison of scalars has the dtype of its operands there, so that a broadcast makes integers
    of it; 3.9 refuses these as a mask. And 3.6 takes ``int`` of an array [1]; numpy 2.4 refuses.
    """
    splat, patch = _Builder.create_splat, interpreter._patch_lang_tensor

    def create_splat(self, ret_ty, arg):
        if arg.data.dtype == bool:
            arg = _Handle(arg.data, language.int1)
        return splat(self, ret_ty, arg)

    def patch_lang_tensor(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    _Builder.create_splat = create_splat
    interpreter._patch_lang_tensor = patch_lang_tensor
    _mend_bfloat16()
    _patch_once()


def _mend_bfloat16() -> None:
    """It keeps bfloat16 as bits, which it multiplies as integers, and truncates other numbers."""
    cast, dot = _Builder.cast_impl, _Builder.create_dot

    def widened(handle):
        if handle.data.dtype == bool:  # a comparison
            return _Handle(handle.data, language.int1)
        if handle.dtype.scalar != language.bfloat16:
            return handle
        bits = handle.data.astype(np.uint32) << 16
        return _Handle(bits.view(np.float32), language.float32)

    def cast_impl(self, src, dst_type):
        if dst_type.scalar != language.bfloat16:
            return cast(self, widened(src), dst_type)
        if src.dtype.scalar == language.bfloat16:
            return src
        rounded = torch.from_numpy(np.array(src.data, np.float32)).bfloat16()
        return _Handle(rounded.view(torch.int16).numpy().view(np.uint16), language.bfloat16)

    def create_dot(self, a, b, *arguments):
        return dot(self, widened(a), widened(b), *arguments)

    _Builder.cast_impl, _Builder.create_dot = cast_impl, create_dot


def _patch_once() -> None:
    """It replaces all of ``triton.language`` at every call of a device function, in most of its
    time, also where that is done."""
    run = interpreter.InterpretedFunction.__call__

    @cache
    def languages(function) -> list:
        values = function.fn.__globals__.values()
        return [v for v in values if inspect.ismodule(v) and v in (language, language.core)]

    def call(self, *arguments, **options):
        if any(language.core.is_builtin(module.load) for module in languages(self)):
            return run(self, *arguments, **options)
        return self.rewrite()(*arguments, **options)

    interpreter.InterpretedFunction.__call__ = call
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)  # each sum, in int64 too
