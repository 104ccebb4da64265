"""The table of headline results."""

import statistics
from pathlib import Path

from surnn_recipes import RECIPES

from . import ResultsError
from .records import read_records
from .tables import bold_if, format_metric, format_rate, head, row_of, spread

HEADLINES = (
    ("psMNIST step by step, 2 x 256", "psmnist-stepwise", "psmnist-stepwise-gru"),
    ("... with Elman RNNs", "psmnist-stepwise-surnn", "psmnist-stepwise-rnn"),
    ("... with LSTMs", "psmnist-stepwise-sulstm", "psmnist-stepwise-lstm"),
    ("Copying Memory, delay 100", "copying-100", "copying-100-gru"),
    ("... delay 5000, Elman RNNs", "copying-5000-surnn", None),
    ("psMNIST in one pass, images shifted", "psmnist-shifted", None),
    ("sMNIST, the same", "smnist-shifted", None),
    ("sequential CIFAR-10, crops and flips", "scifar", None),
    ("Long Range Arena: Image, grey (the paper's may be in colour)", "lra-image", None),
    ("... Image, sigmoid gates (every unit updates)", "lra-image-sigmoid", None),
    ("... Text, with one layer that updates at every time step", "lra-text-open", None),
    ("... ListOps, the same, short expressions first", "lra-listops-open", None),
    ("... Pathfinder, short lines first", "lra-pathfinder", None),
    ("psMNIST, spiking neurons", "spiking-psmnist", None),
    ("spoken digits in noise, gates that hear them", "spoken-digits-rate-0.03",
     "spoken-digits-gru"),
)  # fmt: skip
"""Text, a row, and its counterpart without gates if that was trained as long."""
PAPERS = {
    "lra-text-open": "lra-text", "lra-listops-open": "lra-listops", "psmnist-shifted": "psmnist",
    "smnist-shifted": "smnist",
}  # fmt: skip
"""The row with the paper's number, for headlines whose own row has none."""


def headline_table(rows: Path) -> list[str]:
    """Selective updates, the same layers without gates, and the paper's numbers."""
    lines = head("test accuracy [%]", "selective updates", "update rate", "parameters",
                 "without gates", "parameters", "paper's selective")  # fmt: skip
    records = read_records(rows)
    for about, *names in HEADLINES:
        shown = [row for row in names if row is not None]
        if missing := [row for row in shown if not records.get(row, {}).get("test")]:
            raise ResultsError(f"headlines show {missing[0]}, which has not been run and tested")
        pair = [records[row] for row in shown]
        best = max(statistics.fmean(each["test"]) for each in pair)
        cells = []
        for each in pair:
            better = len(pair) > 1 and statistics.fmean(each["test"]) == best
            test = bold_if(better, spread("accuracy", each["test"]))
            cells.append((test, f"{each['parameters']:,}"))
        (ours, size), baseline = cells[0], cells[1] if cells[1:] else ("", "")
        paper = RECIPES[PAPERS.get(shown[0], shown[0])].paper
        lines.append(row_of(
            about, ours, format_rate(pair[0], kinds=False), size, *baseline,
            "" if paper is None else format_metric("accuracy", paper),
        ))  # fmt: skip
    return lines
