"""Shared by all tests: a fixed seed, tiny data sets, and shape checks of ``surnn.analysis``."""

from importlib.util import find_spec

import pytest
import torch

if find_spec("beartype") and find_spec("jaxtyping"):  # shapes are checked where both are installed
    from jaxtyping import install_import_hook

    with install_import_hook("surnn.analysis", "beartype.beartype"):
        import surnn.analysis  # noqa: F401

from helpers.tiny_sets import data  # noqa: F401 (a fixture, for whoever names it)
from surnn.nn.runtime import has_triton, is_interpreted

if has_triton() and is_interpreted():
    from helpers.interpreter import mend

    mend()


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
