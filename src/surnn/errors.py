"""The errors of surnn: what came, what was expected, how to fix it.

``surnn.SurnnError`` is the base of the errors of commands, configurations, run folders, training,
data sets, the engine and the analysis. The command line prints such an error as one line; any other
exception is a bug and shows its traceback. Layers, gates, scans, models, tasks and exports raise
ValueError and TypeError, as torch does; in commands, :func:`option_errors` makes
:class:`ConfigError` of them.
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

EXTRAS = {
    "tyro": "train", "rich": "train", "safetensors": "train", "jaxtyping": "train",
    "filelock": "train",
    "matplotlib": "plot", "tensorboard": "log", "PIL": "images",
    "onnx": "onnx", "onnxscript": "onnx", "onnxruntime": "onnx", "nir": "nir",
    "tokenizers": "lm", "transformers": "hf", "accelerate": "hf",
    "torchrl": "rl", "tensordict": "rl", "sb3_contrib": "rl", "stable_baselines3": "rl",
    "gymnasium": "rl",
    "pyarrow": "parquet", "sklearn": "sklearn",
}  # fmt: skip
"""The extra of surnn that installs each optional package, by the package's import name."""


class SurnnError(Exception):
    """An error that the user can fix. It states the value received, the one expected, and the fix.

    Example:
        >>> import surnn
        >>> try:
        ...     surnn.load("no/such/run")
        ... except SurnnError as error:
        ...     print(type(error).__name__)
        RunError
    """


class ConfigError(SurnnError, ValueError):
    """An option, or a combination of options, that a run cannot have."""


class ClockError(SurnnError, ValueError):
    """A hidden state has lost the time step that a layer needs; the message shows how to keep it.

    Example:
        >>> import surnn, torch
        >>> layer = surnn.SuGRU(4, 8)
        >>> _, h = layer(torch.randn(10, 2, 4))
        >>> try:
        ...     layer(torch.randn(1, 2, 4), torch.tanh(h))
        ... except ClockError:
        ...     print("the clock was lost")
        the clock was lost
    """


class InputError(ValueError, RuntimeError):
    """An input that a layer cannot take, where torch's layers raise RuntimeError.

    Code written for either class catches it. It is no :class:`SurnnError`: in a run it is a bug.
    """


class RunError(SurnnError):
    """A run folder cannot be read or written; the message explains how to fix it.

    Example:
        >>> issubclass(RunError, SurnnError)
        True
    """


class MissingExtra(SurnnError, ImportError):
    """An optional package is needed and not installed.

    Args:
        package: its import name.
        purpose: what needs it, such as ``"surnn train"``.
    """

    def __init__(self, package: str, purpose: str) -> None:
        extra = EXTRAS.get(package, "all")
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed: "
            f"pip install 'surnn[{extra}]'",
            name=package,
        )


def missing_extra(error: ModuleNotFoundError, purpose: str) -> Exception:
    """``error`` as a :class:`MissingExtra` if it names an optional package; else ``error``."""
    package = (error.name or "").partition(".")[0]
    return MissingExtra(package, purpose) if package in EXTRAS else error


@contextmanager
def option_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Raise errors of these ``kinds`` (by default ValueError) in the block as ConfigError.

    For code that passes a user's options to layers, gates and tasks, which raise ValueError as
    torch does. Code that computes stays outside: its errors are bugs and keep their traceback.
    """
    caught = kinds or (ValueError,)
    try:
        yield
    except SurnnError:
        raise
    except caught as error:
        raise ConfigError(str(error)) from error


def suggestion(wrong: str, known: Iterable[str], otherwise: str) -> str:
    """'did you mean ...?' if a known word is close, otherwise ``otherwise``."""
    close = difflib.get_close_matches(wrong, list(known), 1)
    return f"did you mean {close[0]!r}?" if close else otherwise


def printable(text: str) -> str:
    """The text with control characters written out: they could change a terminal, or what it shows.

    Line ends and tabs are kept.
    """
    return "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)
