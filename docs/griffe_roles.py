"""For the API reference: Sphinx's roles in docstrings, such as :class:`Gate`, become code."""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")


class Roles(griffe.Extension):
    """Rewrites docstrings while they are loaded."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value).replace("``", "`")
