"""Copying Memory: SuGRU and GRU side by side on the CPU, on equal time.

Ten symbols, a long silence, a signal, and then the ten symbols again, please. The GRU must carry
them through every step of the silence; the SuGRU's units simply do not update.

    python examples/copying.py                       # about two minutes on two cores
    python examples/copying.py --delay 400 --seconds 150

It ends with a table, and a picture of the learning curves (``--picture``).
"""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from rich.live import Live
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

import surnn

SYMBOLS, COPIES = 8, 10  # an alphabet of eight, ten of them to remember
BLANK, SIGNAL = 0, SYMBOLS + 1
SOLVED = 0.99


def make_batch(batch: int, delay: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs [T, B, 9], one-hot with the blank as zero, and the symbols to recall [10, B]."""
    symbols = torch.randint(1, SYMBOLS + 1, (COPIES, batch), generator=random)
    tokens = torch.full((delay + 2 * COPIES, batch), BLANK)
    tokens[:COPIES] = symbols
    tokens[delay + COPIES - 1] = SIGNAL
    return functional.one_hot(tokens, SYMBOLS + 2)[..., 1:].float(), symbols


class Recall(nn.Module):
    """A recurrent stack and a linear readout."""

    def __init__(self, recurrent: nn.Module, hidden: int) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.readout = nn.Linear(hidden, SYMBOLS + 2)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [10, B, 10] for the answer, the last ten steps."""
        return self.readout(self.recurrent(x)[0][-COPIES:])


@dataclass
class Run:
    """One model in training, and how it is doing."""

    name: str
    model: Recall
    learning_rate: float
    random: torch.Generator
    steps: int = 0
    seconds: float = 0.0
    solved_after: float | None = None
    recall: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimiser = torch.optim.Adam(self.model.parameters(), self.learning_rate)

    @property
    def accuracy(self) -> float:
        """Mean recall of the last few batches."""
        recent = self.recall[-10:]
        return sum(recent) / max(len(recent), 1)

    def train_step(self, batch: int, delay: int) -> None:
        begin = time.perf_counter()
        x, symbols = make_batch(batch, delay, self.random)
        for group in self.optimiser.param_groups:
            group["lr"] = self.learning_rate * 0.5 ** (self.steps / 400)
        answer = self.model(x)
        loss = functional.cross_entropy(answer.flatten(0, 1), symbols.flatten())
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.steps += 1
        self.recall.append((answer.argmax(-1) == symbols).float().mean().item())
        self.seconds += time.perf_counter() - begin
        self.clock.append(self.seconds)
        if self.solved_after is None and len(self.recall) >= 10 and self.accuracy > SOLVED:
            self.solved_after = self.seconds


def chrono_gru(features: int, hidden: int, longest: int) -> nn.GRU:
    """A GRU whose update gates start out remembering for 1 to ``longest`` steps.

    The control (Tallec and Ollivier, 2018): a plain GRU forgets at the start of training.
    """
    gru = nn.GRU(features, hidden, num_layers=2)
    with torch.no_grad():
        for name, bias in gru.named_parameters():
            if name.startswith("bias_ih"):
                bias[hidden : 2 * hidden] = torch.empty(hidden).uniform_(1, longest - 1).log()
    return gru


def picture(runs: list[Run], options: argparse.Namespace) -> Table:
    title = f"Copying Memory, delay {options.delay}: {options.seconds:.0f} s of training each"
    table = Table(title=title, title_justify="left")
    for column in ("model", "steps", "seconds", "recall", "", "updates"):
        table.add_column(column, justify="left" if column in ("model", "") else "right")
    for run in runs:
        filled = round(20 * run.accuracy)
        bar = f"[green]{'━' * filled}[/][dim]{'─' * (20 - filled)}[/]"
        recurrent = run.model.recurrent
        selective = isinstance(recurrent, surnn.SuGRU) and run.steps
        rate = recurrent.update_rate.mean().item() if selective else 1.0
        table.add_row(
            run.name,
            str(run.steps),
            f"{run.seconds:.0f}",
            f"{run.accuracy:.1%}",
            bar,
            f"{rate:.0%} of steps",
        )
    table.caption = f"guessing: {1 / SYMBOLS:.1%}; solved: above {SOLVED:.0%}"
    return table


def train(runs: list[Run], options: argparse.Namespace, console: Console) -> None:
    """Whoever has used less time takes the next step, until all have had theirs."""
    with Live(console=console, refresh_per_second=4, transient=not console.is_terminal) as live:
        shown = 0.0
        while waiting := [
            r for r in runs if r.solved_after is None and r.seconds < options.seconds
        ]:
            run = min(waiting, key=lambda r: r.seconds)
            run.train_step(options.batch, options.delay)
            total = sum(r.seconds for r in runs)
            if console.is_terminal or total - shown > 15:
                shown = total
                live.update(picture(runs, options))
                if not console.is_terminal:
                    states = ", ".join(f"{r.name} {r.accuracy:.1%} ({r.steps} steps)" for r in runs)
                    console.print(f"{total:4.0f} s  {states}")
        live.update(picture(runs, options))
    if not console.is_terminal:
        console.print(picture(runs, options))


def verdict(runs: list[Run]) -> str:
    def say(run: Run) -> str:
        if run.solved_after is not None:
            return f"[bold]{run.name}[/] solved it in {run.solved_after:.0f} s ({run.steps} steps)"
        return f"[bold]{run.name}[/] did not ({run.accuracy:.1%} recall after {run.steps} steps)"

    return "\n".join(say(run) for run in runs)


def draw(runs: list[Run], options: argparse.Namespace) -> None:
    """Recall over training time, averaged over ten batches."""
    import matplotlib  # noqa: PLC0415 (only for this)

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for run, colour in zip(runs, ("#0072B2", "#D55E00", "#009E73"), strict=True):
        smooth = torch.tensor(run.recall).unfold(0, 10, 1).mean(-1)
        axes.plot(run.clock[9:], 100 * smooth, label=run.name, color=colour, linewidth=2)
    axes.axhline(100 / SYMBOLS, color="grey", linestyle=":", label="guessing")
    axes.set(
        title=f"Copying Memory, delay {options.delay}", xlabel="training time (s)",
        ylabel="recall (%)", ylim=(0, 102),
    )  # fmt: skip
    axes.legend(loc="center right")
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.picture, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--delay", type=int, default=200, help="silent steps to remember across")
    parser.add_argument("--seconds", type=float, default=45, help="training time for each model")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.1, help="initial update rate of the SuGRU")
    parser.add_argument("--learning-rate", type=float, default=1.5e-2, help="of the SuGRU")
    parser.add_argument(
        "--gru-learning-rate", type=float, default=3e-3, help="its best of 1e-2, 3e-3 and 1e-3"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, default=Path("runs/demo/copying.png"))
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    features, hidden, length = SYMBOLS + 1, options.hidden, options.delay + 2 * COPIES
    surrogate = surnn.Surrogate("triangle", slope=1.0)
    gate = surnn.Rhythm(rate=options.rate, horizon=length, surrogate=surrogate)
    contestants = {
        "SuGRU": surnn.SuGRU(features, hidden, num_layers=2, heads=options.heads, gate=gate),
        "GRU": nn.GRU(features, hidden, num_layers=2),
        "chrono GRU": chrono_gru(features, hidden, longest=length),
    }
    runs = []
    for name, recurrent in contestants.items():
        rate = options.learning_rate if name == "SuGRU" else options.gru_learning_rate
        random = torch.Generator().manual_seed(options.seed)  # the same batches for everyone
        runs.append(Run(name, Recall(recurrent, hidden), rate, random))
    console = Console()
    train(runs, options, console)
    console.print(verdict(runs))
    draw(runs, options)
    console.print(f"learning curves: {options.picture}")


if __name__ == "__main__":
    main()
