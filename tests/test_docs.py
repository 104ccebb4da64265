"""Code in the documents runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

import surnn
from surnn.cells import CELLS
from training import trainer

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", "docs/analysis.md", "docs/language_models.md"]
)
def test_code_blocks_run(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), flags=re.DOTALL)
    assert blocks
    trainer(tmp_path / "run", steps=1).fit()
    names = {"torch": torch, "surnn": surnn, "RUN": tmp_path / "run"}
    try:
        for block in blocks:
            exec(compile(block, document, "exec"), names)
    finally:
        CELLS.pop("leaky", None)
