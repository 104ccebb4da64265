"""Makes all figures of docs/analysis.md from models trained on the CPU.

    make figures                              all of them; a quarter of an hour on two cores
    python docs/figures/make.py gate-raster   one of them

Trained models are stored in runs/figures and reused. Figures of real data need their data sets: set
SURNN_DATA or --data, or download them with surnn data. Without them these figures are skipped, with
a message.
"""

import argparse
import os
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "runs" / "figures"
HERE = Path(__file__).resolve().parent

# Runs, as words of their command: surnn train WORDS --out RUNS/NAME
COPYING = "copying --task.delay 100 --task.objective recall --model.width 128 --model.layers 2 "
COPYING += "--model.block stack --train.steps 700 --train.batch 16 --train.warmup 10 "
COPYING += "--train.evaluate-every 25 --train.evaluation-batches 16 "
OURS = "--model.heads 32 --gate.slope 2 --train.lr 1e-2 "
GRU = "--model.kind gru --train.lr 3e-3 "
PROFILE = "copying --model.layers 1 --model.width 64 --model.block stack "
PROFILE += "--train.steps 150 --train.evaluate-every 150 --train.evaluation-batches 2 "
CHAOS = "mackey_glass --task.horizons 10 100 1000 --task.length 600 --task.series 64 "
CHAOS += "--model.layers 2 --model.width 32 --model.block stack --train.batch 16 --train.steps 200 "
CHAOS += "--train.evaluate-every 50 "
PIXELS = "--model.layers 2 --model.width 64 --model.block stack --train.batch 50 --train.lr 5e-3 "
PIXELS += "--train.warmup 20 --train.evaluate-every 20 --train.evaluation-batches 10 "
SEEING = "--gate.kind input --gate.rate 0.3 --gate.target-rate 0.1 --train.rate-penalty 1 "
SEEING += "--train.anneal 0.5 0.75 "
TRAINED = {
    **{f"copying-sugru-{seed}": f"{COPYING} {OURS} --train.seed {seed}" for seed in range(2)},
    **{f"copying-gru-{seed}": f"{COPYING} {GRU} --train.seed {seed}" for seed in range(2)},
    **{f"profile-{kind}-{delay}": f"{PROFILE} --model.kind {kind} --task.delay {delay}"
       for delay in (50, 100, 200) for kind in ("surnn", "rnn")},
    "chaos-sugru": f"{CHAOS} --model.heads 1 --gate.always-on 0.25",
    "chaos-gru": f"{CHAOS} --model.kind gru",
    "smnist-sugru": f"smnist {PIXELS} --train.steps 200",
    "psmnist-sugru": f"psmnist {PIXELS} --train.steps 200",
    "psmnist-gru": f"psmnist {PIXELS} --model.kind gru --train.steps 200",
    "scifar-sugru": "scifar --model.layers 6 --model.width 32 --train.batch 32 --train.steps 100 "
                    "--train.evaluate-every 100 --train.evaluation-batches 5",
    "ecg-sugru": "ecg_beats --task.window 1024 --model.layers 2 --model.width 64 "
                 "--model.convolution 32 --gate.kind input --gate.rate 0.2 --gate.target-rate 0.03 "
                 "--train.rate-penalty 2 --train.anneal 0.2 0.5 --train.batch 16 --train.steps 300 "
                 "--train.warmup 20 --train.lr 4e-3 --train.evaluate-every 50 "
                 "--train.evaluation-batches 10",
    "speech-sugru": f"spoken_digits --task.seconds 2 --model.layers 2 --model.width 64 {SEEING} "
                    "--model.pool mean --train.batch 32 --train.steps 300 "
                    "--train.evaluate-every 100",
}  # fmt: skip
BOTH = ("copying-sugru-0", "copying-gru-0")
ONE = ("copying-sugru-0",)

# Figures by file name: the name in surnn plot, and the runs.
FIGURES = {
    "copying-loss": ("copying-loss", [name for name in TRAINED if name.startswith("copying")]),
    "learning-curves": ("learning-curves", ("psmnist-sugru", "psmnist-gru")),
    "gradients": ("gradients", [name for name in TRAINED if name.startswith("profile")]),
    "proposition-1": ("proposition-1", ONE),
    "trajectories": ("trajectories", BOTH),
    "gate-raster": ("gate-raster", ONE),
    "timescales": ("timescales", ONE),
    "effective-depth": ("effective-depth", ONE),
    "paths": ("paths", ONE),
    "update-rates": ("update-rates", (*ONE, "profile-surnn-100", "smnist-sugru", "ecg-sugru")),
    "image-updates": ("image-updates", ("smnist-sugru",)),
    "depth-maps": ("depth-maps", ("scifar-sugru",)),
    "updates-on-ecg": ("updates-on-signal", ("ecg-sugru",)),
    "updates-on-speech": ("updates-on-signal", ("speech-sugru",)),
    "forecast-horizon": ("forecast-horizon", ("chaos-sugru", "chaos-gru")),
    "attractors": ("attractors", ("chaos-sugru", "chaos-gru")),
    "trade-offs": ("trade-offs", ONE),
}
MEASURED = {"run-time": "gpu_bench", "latency": "engine_bench"}
"""Figures of the benchmarks in results/."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    known = (*FIGURES, *MEASURED)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--data", help="folder with data sets")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in known]:
        parser.error(f"there is no figure {', '.join(unknown)}; there are {', '.join(known)}")
    if arguments.data is not None:
        os.environ["SURNN_DATA"] = arguments.data
    skipped = []
    for name in arguments.names or known:
        if name in MEASURED:
            draw(name, name, [ROOT / "results" / MEASURED[name]])
            continue
        plot, runs = FIGURES[name]
        if missing := sorted({data for run in runs for data in missing_data(run)}):
            skipped.append(f"skipped {name}: it needs {', '.join(missing)}; see surnn data list")
            continue
        for run in runs:
            train(run)
        draw(name, plot, [RUNS / run for run in runs])
    print("\n".join(skipped))


def missing_data(name: str) -> list[str]:
    """Missing data sets of a run."""
    from surnn.data.locate import find  # noqa: PLC0415 (after SURNN_DATA is set)
    from surnn.tasks import load_task  # noqa: PLC0415

    needs = load_task(TRAINED[name].split()[0]).needs
    return [data for data in needs if find(data) is None]


def train(name: str) -> None:
    """Train a run, unless it exists."""
    out = RUNS / name
    if not (out / "best").exists():
        print(f"\n--- {name}", flush=True)
        surnn("train", *TRAINED[name].split(), "--train.device", "cpu", "--out", str(out))


def draw(name: str, plot: str, folders: list[Path]) -> None:
    """Write docs/figures/NAME.png and NAME-dark.png."""
    for theme, out in (("light", HERE / f"{name}.png"), ("dark", HERE / f"{name}-dark.png")):
        surnn("plot", plot, *map(str, folders), "--theme", theme, "--out", str(out))
        # 128 colours suffice, at half the size.
        picture = Image.open(out).convert("RGB")
        picture.quantize(128, dither=Image.Dither.NONE).save(out, optimize=True)


def surnn(*words: str) -> None:
    """Run a surnn command in this process; a failure ends the program."""
    from surnn.cli.main import main as command  # noqa: PLC0415 (after SURNN_DATA is set)

    if status := command(words):
        sys.exit(status)


if __name__ == "__main__":
    main()
