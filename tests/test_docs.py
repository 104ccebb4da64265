"""Code in the documents runs as it stands."""

import inspect
import re

import pytest
import torch

import surnn
from helpers.paths import ROOT
from helpers.training import trainer
from surnn.nn.cells import CELLS

DOCUMENTS = ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
WITH_CODE = [name for name in sorted(DOCUMENTS) if "```python" in (ROOT / name).read_text()]


@pytest.mark.parametrize("document", WITH_CODE)
def test_code_blocks_run(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), flags=re.DOTALL)
    trainer(tmp_path / "run", steps=1).fit()
    names = {"torch": torch, "surnn": surnn, "RUN": tmp_path / "run"}
    try:
        for block in blocks:
            exec(compile(block, document, "exec"), names)
    finally:
        CELLS.pop("leaky", None)


def test_the_readme_is_one_screen():
    assert len((ROOT / "README.md").read_text().split()) <= 1200


def test_the_reference_lists_every_public_name():
    listed = re.findall(r"^::: (\S+)$", (ROOT / "docs/api.md").read_text(), flags=re.MULTILINE)
    assert {name.rpartition(".")[2] for name in listed} == set(surnn.__all__)


def test_every_public_name_has_an_example():
    """In its docstring, or in a page whose code runs."""
    pages = "".join((ROOT / name).read_text() for name in WITH_CODE)
    shown = "".join(re.findall(r"```python\n(.*?)```", pages, flags=re.DOTALL))
    missing = [
        name
        for name in surnn.__all__
        if ">>>" not in (inspect.getdoc(getattr(surnn, name)) or "")
        and not re.search(rf"\b{name}\b", shown)
    ]
    assert missing == []


@pytest.mark.parametrize("document", sorted(DOCUMENTS))
def test_links_between_documents_lead_somewhere(document):
    path = ROOT / document
    for target, anchor in re.findall(r"\]\(([^)\s#]*)#?([^)\s]*)\)", path.read_text()):
        if "://" in target or target in ("results.md", "index.md"):  # pages that the site makes
            continue
        other = path.parent / target if target else path
        assert other.exists(), f"{document} links to {target}"
        if anchor and other.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", other.read_text(), flags=re.MULTILINE)
            assert anchor in {_anchor(h) for h in headings}, f"{document}: no #{anchor} in {target}"


def _anchor(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
