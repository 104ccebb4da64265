"""One named recipe for each row of the paper's tables, its baselines, and a few rows of our own.
``surnn reproduce NAME`` runs one; ``surnn list recipes`` lists all.

A recipe is a typed function that returns a complete configuration at full size. Sizes and rates
that the paper does not state are those that trained well here. The task defines data, loss and
metric.
"""

from importlib import import_module

from .base import RECIPES as RECIPES
from .base import Recipe as Recipe

MODULES = (
    "copying", "arena", "article_pairs", "selective_copy", "language", "pixels", "stepwise",
    "mackey_glass", "ecg_and_speech", "races", "state_tracking", "speech_commands",
)  # fmt: skip
for _module in MODULES:  # each module registers its recipes
    import_module(f".{_module}", __name__)
