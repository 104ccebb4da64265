"""The C engine from Python: trained models as streams, in which closed units cost nothing.

No torch in here: a model is one file, written by :func:`surnn.export.to_engine`.
"""

import ctypes
import operator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

LIBRARY = Path(__file__).with_name("libsurnn.so")


class EngineError(RuntimeError):
    """What the engine refused, and why."""


class _Info(ctypes.Structure):
    _fields_ = (
        ("takes_tokens", ctypes.c_uint32),
        ("input_size", ctypes.c_uint32),
        ("output_size", ctypes.c_uint32),
        ("layers", ctypes.c_uint32),
        ("stream_size", ctypes.c_uint64),
        ("saved_size", ctypes.c_uint64),
        ("macs_per_step", ctypes.c_uint64),
        ("simd", ctypes.c_char_p),
    )


class _LayerInfo(ctypes.Structure):
    _fields_ = (
        ("units", ctypes.c_uint32), ("gates", ctypes.c_uint32), ("components", ctypes.c_uint32)
    )  # fmt: skip


class _Work(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("steps", "macs_done", "macs_all", "updates_done", "updates_all")
    )


class _Parts(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_double)
        for name in ("reset", "update", "candidate", "state", "rest", "clock")
    )


class Work(NamedTuple):
    """What a stream has cost."""

    steps: int
    macs: int
    """Multiply-accumulates of weights that were done."""
    dense: int
    """What they would be with all gates open and nothing reused."""
    updates: int
    """Updates of single units of recurrent layers."""
    dense_updates: int
    """What they would be with all gates open."""

    @property
    def skipped(self) -> float:
        """Share of the multiply-accumulates that were not done."""
        return 1 - self.macs / self.dense if self.dense else 0.0

    @property
    def update_rate(self) -> float:
        """Share of the updates that were done."""
        return self.updates / self.dense_updates if self.dense_updates else 0.0

    def since(self, before: "Work") -> "Work":
        """What was added after ``before``."""
        return Work(*(now - then for now, then in zip(self, before, strict=True)))


@cache
def library() -> ctypes.CDLL:
    """The engine's shared library."""
    path = LIBRARY if LIBRARY.exists() else LIBRARY.with_suffix(".dll")
    if not path.exists():
        raise EngineError(
            f"the engine was not built when surnn was installed ({LIBRARY.name} is missing, which "
            "needs a C compiler). Install a compiler (Debian: apt install gcc libc6-dev), then: "
            "pip install --force-reinstall --no-deps surnn, or in a source tree: "
            "pip install --editable ."
        )
    lib = ctypes.CDLL(str(path))
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
    lib.surnn_message.restype = ctypes.c_char_p
    lib.surnn_clock.restype = ctypes.c_int64
    signatures: dict[str, tuple[Any, ...]] = {
        "message": (ctypes.c_int,),
        "load": (ctypes.c_char_p, pointer),
        "free": (pointer,),
        "describe": (pointer, pointer),
        "describe_layer": (pointer, number, pointer),
        "stream_new": (pointer, pointer),
        "stream_free": (pointer,),
        "reset": (pointer, pointer),
        "run": (pointer, pointer, pointer, size, pointer),
        "run_tokens": (pointer, pointer, pointer, size, pointer),
        "save": (pointer, pointer, pointer, size),
        "restore": (pointer, pointer, pointer, size),
        "clock": (pointer,),
        "set_clock": (pointer, pointer, ctypes.c_int64),
        "work_done": (pointer, pointer, pointer),
        "gates": (pointer, pointer, number, pointer),
        "hidden": (pointer, pointer, number, pointer),
        "time_parts": (pointer, pointer, size, pointer, ctypes.c_int, pointer),
        "time_steps": (pointer, pointer, size, pointer, pointer),
    }
    for name, arguments in signatures.items():
        getattr(lib, f"surnn_{name}").argtypes = arguments
    return lib


def _check(status: int, about: str = "") -> None:
    if status:
        raise EngineError(f"{about}{library().surnn_message(status).decode()}")


class Engine:
    """A trained model, read-only and shared by any number of streams and threads.

    Args:
        path: a file that :func:`surnn.export.to_engine` wrote.

    Example:
        >>> import tempfile, surnn
        >>> path = tempfile.mktemp(suffix=".surnn")
        >>> _ = surnn.export.to_engine(surnn.SuGRU(3, 8, gate=surnn.Rhythm(rate=0.2)), path)
        >>> stream = surnn.Engine(path).stream()
        >>> stream.step([0.1, 0.2, 0.3]).shape, stream.run(np.zeros((100, 3))).shape
        ((8,), (100, 8))
        >>> stream.clock, stream.work.skipped > 0.7
        (101, True)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._model = ctypes.c_void_p()
        if self.path.is_dir():
            raise EngineError(
                f"{self.path} is a folder, and the engine reads one file; if it is a run's folder, "
                f"make that file of it: surnn export {self.path} --to engine"
            )
        status = library().surnn_load(str(self.path).encode(), ctypes.byref(self._model))
        _check(status, f"{self.path}: ")
        info = _Info()
        library().surnn_describe(self._model, ctypes.byref(info))
        self.takes_tokens = bool(info.takes_tokens)
        """Whether steps are tokens; else frames."""
        self.input_size: int = info.input_size
        """Numbers of a frame, or the vocabulary's size."""
        self.output_size: int = info.output_size
        self.layers: int = info.layers
        """Recurrent layers."""
        self.stream_size: int = info.stream_size
        """Bytes of a stream."""
        self.saved_size: int = info.saved_size
        """Bytes of a saved one."""
        self.macs_per_step: int = info.macs_per_step
        """Multiply-accumulates of a step with all gates open."""
        self.simd: str = info.simd.decode()
        """Instructions in use; the environment variable SURNN_SIMD may ask for fewer."""

    def stream(self) -> "Stream":
        """A stream before its first step."""
        return Stream(self)

    def time_parts(
        self, frames: np.ndarray, reset_before: bool = False
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Outputs, and seconds of each part of a GRU, for benchmarks; see ``csrc/bench.h``.

        ``reset``, ``update``, ``candidate``, ``state`` and ``rest``, computed one after another,
        and ``clock``: what reading the clock took in all of them. A new stream runs over
        ``frames`` [T, input_size]. ``reset_before``: the cost of a GRU whose reset gates act before
        the candidate's product, so that all of them are needed when any unit updates.
        """
        frames = np.ascontiguousarray(frames, np.float32).reshape(-1, self.input_size)
        out, parts = np.empty((len(frames), self.output_size), np.float32), _Parts()
        where = frames.ctypes.data, len(frames), out.ctypes.data, reset_before, ctypes.byref(parts)
        _check(
            library().surnn_time_parts(self._model, *where),
            "it takes GRUs with float32 weights whose gates are shared by 4 units or more: ",
        )
        return out, {field[0]: getattr(parts, field[0]) for field in _Parts._fields_}

    def time_steps(self, frames: np.ndarray) -> np.ndarray:
        """Seconds of each step of a new stream over ``frames`` [T, input_size]."""
        seconds = np.empty(len(frames))
        self._step(frames, seconds.ctypes.data)
        return seconds

    def run_steps(self, frames: np.ndarray) -> np.ndarray:
        """What a new stream says to ``frames`` [T, input_size], one by one, in a loop in C."""
        return self._step(frames, None)

    def _step(self, frames: np.ndarray, seconds: int | None) -> np.ndarray:
        frames = np.ascontiguousarray(frames, np.float32).reshape(-1, self.input_size)
        out = np.empty((len(frames), self.output_size), np.float32)
        where = frames.ctypes.data, len(frames), out.ctypes.data, seconds
        _check(library().surnn_time_steps(self._model, *where), "it takes frames: ")
        return out

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            library().surnn_free(self._model)
            self._model = None

    def __repr__(self) -> str:
        takes = "tokens of" if self.takes_tokens else "frames of"
        return f"Engine({str(self.path)!r}: {takes} {self.input_size} to {self.output_size})"


class Stream:
    """The state of one sequence. Of :meth:`Engine.stream`; for one thread at a time."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._stream = ctypes.c_void_p()
        _check(library().surnn_stream_new(engine._model, ctypes.byref(self._stream)))

    def step(self, frame: Any) -> np.ndarray:
        """One frame [input_size], or one token: the prediction after it, [output_size]."""
        return self.run(np.asarray(frame)[None])[0]

    def run(self, frames: Any) -> np.ndarray:
        """Many steps [T, input_size], or tokens [T]: predictions [T, output_size].

        A model of bytes takes a text as it is: ``stream.run(b"abc")``.
        """
        engine = self.engine
        if isinstance(frames, bytes | bytearray) and engine.takes_tokens:
            if engine.input_size != 256:
                raise ValueError(
                    f"this model's {engine.input_size} tokens are no bytes; encode the text with "
                    "its tokenizer, and give the tokens [T]"
                )
            frames = np.frombuffer(frames, np.uint8)
        frames = np.asarray(frames)
        if engine.takes_tokens:
            frames = self._tokens(frames)
        elif frames.ndim != 2 or frames.shape[1] != engine.input_size:
            raise ValueError(
                f"this model takes frames of {engine.input_size} numbers: one [{engine.input_size}]"
                f" in step, [T, {engine.input_size}] in run; got {list(frames.shape)}"
            )
        else:
            frames = np.ascontiguousarray(frames, np.float32)
        out = np.empty((len(frames), engine.output_size), np.float32)
        run = library().surnn_run_tokens if engine.takes_tokens else library().surnn_run
        arguments = frames.ctypes.data, len(frames), out.ctypes.data
        _check(run(engine._model, self._stream, *arguments))
        return out

    def _tokens(self, tokens: np.ndarray) -> np.ndarray:
        most = self.engine.input_size
        if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
            raise ValueError(
                f"this model takes tokens, integers below {most}: one in step, [T] in run; got "
                f"{tokens.dtype} of shape {list(tokens.shape)}"
            )
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < most:
            raise ValueError(f"tokens are from 0 to {most - 1}, got {tokens.min()}..{tokens.max()}")
        return np.ascontiguousarray(tokens, np.uint32)

    def reset(self) -> Self:
        """Back to before the first step."""
        _check(library().surnn_reset(self.engine._model, self._stream))
        return self

    def clone(self) -> "Stream":
        """Another stream in the same state."""
        return Stream(self.engine).restore(self.save())

    def __deepcopy__(self, _: Any) -> "Stream":
        return self.clone()  # the model is shared, as by all of its streams

    def save(self) -> bytes:
        """All of the state, as plain bytes."""
        room = ctypes.create_string_buffer(self.engine.saved_size)
        _check(library().surnn_save(self.engine._model, self._stream, room, len(room)))
        return room.raw

    def restore(self, state: bytes) -> Self:
        """Go on from what :meth:`save` gave."""
        _check(library().surnn_restore(self.engine._model, self._stream, state, len(state)))
        return self

    @property
    def clock(self) -> int:
        """Steps taken so far; gates that go by time read it. It may be set."""
        return library().surnn_clock(self._stream)

    @clock.setter
    def clock(self, t: int) -> None:
        t = operator.index(t)  # or say that it is none
        _check(library().surnn_set_clock(self.engine._model, self._stream, t), f"clock {t}: ")

    @property
    def work(self) -> Work:
        """Work done, and what all of it would be, since the stream was new or reset."""
        work = _Work()
        library().surnn_work_done(self.engine._model, self._stream, ctypes.byref(work))
        return Work(*(getattr(work, field[0]) for field in _Work._fields_))

    def gates(self, layer: int) -> np.ndarray:
        """Gates of a recurrent layer at the last step: 1 updated, 0 carried."""
        out = np.empty(self._layer(layer).gates, np.uint8)
        _check(library().surnn_gates(self.engine._model, self._stream, layer, out.ctypes.data))
        return out

    def hidden(self, layer: int) -> np.ndarray:
        """State of a recurrent layer, [components, units]; the first is its output."""
        info = self._layer(layer)
        out = np.empty((info.components, info.units), np.float32)
        _check(library().surnn_hidden(self.engine._model, self._stream, layer, out.ctypes.data))
        return out

    def _layer(self, layer: int) -> _LayerInfo:
        info = _LayerInfo()
        status = library().surnn_describe_layer(self.engine._model, layer, ctypes.byref(info))
        _check(status, f"layer {layer} of {self.engine.layers}: ")
        return info

    def __del__(self) -> None:
        if getattr(self, "_stream", None):
            library().surnn_stream_free(self._stream)
            self._stream = None
