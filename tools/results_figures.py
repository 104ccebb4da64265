"""The figures and races of RESULTS.md: which rows are drawn, and how."""

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("results/figures")


@dataclass(frozen=True)
class Figure:
    """A figure of records, shown with the rows of its task."""

    name: str
    task: str
    plot: str
    """As surnn plot calls it."""
    rows: tuple[str, ...]
    """Recipes."""
    about: str

    @property
    def file(self) -> str:
        return f"{self.name}.png"

    def runs(self, rows: Path) -> list[Path]:
        """What is drawn; nothing until all of them are there."""
        runs = [sorted((rows / row).glob("seed*")) for row in self.rows]
        return [seed for seeds in runs for seed in seeds] if all(runs) else []

    def shown(self) -> list[str]:
        """On the page."""
        several = f"{{{','.join(self.rows)}}}" if self.rows[1:] else self.rows[0]  # as of a shell
        seeds = f"results/rows/{several}/seed*"
        return ["", f"![{self.name}]({FOLDER / self.file})", "",
                f"{self.about} <sub>`surnn plot {self.plot} {seeds}`</sub>"]  # fmt: skip


RACES = (
    (("race-psmnist", "race-psmnist-gru", "race-psmnist-lstm"), (0.3, 0.4, 0.5, 0.7, 0.9, 0.97)),
    (("race-scifar", "race-scifar-gru", "race-scifar-lstm"), (0.2, 0.3, 0.4, 0.5, 0.6)),
    (("race-text", "race-text-gru", "race-text-lstm"), (0.55, 0.6, 0.65, 0.7)),
)
"""Rows, and what they are to reach in validation."""

STEPWISE = "psmnist-stepwise"
FIGURES = (
    Figure(
        "psmnist-gates", "psmnist", "metric-by-rate",
        (STEPWISE, *(f"{STEPWISE}-{name}" for name in (
            "rate-0.02", "rate-0.05", "rate-0.2", "rate-0.5", "spline", "spectral", "frozen",
            "frozen-sparse", "random", "open"))),
        "psMNIST step by step: some of the gates, and how often they update. Bars are the "
        "deviation over three seeds; where there is one seed and no bar, the 10,000 test images "
        "alone make ±0.14 points.",
    ),
    Figure(
        "psmnist-cells", "psmnist", "learning-curves",
        (STEPWISE, *(f"{STEPWISE}-{name}" for name in ("surnn", "sulstm", "gru", "lstm", "rnn"))),
        "The three cells with and without gates.",
    ),
    Figure(
        "copying", "copying", "learning-curves",
        tuple(
            f"copying-5000{name}"
            for name in ("", "-surnn", "-frozen", "-rnn", "-gru", "-chrono", "-lstm")
        ),
        "Copying Memory with a delay of 5000: rhythms that are learned, rhythms that are not, and "
        "layers that update at every step, for as many updates as they made in three minutes "
        "beside eight other runs and more.",
    ),
    Figure(
        "listops", "listops", "learning-curves", ("lra-listops", "lra-listops-open"),
        "ListOps by clocks alone on full lengths (growing 0), and with a first layer that is "
        "always open and twice the learning rate (growing 4000); there the training loss is of up "
        "to 62 tokens until update 2,000, of 249 until 4,000.",
    ),
    Figure(
        "pathfinder", "pathfinder", "learning-curves", ("lra-pathfinder", "lra-pathfinder-sigmoid"),
        "Pathfinder by binary gates and by sigmoids (mode soft): until update 3,000 the training "
        "loss is of lines of up to 2, 3, 4, 6 and 9 paddles, for 600 updates each.",
    ),
    Figure(
        "mackey-glass", "mackey_glass", "forecast-horizon",
        tuple(f"mackey-glass{name}" for name in ("", "-always-on", "-gru", "-lstm", "-s4d")),
        "Forecasts of series that were not trained on.",
    ),
    Figure(
        "ecg", "ecg_beats", "metric-by-rate",
        tuple(f"ecg{name}" for name in ("-rate-0.03", "", "-rate-0.3", "-clock", "-gru")),
        "Beats found, and how often units update; one seed each.",
    ),
    Figure(
        "spoken-digits", "spoken_digits", "metric-by-rate",
        tuple(f"spoken-digits{name}" for name in ("-rate-0.03", "", "-rate-0.3", "-clock", "-gru")),
        "Digits heard in noise, and how often units update. Bars are the deviation over seeds; one "
        "of the 300 test recordings is 0.33 points.",
    ),
    Figure(
        "races", "psmnist", "wall-clock",
        tuple(name for names, _ in RACES for name in names),
        "Ours and cuDNN's GRU and LSTM in the same blocks, with as many parameters, each with the "
        "same GPU to itself. All are captured, none is compiled; products are in bfloat16, cuDNN's "
        "states too. Validations are in the time on CIFAR-10 only; compiling our kernels, once a "
        "machine, is in none. Text has three seeds.",
    ),
    Figure(
        "enwik8", "enwik8", "wall-clock",
        ("enwik8-gru", "enwik8-sugru", "enwik8-sugru-input", "enwik8-transformer", "enwik8-hybrid"),
        "Bits per byte against time.",
    ),
)  # fmt: skip
