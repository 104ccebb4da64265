"""The C engine: streaming inference in which a unit whose gate is closed costs nothing.

This module needs numpy but not torch. A model is one file, written by
:func:`surnn.export.to_engine`.
"""

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .engine_library import LIBRARY, EngineError, Info, Options, Parts, check, library
from .streams import NUMBERS, Stream, Streams, ThreadMemory, Work, check_clock

__all__ = ["LIBRARY", "Engine", "EngineError", "Stream", "Streams", "Work", "library"]

_MAPPING = {None: 0, False: 1, True: 2}
"""Values of ``surnn_mapping``."""


class Engine:
    """A trained model in the C engine. It is read-only; streams and threads can share it.

    Args:
        path: a file written by :func:`surnn.export.to_engine`.
        map: whether to map the file instead of copying it into memory. A mapped file must not
            change while the model is in use: if it is cut off, the process ends. By default files
            of 64 MiB and more are mapped.
        max_memory: most bytes that a stream and its workspace may need; a file that needs more is
            refused. By default it is 16 MiB plus 64 times the file's size, at most 1 GiB.

    Example:
        >>> import tempfile, surnn
        >>> path = tempfile.mktemp(suffix=".surnn")
        >>> _ = surnn.export.to_engine(surnn.SuGRU(3, 8, gate=surnn.Rhythm(rate=0.2)), path)
        >>> stream = surnn.Engine(path).stream()
        >>> stream.step([0.1, 0.2, 0.3]).shape, stream.run(np.zeros((100, 3))).shape
        ((8,), (100, 8))
        >>> stream.clock, stream.work.skipped > 0.7
        (101, True)
        >>> streams = surnn.Engine(path).streams(20)
        >>> streams.step(np.zeros((20, 3))).shape
        (20, 8)
    """

    def __init__(
        self, path: str | Path, *, map: bool | None = None, max_memory: int | None = None
    ) -> None:
        self.path = Path(path)
        self._model = ctypes.c_void_p()
        if self.path.is_dir():
            raise EngineError(
                f"{self.path} is a folder, and the engine reads a file. If it is a run folder, "
                f"export its model: surnn export {self.path} --to engine"
            )
        if max_memory is not None and not 0 < max_memory < 1 << 64:
            raise ValueError(f"max_memory is a positive number of bytes, got {max_memory}")
        options, name = Options(_MAPPING[map], max_memory or 0), str(self.path).encode()
        status = library().surnn_load_with(name, ctypes.byref(options), ctypes.byref(self._model))
        check(status, f"{self.path}: ")
        info = Info()
        library().surnn_describe(self._model, ctypes.byref(info))
        self.takes_tokens = bool(info.takes_tokens)
        """Whether the input is tokens; otherwise it is frames."""
        self.input_size: int = info.input_size
        """Numbers per frame, or size of the vocabulary."""
        self.output_size: int = info.output_size
        """Numbers per prediction."""
        self.layers: int = info.layers
        """Number of recurrent layers."""
        self.stream_size: int = info.state_size
        """Bytes of a stream in memory."""
        self.workspace_size: int = info.workspace_size
        """Bytes that all streams of a thread share."""
        self.saved_size: int = info.saved_size
        """Bytes of a saved stream."""
        self.macs_per_step: int = info.macs_per_step
        """Multiply-accumulates per time step with all gates open."""
        self.simd: str = info.simd.decode()
        """The instruction set in use; the environment variable SURNN_SIMD can ask for less."""
        frame_size = 1 if self.takes_tokens else self.input_size
        self._memory = ThreadMemory(self._model, self.takes_tokens, frame_size, self.output_size)

    def stream(self) -> "Stream":
        """A new stream, at time step 0 with zero state."""
        return Stream(self)

    def streams(self, count: int) -> Streams:
        """New streams that step together, which takes half the time of single steps or less."""
        return Streams(self, [Stream(self) for _ in range(count)])

    def step_many(self, streams: Iterable[Stream], frames: Any) -> np.ndarray:
        """One time step of each of ``streams``, as by :meth:`Streams.step`.

        The streams may be at different time steps. Where the same streams step again and again,
        make a :class:`Streams` of them once.
        """
        return Streams(self, streams).step(frames)

    def inputs(self, frames: Any) -> np.ndarray:
        """Frames [n, input_size] as float32, or tokens [n] as uint32; a ValueError for others."""
        if isinstance(frames, bytes | bytearray) and self.takes_tokens:
            if self.input_size != 256:
                raise ValueError(
                    f"this model's {self.input_size} tokens are not bytes; encode the text with "
                    "its tokenizer, and pass the tokens [T]"
                )
            frames = np.frombuffer(frames, np.uint8)
        frames = np.asarray(frames)
        if self.takes_tokens:
            return self._tokens(frames)
        if frames.ndim != 2 or frames.shape[1] != self.input_size:
            raise ValueError(
                f"this model takes frames of {self.input_size} numbers: one [{self.input_size}]"
                f" in step, [T, {self.input_size}] in run; got {list(frames.shape)}"
            )
        if frames.dtype.kind not in NUMBERS:
            raise ValueError(f"this model takes frames of real numbers, got {frames.dtype}")
        return np.ascontiguousarray(frames, np.float32)

    def _tokens(self, tokens: np.ndarray) -> np.ndarray:
        vocabulary = self.input_size
        if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
            raise ValueError(
                f"this model takes tokens, integers below {vocabulary}: one in step, [T] in run; "
                f"got {tokens.dtype} of shape {list(tokens.shape)}"
            )
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < vocabulary:
            raise ValueError(
                f"tokens are from 0 to {vocabulary - 1}, got {tokens.min()}..{tokens.max()}"
            )
        return np.ascontiguousarray(tokens, np.uint32)

    def time_parts(
        self, frames: np.ndarray, reset_before: bool = False, clock: int = 0
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Run a new stream over ``frames`` [T, input_size], and time the parts of its GRUs.

        For benchmarks; see ``csrc/bench.h``. The parts are computed one after another.

        Args:
            frames: [T, input_size].
            reset_before: measure the form of the GRU whose reset gates act before the candidate's
                product. It needs the reset gates of all units when any unit updates.
            clock: time steps before the first frame.

        Returns:
            the outputs [T, output_size], and the seconds of ``reset``, ``update``, ``candidate``,
            ``state`` and ``rest``; ``clock`` is the time spent reading the clock, included in them.
        """
        self._refuse_tokens("time_parts")
        frames, clock = self.inputs(frames), check_clock(clock)
        out, parts = np.empty((len(frames), self.output_size), np.float32), Parts()
        arguments = frames.ctypes.data, len(frames), out.ctypes.data, clock, reset_before
        check(
            library().surnn_time_parts(self._model, *arguments, ctypes.byref(parts)),
            "time_parts needs float32 GRUs whose gates are shared by 6 units or more: ",
        )
        return out, {field[0]: getattr(parts, field[0]) for field in Parts._fields_}

    def time_steps(self, frames: np.ndarray, clock: int = 0) -> np.ndarray:
        """Seconds of each time step of a new stream over ``frames`` [T, input_size].

        ``clock`` is the number of time steps before the first frame.
        """
        return self._run_steps("time_steps", frames, clock, time=True)[1]

    def run_steps(self, frames: np.ndarray, clock: int = 0) -> np.ndarray:
        """Outputs [T, output_size] of a new stream over ``frames`` [T, input_size].

        The frames are passed one by one, in a C loop. ``clock`` as in :meth:`time_steps`.
        """
        return self._run_steps("run_steps", frames, clock, time=False)[0]

    def time_streams(self, frames: np.ndarray, together: bool, clock: int = 0) -> np.ndarray:
        """Seconds [T] that new streams take for each time step of ``frames`` [T, n, input_size].

        They step ``together``, or one after another, in a C loop. ``clock`` as in
        :meth:`time_steps`.
        """
        self._refuse_tokens("time_streams")
        if np.ndim(frames) != 3:
            raise ValueError(
                f"time_streams takes frames [T, n, {self.input_size}], got {list(np.shape(frames))}"
            )
        (steps, streams, size), clock = np.shape(frames), check_clock(clock)
        flat, seconds = self.inputs(np.reshape(frames, (-1, size))), np.empty(steps)
        arguments = flat.ctypes.data, streams, steps, clock, together, seconds.ctypes.data
        check(library().surnn_time_streams(self._model, *arguments), "time_streams: ")
        return seconds

    def _run_steps(
        self, name: str, frames: np.ndarray, clock: int, *, time: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        self._refuse_tokens(name)
        frames, clock = self.inputs(frames), check_clock(clock)
        seconds = np.empty(len(frames) if time else 0)
        out = np.empty((len(frames), self.output_size), np.float32)
        arguments = frames.ctypes.data, len(frames), out.ctypes.data, clock
        pointer = seconds.ctypes.data if time else None
        check(library().surnn_time_steps(self._model, *arguments, pointer), f"{name}: ")
        return out, seconds

    def _refuse_tokens(self, name: str) -> None:
        if self.takes_tokens:
            raise EngineError(f"{name} takes frames, and this model takes tokens; use stream.run")

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            library().surnn_free(self._model)
            self._model = None

    def __repr__(self) -> str:
        kind = "tokens" if self.takes_tokens else "frames"
        return f"Engine({str(self.path)!r}: {kind} of {self.input_size} to {self.output_size})"
