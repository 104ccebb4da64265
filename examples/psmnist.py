"""Permuted sequential MNIST from a local folder, through the library rather than the command line.

    python examples/psmnist.py --data FOLDER --minutes 10

FOLDER holds MNIST's four files as they are downloaded (``surnn data get mnist`` fetches them). The
same from the command line: ``surnn reproduce psmnist --data FOLDER --budget 10min``.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from surnn.config import ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.data import DataError
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn.tasks.mnist import PermutedMnist
from surnn.train.evaluate import evaluate
from surnn.train.progress import progress_reporter
from surnn.train.trainer import Trainer

CONFIG = RunConfig(
    task=PermutedMnist(permutation="torch0"),
    model=ModelConfig(kind="sugru", layers=2, width=64, heads=8, dropout=0.1),
    gate=RhythmConfig(rate=0.05),
    train=TrainConfig(steps=2000, batch=32, learning_rate=2e-3, evaluation_batches=16),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with MNIST")
    parser.add_argument("--minutes", type=float, default=10, help="stop after this time")
    parser.add_argument("--steps", type=int, default=CONFIG.train.steps)
    parser.add_argument("--out", type=Path, default=Path("runs/psmnist-example"))
    options = parser.parse_args()
    train = replace(CONFIG.train, minutes=options.minutes, steps=options.steps)
    config = replace(CONFIG, train=train)
    try:
        trainer = Trainer(config, data=options.data)
    except DataError as error:
        raise SystemExit(str(error)) from None
    trainer.use_folder(RunFolder.create(options.out, config_to_dict(config)))
    with progress_reporter(config) as trainer.reporter:
        trainer.fit()
    found = evaluate(trainer.model, trainer.task, "test", 500, trainer.device, batches=4)
    print(f"accuracy on 2000 test digits: {found['accuracy']:.1%} (guessing: 10%)")
    print(f"update rates: {', '.join(f'{rate:.1%}' for rate in found['update_rate'])}")


if __name__ == "__main__":
    main()
