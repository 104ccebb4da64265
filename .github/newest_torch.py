"""Fails if torch has a newer release than those in the CI matrix: test it, then enter it there."""

import re
import subprocess
import sys
from pathlib import Path

WORKFLOW = Path(__file__).parent / "workflows" / "ci.yml"


def release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


tested = max(re.findall(r'torch: "([\d.]+)"', WORKFLOW.read_text()), key=release)
listing = subprocess.run(
    [sys.executable, "-m", "pip", "index", "versions", "torch"],
    capture_output=True, text=True, check=True,
).stdout  # fmt: skip
found = re.match(r"torch \(([\d.]+)", listing)
if found is None:
    sys.exit(f"pip index versions torch printed no version:\n{listing}")
if release(found[1]) > release(tested):
    sys.exit(f"torch {found[1]} is released; the newest in {WORKFLOW.name} is {tested}")
print(f"torch {tested} is the newest release")
