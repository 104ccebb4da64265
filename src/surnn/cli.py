"""The command ``surnn``: one module a sub-command, parsed before anything heavy is imported.

To add a sub-command, write a module with three names and enter it in ``COMMANDS``::

    HELP = "one line for surnn --help"
    def add_arguments(parser: argparse.ArgumentParser) -> None: ...
    def run(arguments: argparse.Namespace) -> None: ...

The module is imported to parse any command line, so torch is imported inside ``run``. What a user
can mend is raised as :class:`CommandError`; anything else is a bug and shows its traceback.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from . import __version__

COMMANDS = {
    "train": "surnn.commands.train",
    "reproduce": "surnn.commands.reproduce",
    "resume": "surnn.commands.resume",
    "eval": "surnn.commands.evaluate",
    "list": "surnn.commands.lists",
    "info": "surnn.commands.info",
    "data": "surnn.data.command",
    "bench": "surnn.bench.command",
}


class CommandError(Exception):
    """What is wrong and how to mend it, for the one who typed the command."""


def build_parser() -> argparse.ArgumentParser:
    """The parser of all sub-commands."""
    parser = argparse.ArgumentParser(prog="surnn", description="Selective-update RNNs for PyTorch.")
    parser.add_argument("--version", action="version", version=f"surnn {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, path in COMMANDS.items():
        module = import_module(path)
        command = commands.add_parser(name, help=module.HELP, description=module.__doc__)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(command)
        command.set_defaults(call=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``surnn`` with these arguments (those of the process by default); the exit status."""
    arguments = build_parser().parse_args(argv)
    try:
        arguments.call(arguments)
    except CommandError as error:
        print(f"surnn {arguments.command}: error: {error}", file=sys.stderr)
        return 2
    return 0
