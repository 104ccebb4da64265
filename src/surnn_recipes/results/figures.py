"""The figures and races of RESULTS.md."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("results/figures")


@dataclass(frozen=True)
class Figure:
    """A figure, shown below the table of its task."""

    name: str
    task: str
    plot: str
    """Its name in surnn plot."""
    rows: tuple[str, ...]
    """Recipes."""
    about: str

    @property
    def file(self) -> str:
        return f"{self.name}.png"

    def runs(self, rows: Path) -> list[Path]:
        """Seeds of all its rows; none if a row has not been run."""
        runs = [sorted((rows / row).glob("seed*")) for row in self.rows]
        return [seed for seeds in runs for seed in seeds] if all(runs) else []

    def markdown(self) -> list[str]:
        """Its lines of RESULTS.md."""
        several = (
            f"{{{','.join(self.rows)}}}" if self.rows[1:] else self.rows[0]
        )  # a shell's braces
        seeds = f"results/rows/{several}/seed*"
        return ["", f"![{self.name}]({FOLDER / self.file})", "",
                f"{self.about} <sub>`surnn plot {self.plot} {seeds}`</sub>"]  # fmt: skip


RACES = (
    (("race-psmnist", "race-psmnist-gru", "race-psmnist-lstm"), (0.3, 0.4, 0.5, 0.7, 0.9, 0.97)),
    (("race-scifar", "race-scifar-gru", "race-scifar-lstm"), (0.2, 0.3, 0.4, 0.5, 0.6)),
    (("race-text", "race-text-gru", "race-text-lstm"), (0.55, 0.6, 0.65, 0.7)),
)
"""Rows, and targets of their validation metric."""

STEPWISE = "psmnist-stepwise"
TRACKING = "state-tracking-s3"
FIGURES = (
    Figure(
        "psmnist-gates", "psmnist", "metric-by-rate",
        (STEPWISE, *(f"{STEPWISE}-{name}" for name in (
            "rate-0.02", "rate-0.05", "rate-0.2", "rate-0.5", "spline", "spectral", "frozen",
            "frozen-sparse", "random", "open"))),
        "psMNIST step by step: accuracy and update rate of several gates. Bars are the deviation "
        "over three seeds. Points without a bar have one seed; the 10,000 test images alone give a "
        "standard error of 0.14 points.",
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
        "Copying Memory with a delay of 5000: learned rhythms, random rhythms, and layers without "
        "gates. The layers without gates ran for three minutes, next to eight or more other runs; "
        "the RNN's learning rate is probably too high.",
    ),
    Figure(
        "listops", "listops", "learning-curves", ("lra-listops", "lra-listops-open"),
        "ListOps with clock gates in all layers on full lengths (growing 0), and with an ungated "
        "first layer and twice the learning rate (growing 4000). The latter trains on up to 62 "
        "tokens until step 2,000 and on up to 249 until 4,000.",
    ),
    Figure(
        "pathfinder", "pathfinder", "learning-curves", ("lra-pathfinder", "lra-pathfinder-sigmoid"),
        "Pathfinder with binary gates and with sigmoids (mode soft). Until step 3,000 training "
        "uses lines of up to 2, 3, 4, 6 and 9 paddles, for 600 steps each.",
    ),
    Figure(
        "mackey-glass", "mackey_glass", "forecast-horizon",
        tuple(f"mackey-glass{name}" for name in ("", "-always-on", "-gru", "-lstm", "-s4d")),
        "Forecast errors on test series.",
    ),
    Figure(
        "ecg", "ecg_beats", "metric-by-rate",
        tuple(f"ecg{name}" for name in ("-rate-0.03", "", "-rate-0.3", "-clock", "-gru")),
        "Untyped F1 of beats and update rate; one seed each.",
    ),
    Figure(
        "spoken-digits", "spoken_digits", "metric-by-rate",
        tuple(f"spoken-digits{name}" for name in ("-rate-0.03", "", "-rate-0.3", "-clock", "-gru")),
        "Accuracy on digits in noise and update rate. Bars are the deviation over seeds. One of "
        "the 300 test recordings is 0.33 points. The speakers are those of training.",
    ),
    *(
        Figure(
            f"{task}-{axis}", task.replace("-", "_"), f"metric-by-{axis}",
            tuple(f"{task}{name}" for name in (
                "", rate, "-gru", "-lstm", "-mingru", "-s4d", "-deltagru", "-skipgru")),
            f"{about} against {what} of a time step, at equal parameters.",
        )
        for task, rate, about in (
            ("speech-commands", "-rate-0.1", "Twelve classes of one-second clips: accuracy"),
            ("keyword-stream", "-rate-0.08",
             "Ten keywords in streams of noise: keywords missed at 5 false alarms an hour"),
        )
        for axis, what in (("rate", "the share of updates"), ("work", "multiply-accumulates"))
    ),
    Figure(
        "races", "psmnist", "wall-clock",
        tuple(name for names, _ in RACES for name in names),
        "suGRU and cuDNN's GRU and LSTM in the same blocks, with as many parameters, each alone on "
        "the same GPU. All steps are captured, none is compiled. Products are in bfloat16, cuDNN's "
        "states too. Times on CIFAR-10 include validation, the others do not. No time includes the "
        "compilation of our kernels, which happens once per machine. Text has three seeds.",
    ),
    Figure(
        "state-tracking-lengths", "state_tracking", "metric-by-length",
        (TRACKING, *(f"{TRACKING}-{name}" for name in ("gru", "mingru", "s4d", "delta"))),
        "S3, trained on 16 elements in 8,192 time steps for equal seconds, then tested with the "
        "same weights on longer streams. suGRU has three seeds, the others have one seed and one "
        "learning rate.",
    ),
    Figure(
        "state-tracking-curves", "state_tracking", "learning-curves",
        (TRACKING, *(f"{TRACKING}-{name}" for name in ("gru", "mingru", "s4d", "delta"))),
        "The same runs in training. Each makes the optimizer steps that fit into the same seconds. "
        "The loss jumps when the number of elements doubles (growing: batches until it is 16). "
        "Validation has 16 elements from the start.",
    ),
    Figure(
        "state-tracking-parity", "state_tracking", "wall-clock",
        tuple(f"state-tracking-parity{name}" for name in ("", "-gru", "-s4d")),
        "Parity of 32 bits in 1,024 time steps, 1,200 optimizer steps each, one seed. The three "
        "runs shared a GPU.",
    ),
    Figure(
        "enwik8", "enwik8", "wall-clock",
        ("enwik8-gru", "enwik8-sugru", "enwik8-sugru-input", "enwik8-transformer", "enwik8-hybrid"),
        "Bits per byte against time.",
    ),
)  # fmt: skip


def draw_figures(rows: Path, folder: Path) -> None:
    """Draw the figures of the page with surnn plot."""
    for figure in FIGURES:
        runs = figure.runs(rows)
        if not runs:
            print(f"{figure.name}: not all of its rows have been run")
            continue
        words = ["-m", "surnn", "plot", figure.plot, *map(str, runs)]
        light = folder / figure.file
        for theme, out in (("light", light), ("dark", light.with_stem(f"{light.stem}-dark"))):
            command = [sys.executable, *words, "--theme", theme, "--out", str(out)]
            subprocess.run(command, check=True)
