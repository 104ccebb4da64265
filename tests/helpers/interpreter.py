"""Two mistakes of Triton's interpreter, mended for the tests. Kernels on a GPU have neither."""

from triton import language
from triton.runtime import interpreter


def mend() -> None:
    """Make the interpreters of Triton 3.6 to 3.9 run our kernels, beside any numpy.

    A comparison of scalars has the dtype of its operands there, so that a broadcast makes integers
    of it; 3.9 refuses these as a mask. And 3.6 takes ``int`` of an array [1]; numpy 2.4 refuses.
    """
    splat, patch = interpreter.InterpreterBuilder.create_splat, interpreter._patch_lang_tensor

    def create_splat(self, ret_ty, arg):
        if arg.data.dtype == bool:
            arg = interpreter.TensorHandle(arg.data, language.int1)
        return splat(self, ret_ty, arg)

    def patch_lang_tensor(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter.InterpreterBuilder.create_splat = create_splat
    interpreter._patch_lang_tensor = patch_lang_tensor
