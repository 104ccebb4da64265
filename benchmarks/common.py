"""What the benchmark scripts share."""

import json
from pathlib import Path
from typing import Any


def write_result(path: Path | None, result: dict[str, Any]) -> None:
    """Write ``result`` as JSON, into a new folder if need be; nothing if ``path`` is None."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
