"""The table of docs/keyword_spotting.md."""

from pathlib import Path

from surnn_recipes.speech_commands import NAMES

from .records import Record, read_records
from .tables import head, row_of, spread

CLIPS, STREAMS = "speech-commands", "keyword-stream"
MODELS = {"": "**suGRU**"} | {f"-{kind}": name for kind, name in NAMES.items()}
SOUNDS = ("keyword", "distractor", "noise")


def accuracy(results: Path) -> list[str]:
    """Clips and streams: quality and update rates of the models that were trained."""
    records = read_records(results / "rows")
    lines = head(
        "", "parameters", "clips: accuracy [%]", "updates",
        "streams: missed at 5 false alarms an hour [%]", "at 1 an hour",
        "updates", "in keywords, other words, noise",
    )  # fmt: skip
    for name, about in MODELS.items():
        clips, streams = records.get(CLIPS + name), records.get(STREAMS + name)
        some = streams or clips
        if some is None:
            continue
        lines.append(row_of(
            about, f"{some['parameters']:,}", _score(clips), _updates(clips), _score(streams),
            "" if streams is None else f"{100 * streams['parts']['misses at 1 an hour']:.2f}",
            _updates(streams), "" if streams is None else _by_sound(streams),
        ))  # fmt: skip
    return lines


def _score(record: Record | None) -> str:
    return "not trained" if record is None else spread(record["metric"], record["test"])


def _updates(record: Record | None) -> str:
    if record is None:
        return ""
    return "all" if record["update_rate"] is None else f"{record['update_rate']:.1%}"


def _by_sound(record: Record) -> str:
    rates = record["update_rate_by_kind"]
    return ", ".join(f"{rates[sound]:.1%}" for sound in SOUNDS) if rates else ""
