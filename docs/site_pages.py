"""Pages of the site that are files of the repository's root, and the pictures that they show.

mkdocs calls ``on_files``. Links between documents are rewritten to the pages of the site; links to
other files of the repository go to the repository.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "RESULTS.md": "results.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "csrc/FORMAT.md": "format.md",
}
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages and their pictures."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text()
        for picture in re.findall(r"!\[[^\]]*\]\(([^)\s]+\.png)\)", text):
            target = picture.removeprefix("docs/")
            if files.get_file_from_path(target) is None:
                image = ROOT / Path(source).parent / picture
                files.append(File.generated(config, target, content=image.read_bytes()))
        files.append(File.generated(config, page, content=_rewritten(text, config["repo_url"])))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Links of pages in docs/ to files outside of it."""
    return _LINK.sub(lambda m: _from_docs(m, config["repo_url"]), markdown)


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
    page = PAGES.get(target, f"{repository}/blob/main/{target}")
    return match.group(1) + page + match.group(3)
