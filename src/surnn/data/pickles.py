"""Reads CIFAR-10's pickles as plain data: no object of another library is ever made.

Unpickling runs what the file says. Even a reader that allows nothing but numpy's arrays is unsafe:
a crafted dtype makes numpy read and write memory that is not its own. Here arrays and dtypes become
records of plain values, whose bytes the caller interprets; opcodes and names that CIFAR-10 does not
need are refused. The unpickler is Python's own, written in Python: its memo grows with the file,
not with the numbers in it.
"""

import io
import pickle
from typing import Any, ClassVar

from .registry import DataError

_OPCODES = (
    "PROTO", "STOP", "MARK", "FRAME", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1",
    "BININT2", "LONG1", "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES",
    "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "SETITEM", "SETITEMS", "PUT", "BINPUT",
    "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "MEMOIZE", "GLOBAL", "STACK_GLOBAL", "REDUCE",
    "BUILD",
)  # fmt: skip


class PickledArray:
    """An array as its pickle describes it: the bytes, and the name of its dtype."""

    content: bytes = b""
    kind: str = ""

    def restore(self, state: Any) -> None:
        """Take the state of an ndarray: version, shape, dtype, order, bytes."""
        _, _, dtype, fortran, content = state
        if fortran or not isinstance(dtype, PickledDtype) or not isinstance(content, bytes):
            raise DataError("a CIFAR-10 batch holds another kind of array: not the original file")
        self.content, self.kind = content, dtype.kind


class PickledDtype:
    """A dtype as its pickle describes it: its name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def restore(self, _state: Any) -> None:
        """Byte order and the like: of no meaning for single bytes."""


def load_pickle(raw: bytes) -> Any:
    """The content of a pickle of plain values and arrays."""
    try:
        return _PlainUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except DataError:
        raise
    except (
        pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError,
        OverflowError, MemoryError, RecursionError,
    ) as error:  # fmt: skip
        raise DataError(
            f"a CIFAR-10 batch cannot be read ({type(error).__name__}: {error}): it is damaged, or "
            "not the original file; delete it and fetch it again: surnn data get cifar10"
        ) from error


def _make_array(*_arguments: Any) -> PickledArray:
    return PickledArray()


def _make_dtype(kind: Any, *_arguments: Any) -> PickledDtype:
    return PickledDtype(kind.decode("ascii") if isinstance(kind, bytes) else str(kind))


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if encoding not in ("latin1", b"latin1") or not isinstance(text, str):
        raise DataError("a CIFAR-10 batch asks for another encoding: not the original file")
    return text.encode("latin1")


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _make_array,
    ("numpy._core.multiarray", "_reconstruct"): _make_array,
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _make_dtype,
    ("_codecs", "encode"): _encode,
}


_Base: Any = pickle._Unpickler  # type: ignore[attr-defined]


class _PlainUnpickler(_Base):
    """Python's unpickler with fewer opcodes, which calls and changes nothing but the above."""

    dispatch: ClassVar[dict[int, Any]] = {
        getattr(pickle, name)[0]: _Base.dispatch[getattr(pickle, name)[0]] for name in _OPCODES
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise DataError(f"a CIFAR-10 batch asks for {module}.{name}: not the original file")
        return _ALLOWED[module, name]

    def load_reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if function not in (_make_array, _make_dtype, _encode) or not isinstance(arguments, tuple):
            raise DataError("a CIFAR-10 batch calls something else: not the original file")
        self.append(function(*arguments))

    def load_build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, PickledArray | PickledDtype):
            raise DataError("a CIFAR-10 batch changes something else: not the original file")
        target.restore(state)

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BUILD[0]] = load_build
