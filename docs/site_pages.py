"""Pages of the site that are files of the repository's root, and the pictures that they show.

mkdocs calls ``on_files``. Links between documents are rewritten to the pages of the site; links to
other files of the repository go to the repository.
"""

import re
from pathlib import Path
from typing import Any

import tutorials  # beside this file; mkdocs finds it
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "RESULTS.md": "results.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "csrc/FORMAT.md": "format.md",
    **{f"examples/tutorials/{name}.py": f"tutorials/{name}.md" for name in tutorials.NAMES},
}
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\.(png|svg)\)")
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages and their pictures."""
    for picture in (ROOT / "results" / "figures").glob("*.png"):
        target = f"results/figures/{picture.name}"
        files.append(File.generated(config, target, content=picture.read_bytes()))
    for source, page in PAGES.items():
        path = ROOT / source
        if path.suffix == ".py":
            text = tutorials.page(path.stem)
        else:
            text = _rewritten(path.read_text(), config["extra"]["repository"])
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Links of pages in docs/ to files outside of it, and pictures for a dark page."""
    if not page.file.src_uri.startswith("tutorials/"):  # their links are those of the site
        markdown = _LINK.sub(lambda m: _from_docs(m, config["extra"]["repository"]), markdown)
    return _PICTURE.sub(lambda m: _both_themes(m, files), markdown)


def _rewritten(text: str, repository: str) -> str:
    def link(match: re.Match[str]) -> str:
        target = match.group(2)
        if "://" in target:
            return match.group(0)
        if target in PAGES:
            target = PAGES[target]
        elif target.startswith("docs/"):
            target = target.removeprefix("docs/")
        elif not target.endswith(".png"):
            target = f"{repository}/blob/main/{target}"
        return match.group(1) + target + match.group(3)

    return _LINK.sub(link, text)


def _from_docs(match: re.Match[str], repository: str) -> str:
    target = match.group(2)
    if not target.startswith("../"):
        return match.group(0)
    target = target.removeprefix("../")
    if target.startswith("results/figures/"):
        return match.group(1) + target + match.group(3)
    page = PAGES.get(target, f"{repository}/blob/main/{target}")
    return match.group(1) + page + match.group(3)


def _both_themes(match: re.Match[str], files: Files) -> str:
    """A picture, and the one for a dark page if there is a file NAME-dark."""
    text, path, kind = match.groups()
    if files.get_file_from_path(f"{path}-dark.{kind}") is None:
        return match.group(0)
    light, dark = f"![{text}]({path}.{kind}#only-light)", f"![{text}]({path}-dark.{kind}#only-dark)"
    return f"{light}\n{dark}"
