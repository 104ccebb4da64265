"""Code in the documents runs as it stands."""

import ast
import doctest
import importlib.util
import inspect
import re

import pytest
import torch

import surnn
from helpers.paths import ROOT
from helpers.training import trainer
from surnn.nn.cells import CELLS

_SPEC = importlib.util.spec_from_file_location("tutorials", ROOT / "docs" / "tutorials.py")
assert _SPEC is not None
assert _SPEC.loader is not None
tutorials = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(tutorials)
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


@pytest.mark.parametrize("name", surnn.__all__)
def test_every_public_name_has_an_example_that_runs(name):
    """In its own docstring, not in that of a base class; pytest runs it."""
    owner = getattr(surnn, name)
    text = owner.__doc__ if not inspect.isclass(owner) else vars(owner)["__doc__"]
    examples = doctest.DocTestParser().get_examples(text)
    run = [e.source for e in examples if not e.options.get(doctest.SKIP)]
    assert any(re.search(rf"\b{name}\b", source) for source in run)


@pytest.mark.parametrize("name", tutorials.NAMES)
def test_the_output_on_a_tutorials_page_is_that_of_its_code(name):
    """Run ``make docs-examples`` after changing the code of a tutorial."""
    script, record = (tutorials.SCRIPTS / f"{name}.py").read_text(), tutorials.read_record(name)
    assert record is not None, "run make docs-examples"
    assert record["code"] == tutorials.code_checksum(script)
    assert record["processor_seconds"] < 300  # of the record: a promise of the pages
    code = [cell for cell in tutorials.cells(script) if cell.kind == "code"]
    assert len(record["outputs"]) == len(code)
    assert tutorials.page(name).startswith("# ")


@pytest.mark.parametrize("name", tutorials.NAMES)
def test_links_of_tutorials_lead_to_pages(name):
    text = (tutorials.SCRIPTS / f"{name}.py").read_text()
    for target in re.findall(r"\]\(\.\./([^)#]+)", text):
        assert (ROOT / "docs" / target).exists() or target == "results.md"


def test_a_tutorial_changes_its_checksum_with_its_code_alone():
    script = "# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 1\n"
    assert [tuple(c) for c in tutorials.cells(script)] == [
        ("text", "# Title\n\nText."),
        ("code", "x = 1"),
    ]
    same, other = script.replace("Text", "Words"), script.replace("x = 1", "x = 2")
    assert tutorials.code_checksum(same) == tutorials.code_checksum(script)
    assert tutorials.code_checksum(other) != tutorials.code_checksum(script)


def test_figures_have_a_form_for_dark_pages():
    folders = ROOT / "docs" / "figures", ROOT / "results" / "figures"
    drawn = [p for f in folders for p in f.glob("*.png") if not p.stem.endswith("-dark")]
    assert len(drawn) > 30
    assert [p for p in drawn if not p.with_stem(f"{p.stem}-dark").exists()] == []


def test_messages_that_the_page_of_errors_quotes_exist():
    headings = re.findall(r"^## `(.*?)`$", (ROOT / "docs/errors.md").read_text(), re.MULTILINE)
    assert len(headings) > 4
    texts = "\n".join(_texts(path) for path in (ROOT / "src").rglob("*.py"))
    missing = [part for h in headings for part in h.split("'...'") if part not in texts]
    assert missing == []


def _texts(path) -> str:
    """All strings in a module; the values in an f-string are left out."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return "\n".join(n.value for n in nodes if isinstance(n, ast.Constant) and type(n.value) is str)


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
