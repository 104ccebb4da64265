"""Inherited options, listed in the signature and the docstring of a class.

A class that adds options to those of its base declares ``**options`` and passes them on.
:func:`inherit_options` lists every option in its signature and docstring, for ``help()``, editors
and ``inspect.signature``. :func:`check_known` refuses a misspelled option and suggests the correct
name.
"""

import difflib
import inspect
import re
from collections.abc import Iterable
from typing import get_args

# The line "**options: see :class:`Gate`." in a section "Args:".
_INHERITED = re.compile(r"^( *)\*\*options: see :class:`\w+`\.\n?", re.MULTILINE)
# An option in such a section, with its continuation lines, in a docstring without indentation.
_OPTION = re.compile(r"^    (\w+): .*\n?(?:^     .*\n?)*", re.MULTILINE)


def inherit_options(kind: type, base: type) -> None:
    """Add the options that ``kind`` passes on to ``base`` to its signature and its docstring.

    ``**options: Unpack[SomeTypedDict]`` adds the names in that dictionary; any other ``**options``
    adds all options of ``base``; ``**unknown``, for :func:`check_known`, adds none. Options that
    ``kind`` lists itself keep their defaults and texts.
    """
    own = list(inspect.signature(kind.__init__).parameters.values())[1:]
    options = {option.name: option for option in own if option.kind is not option.VAR_KEYWORD}
    for forwarded in own[len(options) :]:
        keys = frozenset() if forwarded.name == "unknown" else _keys(forwarded)
        for name, option in named_options(base).items():
            if keys is None or name in keys:
                options.setdefault(name, option)
    kind.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    if kind.__doc__:
        kind.__doc__ = _INHERITED.sub(lambda line: _inherited(kind, line[1]), kind.__doc__)


def named_options(kind: type) -> dict[str, inspect.Parameter]:
    """The options of a class by name, inherited ones included."""
    options = inspect.signature(kind).parameters
    return {name: o for name, o in options.items() if o.kind is not o.VAR_KEYWORD}


def check_known(kind: type, unknown: Iterable[str]) -> None:
    """Refuse options that ``kind`` does not have; the message suggests the closest name."""
    for name in unknown:
        known = [option for option in named_options(kind) if option != name]
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
        raise TypeError(f"{kind.__name__} has no option {name!r}; {hint}")


def _keys(options: inspect.Parameter) -> frozenset[str] | None:
    """The names in ``**options: Unpack[SomeTypedDict]``; None without such an annotation."""
    for dictionary in get_args(options.annotation):
        if hasattr(dictionary, "__required_keys__"):
            return dictionary.__required_keys__ | dictionary.__optional_keys__
    return None


def _inherited(kind: type, indent: str) -> str:
    """The texts of the options of ``kind`` that its own docstring does not describe."""
    texts: dict[str, str] = {}
    own = option_texts(kind)
    for base in kind.__mro__[1:]:
        for name, text in option_texts(base).items():
            if name in named_options(kind) and name not in own:
                texts.setdefault(name, text)
    return "".join(f"{indent[4:]}{line}\n" for text in texts.values() for line in text.splitlines())


def option_texts(kind: type) -> dict[str, str]:
    """The entries of the section "Args:" in a class's own docstring."""
    text = inspect.cleandoc(kind.__doc__ or "")
    section = text.partition("Args:\n")[2].partition("\n\n")[0]
    return {entry[1]: entry[0] for entry in _OPTION.finditer(section)}
