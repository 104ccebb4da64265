"""PyTorch's own tests of its recurrent layers, run against surnn's always-open layers.

    python tests/parity/run.py PYTORCH/test --out results/parity/auto.json
    python tests/parity/run.py PYTORCH/test --backend reference --projections torch
    python tests/parity/run.py PYTORCH/test --torch

PYTORCH is a checkout of github.com/pytorch/pytorch of about the installed version. ``nn.RNN``,
``nn.GRU``, ``nn.LSTM`` and their cells are replaced by surnn's before the tests are imported. The
report lists failures by cause. ``--projections torch`` leaves LSTMs with ``proj_size`` to torch, so
that tests which also build one run to their end. ``--torch`` replaces nothing and shows which tests
fail here anyway.
It is no part of ``make test``: the tests are PyTorch's and are not in this repository. They need
the package ``expecttest``.
"""

import argparse
import collections
import json
import os
import re
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import surnn

FILES = ("test_nn.py", "test_modules.py", "nn/test_pruning.py", "nn/test_load_state_dict.py")
NAMES = (
    "rnn or RNN or lstm or LSTM or gru or GRU or variable_sequence or partial_flat_weights or "
    "pack_sequence_batch_sizes_throw or load_state_dict_ref_cycle"
)
"""Tests with a recurrent layer in their name, and those that build one without saying so."""


def open_class(name: str, layer: type, backend: str, projections: bool) -> type:
    """``layer`` with every gate open, under torch's name."""
    theirs = getattr(nn, name)

    def new(cls, *args, **options):
        if projections and options.get("proj_size"):
            return theirs(*args, **options)
        return nn.Module.__new__(cls)

    def init(self, *args, **options):
        if not name.endswith("Cell"):
            options["backend"] = backend
        layer.__init__(self, *args, gate=surnn.AlwaysOpen(), **options)

    methods = {"__new__": new, "__init__": init, "__module__": "torch.nn.modules.rnn"}
    return type(name, (layer,), methods)


def replace_layers(backend: str, projections: bool) -> None:
    """Put surnn's layers and cells in the place of torch's."""
    for name in ("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell"):
        theirs = getattr(nn, name)
        theirs.__name__ = theirs.__qualname__ = f"Torch{name}"  # where pickle finds it
        setattr(nn.modules.rnn, theirs.__name__, theirs)
        own = open_class(name, getattr(surnn, f"Su{name}"), backend, projections)
        for home in (nn, nn.modules, nn.modules.rnn):
            setattr(home, name, own)


class Outcomes:
    """A pytest plugin that collects results and the causes of failures."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.causes: dict[str, list[str]] = collections.defaultdict(list)

    def pytest_runtest_logreport(self, report) -> None:
        if report.when != "call" and report.outcome != "skipped":
            return
        self.counts[report.outcome] += 1
        if report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            message = str(crash.message if crash else report.longrepr).strip().splitlines()[0]
            self.causes[re.sub(r"\d+", "N", message)[:150]].append(report.nodeid.split("::")[-1])

    def report(self) -> None:
        for cause, tests in sorted(self.causes.items(), key=lambda item: -len(item[1])):
            print(f"{len(tests):4d}  {cause}")
            for test in tests:
                print(f"        {test}")
        print(", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items())))

    def write(self, path: Path, **about: str) -> None:
        """Counts and causes as JSON."""
        causes = {cause: sorted(tests) for cause, tests in sorted(self.causes.items())}
        result = {**about, "torch": torch.__version__, "counts": self.counts, "causes": causes}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", type=Path, help="the folder `test` of a checkout of PyTorch")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--projections", choices=("refuse", "torch"), default="refuse")
    parser.add_argument("--torch", action="store_true", help="torch's own layers, to compare with")
    parser.add_argument("--files", nargs="*", default=FILES, help="test files to run")
    parser.add_argument("-k", default=NAMES, help="which tests, as pytest selects them")
    parser.add_argument("--out", type=Path, help="write counts and causes to this JSON file")
    options = parser.parse_args()
    if not options.torch:
        replace_layers(options.backend, options.projections == "torch")
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    os.environ.setdefault("PYTORCH_TEST_WITH_SLOW", "0")
    sys.path.insert(0, str(options.tests))
    files = [str(options.tests / name) for name in options.files if (options.tests / name).exists()]
    outcomes = Outcomes()
    quiet = ["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:warnings"]
    own = ["--rootdir", str(options.tests), "-c", os.devnull, "--show-capture=no", "-o", "addopts="]
    status = pytest.main([*files, "-k", options.k, *quiet, *own], plugins=[outcomes])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return int(status)  # not all tests ran: no record
    outcomes.report()
    if options.out:
        layers = "torch's" if options.torch else f"surnn's, backend {options.backend}"
        outcomes.write(options.out, layers=layers, projections=options.projections)
    return 0


if __name__ == "__main__":
    sys.exit(main())
