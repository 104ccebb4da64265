"""Streams of the C engine: the state of one sequence, and of many at once."""

import ctypes
import operator
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import numpy as np

from .engine_library import MAX_CLOCK, EngineError, LayerInfo, WorkCounts, check, library

if TYPE_CHECKING:
    from .engine import Engine


NUMBERS = "fiub"
"""Kinds of dtypes that frames may have. numpy makes numbers of texts, dates and None too, and
drops imaginary parts."""


class Work(NamedTuple):
    """The work that a stream has done."""

    steps: int
    """Time steps."""
    macs: int
    """Multiply-accumulates with weights."""
    dense: int
    """Multiply-accumulates with all gates open and nothing reused."""
    updates: int
    """Updates of units of recurrent layers."""
    dense_updates: int
    """Updates with all gates open."""

    @property
    def skipped(self) -> float:
        """Share of the multiply-accumulates that were skipped."""
        return 1 - self.macs / self.dense if self.dense else 0.0

    @property
    def update_rate(self) -> float:
        """Share of units that updated, over time steps and recurrent layers."""
        return self.updates / self.dense_updates if self.dense_updates else 0.0

    def since(self, before: "Work") -> "Work":
        """The work done after ``before``."""
        return Work(*(a - b for a, b in zip(self, before, strict=True)))


class Workspace:
    """Memory that steps of a model use, and the arguments of a single step."""

    def __init__(
        self, model: ctypes.c_void_p, takes_tokens: bool, inputs: int, outputs: int
    ) -> None:
        self.pointer = ctypes.c_void_p()
        check(library().surnn_workspace_new(model, ctypes.byref(self.pointer)))
        self.input = np.empty(inputs, np.uint32 if takes_tokens else np.float32)
        self.output = np.empty(outputs, np.float32)
        input_pointer = ctypes.c_void_p(self.input.ctypes.data)
        output_pointer = ctypes.c_void_p(self.output.ctypes.data)
        self.step = self.input, self.output, input_pointer, ctypes.c_size_t(1), output_pointer

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            library().surnn_workspace_free(self.pointer)
            self.pointer = ctypes.c_void_p()


class ThreadMemory(threading.local):
    """A workspace in each thread, made when the thread first uses it, released when it ends."""

    def __init__(self, *arguments: Any) -> None:
        self.workspace = Workspace(*arguments)


class Stream:
    """The state of one sequence, made by :meth:`Engine.stream`.

    It is for one thread at a time: a call while another thread is using it raises an
    :class:`EngineError`.

    Example:
        >>> import surnn, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = surnn.export.to_engine(surnn.SuGRU(1, 4), folder + "/layer.surnn")
        ...     engine = surnn.Engine(path)
        >>> stream = engine.stream()
        >>> isinstance(stream, surnn.Stream)
        True
        >>> stream.step([0.5]).shape, stream.clock
        ((4,), 1)
    """

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine
        self._stream = ctypes.c_void_p()
        check(library().surnn_state_new(engine._model, ctypes.byref(self._stream)))
        lib = library()
        self._run = lib.surnn_run_tokens_in if engine.takes_tokens else lib.surnn_run_in
        self._frame_shape = () if engine.takes_tokens else (engine.input_size,)

    def step(self, frame: Any, reset: bool = False) -> np.ndarray:
        """The prediction [output_size] after one frame [input_size] or one token.

        With ``reset`` the stream restarts before it.
        """
        if reset:
            self.reset()
        array = np.asarray(frame)
        engine = self.engine
        odd = array.shape != self._frame_shape or array.dtype.kind not in NUMBERS
        if odd or engine.takes_tokens:
            array = engine.inputs(array[None])[0]
        workspace = engine._memory.workspace
        into, out, input_pointer, one, output_pointer = workspace.step
        into[:] = array
        status = self._run(
            engine._model, workspace.pointer, self._stream, input_pointer, one, output_pointer
        )
        if status:
            check(status)
        return out.copy()

    def run(self, frames: Any, reset: Any = None) -> np.ndarray:
        """Predictions [T, output_size] after each of many frames [T, input_size] or tokens [T].

        A model whose tokens are bytes also takes bytes: ``stream.run(b"abc")``. Where ``reset``
        [T] is True, the stream restarts before that frame.
        """
        engine = self.engine
        frames = engine.inputs(frames)
        out = np.empty((len(frames), engine.output_size), np.float32)
        starts = [] if reset is None else np.flatnonzero(_mask(reset, len(frames), "frame"))
        ends = [*starts, len(frames)]
        workspace = engine._memory.workspace.pointer
        for first, last in pairwise([0, *ends]):
            if last > first:
                arguments = frames[first:].ctypes.data, last - first, out[first:].ctypes.data
                check(self._run(engine._model, workspace, self._stream, *arguments))
            if last < len(frames):
                self.reset()
        return out

    def reset(self) -> Self:
        """Return to time step 0 with zero state."""
        check(library().surnn_reset(self.engine._model, self._stream))
        return self

    def clone(self) -> "Stream":
        """Another stream in the same state."""
        return Stream(self.engine).restore(self.save())

    def __deepcopy__(self, _: Any) -> "Stream":
        return self.clone()  # streams share the model

    def save(self) -> bytes:
        """The whole state as bytes."""
        room = ctypes.create_string_buffer(self.engine.saved_size)
        check(library().surnn_save(self.engine._model, self._stream, room, len(room)))
        return room.raw

    def restore(self, state: bytes) -> Self:
        """Continue from the state that :meth:`save` returned."""
        check(library().surnn_restore(self.engine._model, self._stream, state, len(state)))
        return self

    @property
    def clock(self) -> int:
        """Time steps taken so far, which gates that depend on time read. It can be set.

        The clock counts up to 2^50; a stream cannot step beyond it.
        """
        return library().surnn_clock(self._stream)

    @clock.setter
    def clock(self, t: int) -> None:
        t = check_clock(t)
        check(library().surnn_set_clock(self.engine._model, self._stream, t), f"clock {t}: ")

    @property
    def work(self) -> Work:
        """The work done since the stream was new or reset."""
        work = WorkCounts()
        library().surnn_work_done(self.engine._model, self._stream, ctypes.byref(work))
        return Work(*(getattr(work, field[0]) for field in WorkCounts._fields_))

    def gates(self, layer: int) -> np.ndarray:
        """Gates of a recurrent layer at the last time step: 1 open, 0 closed."""
        out = np.empty(self._layer(layer).gates, np.uint8)
        check(library().surnn_gates(self.engine._model, self._stream, layer, out.ctypes.data))
        return out

    def hidden(self, layer: int) -> np.ndarray:
        """State of a recurrent layer, [components, units]; component 0 is its output."""
        info = self._layer(layer)
        out = np.empty((info.components, info.units), np.float32)
        check(library().surnn_hidden(self.engine._model, self._stream, layer, out.ctypes.data))
        return out

    def _layer(self, layer: int) -> LayerInfo:
        info = LayerInfo()
        status = library().surnn_describe_layer(self.engine._model, layer, ctypes.byref(info))
        check(status, f"layer {layer} of {self.engine.layers}: ")
        return info

    def __del__(self) -> None:
        if getattr(self, "_stream", None):
            library().surnn_stream_free(self._stream)
            self._stream = ctypes.c_void_p()


def check_clock(t: int) -> int:
    """A number of time steps for C; ctypes would cut off what does not fit into 64 bits."""
    t = operator.index(t)  # TypeError unless it is an integer
    if not 0 <= t <= MAX_CLOCK:
        raise EngineError(f"a clock counts from 0 to 2^50 time steps, got {t}")
    return t


def _mask(reset: Any, count: int, kind: str) -> np.ndarray:
    mask = np.asarray(reset)
    if mask.dtype != bool or mask.shape != (count,):
        raise ValueError(
            f"reset is {count} bools, one for each {kind}, got {mask.dtype} of shape "
            f"{list(mask.shape)}"
        )
    return mask


class Streams(Sequence[Stream]):
    """Streams of one model that step together, made by :meth:`Engine.streams`.

    Each is a :class:`Stream` of its own: it can be at any time step, and be saved, reset or stepped
    alone. A slice is another ``Streams`` with the same streams in it.

    Args:
        engine: the model.
        streams: streams of this model, each once.

    Example:
        >>> import surnn, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = surnn.export.to_engine(surnn.SuGRU(1, 4), folder + "/layer.surnn")
        ...     engine = surnn.Engine(path)
        >>> streams = engine.streams(3)
        >>> isinstance(streams, surnn.Streams), streams.step([[0.5]] * 3).shape
        (True, (3, 4))
    """

    def __init__(self, engine: "Engine", streams: Iterable[Stream]) -> None:
        self.engine = engine
        self._streams = list(streams)
        if any(stream.engine is not engine for stream in self._streams):
            raise ValueError("streams of several models cannot step together")
        if len({id(stream) for stream in self._streams}) < len(self._streams):
            raise ValueError("a stream cannot take the same time step twice: pass each stream once")
        addresses = [stream._stream.value for stream in self._streams]
        self._pointers = (ctypes.c_void_p * len(addresses))(*addresses)

    def step(self, frames: Any, reset: Any = None) -> np.ndarray:
        """One time step of each stream: frames [n, input_size], or tokens [n], to [n, output_size].

        The results equal those of single steps bit for bit. Streams where ``reset`` [n] is True
        restart before it.
        """
        engine, lib = self.engine, library()
        frames = engine.inputs(frames)
        if len(frames) != len(self._streams):
            raise ValueError(
                f"{len(self._streams)} streams take {len(self._streams)} frames or tokens, one "
                f"each; got {len(frames)}"
            )
        out = np.empty((len(frames), engine.output_size), np.float32)
        if reset is not None:
            self.reset(reset)
        step = lib.surnn_step_many_tokens if engine.takes_tokens else lib.surnn_step_many
        arguments = self._pointers, len(frames), frames.ctypes.data, out.ctypes.data
        check(step(engine._model, engine._memory.workspace.pointer, *arguments))
        return out

    def reset(self, which: Any = None) -> Self:
        """Return streams to time step 0 with zero state: where ``which`` [n] is True, or all."""
        chosen = [True] * len(self) if which is None else _mask(which, len(self), "stream")
        for stream, is_chosen in zip(self._streams, chosen, strict=True):
            if is_chosen:
                stream.reset()
        return self

    @overload
    def __getitem__(self, index: int) -> Stream: ...
    @overload
    def __getitem__(self, index: slice) -> "Streams": ...
    def __getitem__(self, index: int | slice) -> "Stream | Streams":
        if isinstance(index, slice):
            return Streams(self.engine, self._streams[index])
        return self._streams[index]

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def __repr__(self) -> str:
        return f"Streams({len(self)} of {self.engine!r})"
