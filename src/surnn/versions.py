"""What is installed here, and from which commit. No torch in here."""

import subprocess
from importlib import metadata
from pathlib import Path

ARCHIVED = "$Format:%H$"
"""git writes the commit in here when it makes an archive (.gitattributes says so)."""


def version(package: str) -> str | None:
    """Of an installed package; None if it is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def commit(here: Path = Path(__file__).parent) -> str | None:
    """The commit of this source, with a + if a checkout was changed since; of an archive, the
    commit that it was made of. None in neither."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # else it is someone else's repository
        return git("rev-parse", "HEAD") + "+" * bool(git("status", "--porcelain", "--", "."))
    except (OSError, subprocess.CalledProcessError):  # OSError: git is not installed
        return None if ARCHIVED.startswith("$") else ARCHIVED
