"""Help of the tools names the command that runs them."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["surnn_recipes.run_plan", "surnn_recipes.results"])
def test_usage_names_the_module(module):
    command = [sys.executable, "-m", module, "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.startswith(f"usage: python -m {module} ")
