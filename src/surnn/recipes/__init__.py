"""One named recipe for each row of the paper's tables, what it is compared with beside it, and a
few past the paper. ``surnn reproduce NAME`` runs one; ``surnn list recipes`` shows them all.

A recipe is a typed function that returns a whole configuration, at full size. Where the paper is
silent, sizes and rates are those that trained well here. What a row measures, and how, is its
task's business.
"""

from importlib import import_module

from .base import RECIPES as RECIPES
from .base import Recipe as Recipe

IN_ORDER = (
    "copying", "arena", "selective_copy", "language", "pixels", "stepwise", "mackey_glass",
    "beyond", "races",
)  # fmt: skip
for _module in IN_ORDER:  # each enters its recipes
    import_module(f".{_module}", __name__)
