"""Trains recipes for two steps on the CPU."""

from pathlib import Path

from surnn.runs.folder import RunFolder
from surnn.train.recipe_options import configure
from surnn.train.session import start_run
from surnn_recipes import RECIPES
from surnn_recipes.run_plan import SMOKE


def train_two_steps(recipe: str, flags: list[str], folder: Path, data: Path) -> None:
    """The recipe at full size but for ``flags``, in batches of two."""
    config, _ = configure(RECIPES[recipe], [*flags, *SMOKE.split()], on_cpu=True)
    session = start_run(recipe, config, folder, data)
    assert RunFolder.open(session.path).last_step() == 2
