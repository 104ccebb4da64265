"""The help text of flags, from the docstrings of options.

An option is described by the string below its field, or in the section "Args:" of its class. Help
on the command line shows this text as one paragraph without markup. A text that ends with "None:
four times the width." shows "(default: four times the width)" where None is the default.
"""

import ast
import inspect
import re
import textwrap
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Annotated, Any, get_type_hints

import tyro

from surnn.nn.options import option_texts

_MEANING_OF_NONE = re.compile(r"\s*None: ((?:[^.]|\.\S)+)\.$")
_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_LITERAL = re.compile(r"``\"?(.+?)\"?``")


def flag(kind: Any, text: str, default: Any) -> Any:
    """The type ``kind`` of a flag, annotated with its help text for tyro."""
    text = plain(text)
    none = _MEANING_OF_NONE.search(text)
    if none is None or default is not None:
        return Annotated[kind, tyro.conf.arg(help=text)]
    hint = f"(default: {none[1]})"
    return Annotated[kind, tyro.conf.arg(help=text[: none.start()], help_behavior_hint=hint)]


def group(options: Any) -> Any:
    """The class of ``options``, annotated with its description for tyro."""
    paragraphs = inspect.cleandoc(type(options).__doc__ or "").partition("\n\nArgs:")[0]
    text = "\n\n".join(plain(paragraph) for paragraph in paragraphs.split("\n\n"))
    return Annotated[type(options), tyro.conf.arg(help=text)]


def plain(text: str) -> str:
    """``text`` in one line, without markup."""
    text = " ".join(text.split())
    return _LITERAL.sub(r"\1", _ROLE.sub(r"\1", text))


def registry() -> tyro.constructors.ConstructorRegistry:
    """Rules that make tyro show the help text of :func:`flag` for every option of a dataclass."""
    rules = tyro.constructors.ConstructorRegistry()
    rules.struct_rule(_flags_of_options)
    return rules


def _flags_of_options(
    info: tyro.constructors.StructTypeInfo,
) -> tyro.constructors.StructConstructorSpec | None:
    if not is_dataclass(info.type) or not isinstance(info.default, info.type):
        return None
    kinds, texts = get_type_hints(info.type), field_texts(info.type)
    specs = []
    for field in fields(info.type):
        default = getattr(info.default, field.name)
        kind = flag(kinds[field.name], texts.get(field.name, ""), default)
        specs.append(tyro.constructors.StructFieldSpec(field.name, kind, default))
    return tyro.constructors.StructConstructorSpec(info.type, tuple(specs))


@lru_cache
def field_texts(kind: type) -> dict[str, str]:
    """The description of each field of a dataclass, inherited ones included."""
    texts: dict[str, str] = {}
    for base in kind.__mro__:
        if is_dataclass(base):
            entries = option_texts(base).items()
            described = {name: text.partition(": ")[2] for name, text in entries}
            for name, text in {**_strings_below_fields(base), **described}.items():
                texts.setdefault(name, text)
    return texts


def _strings_below_fields(kind: type) -> dict[str, str]:
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # no source: a class of an interactive session
        return {}
    (tree,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(tree, ast.ClassDef)
    texts = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                texts[field.target.id] = text.value
    return texts
