"""The command ``surnn``: one module for each sub-command, parsed before torch is imported.

To add a sub-command, write a module with three names and enter it in ``COMMANDS``::

    HELP = "one line for surnn --help"
    def add_arguments(parser: argparse.ArgumentParser) -> None: ...
    def run(arguments: argparse.Namespace) -> None: ...

The module is imported to parse any command line, so torch is imported inside ``run``. Commands do
not catch errors: :func:`main` prints a :class:`surnn.SurnnError` in one line. Anything else is a
bug and shows its traceback. :class:`CommandError` is for mistakes on the command line itself.

``FLAGS = ("--task.",)`` collects all options with this prefix in ``arguments.flags``; the command
parses them, and its ``more_help(arguments)`` prints their part of ``--help``. ``REFUSED =
{"--model.": "start a new run"}`` refuses options with this prefix, with a reason.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

from surnn import __version__
from surnn.errors import SurnnError, missing_extra, printable, suggestion

COMMANDS = {
    "advise": "surnn.cli.commands.advise",
    "train": "surnn.cli.commands.train",
    "reproduce": "surnn.cli.commands.reproduce",
    "resume": "surnn.cli.commands.resume",
    "eval": "surnn.cli.commands.eval",
    "report": "surnn.cli.commands.report",
    "plot": "surnn.cli.commands.plot",
    "export": "surnn.cli.commands.export",
    "generate": "surnn.cli.commands.generate",
    "list": "surnn.cli.commands.list",
    "info": "surnn.cli.commands.info",
    "data": "surnn.cli.commands.data",
    "bench": "surnn.cli.commands.bench",
}
READS_RUNS = ("resume", "eval", "report", "plot", "export", "generate", "info")
"""Commands that load the task of a run."""
TASK_FROM = "file of the run's task, if it has moved or changed or you got the run from others"
EXIT_ERROR, EXIT_SIGINT, EXIT_SIGPIPE = 2, 130, 141
"""Exit statuses: an error, as in argparse; after SIGINT and SIGPIPE, as in a shell."""


class CommandError(SurnnError):
    """A mistake on the command line, and how to fix it."""


def build_parser() -> argparse.ArgumentParser:
    """The parser of all sub-commands."""
    parser = _Parser(
        prog="surnn",
        description="Selective-update RNNs for PyTorch.",
        formatter_class=_CommandList,
    )
    parser.add_argument("--version", action="version", version=f"surnn {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, path in COMMANDS.items():
        module = import_module(path)
        command = commands.add_parser(
            name, help=module.HELP, description=module.__doc__, allow_abbrev=False, add_help=False
        )
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        more = getattr(module, "more_help", None)
        command.add_argument("-h", "--help", action=_Help, help="show this message", const=more)
        module.add_arguments(command)
        if name in READS_RUNS:
            command.add_argument("--task-from", metavar="FILE.py:CLASS", help=TASK_FROM)
        options = [
            option for action in command._actions for option in action.option_strings
            if option not in ("-h", "--help")
        ]  # fmt: skip
        command.set_defaults(call=module.run, options=options, own=getattr(module, "FLAGS", ()))
        command.set_defaults(refused=getattr(module, "REFUSED", {}))
    return parser


class _CommandList(argparse.HelpFormatter):
    """Leaves room for the longest command: argparse forgets that commands are indented."""

    def format_help(self) -> str:
        self._action_max_length += self._indent_increment
        return super().format_help()


class _Parser(argparse.ArgumentParser):
    """Prints the whole help, not only the usage, if a required argument is missing."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):
            self.print_help(sys.stderr)
            self.exit(EXIT_ERROR, f"\n{self.prog}: error: {message}\n")
        super().error(message)


class _Help(argparse.Action):
    """argparse's help, followed by that of the command; ``const`` is its ``more_help``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options, nargs=0, default=argparse.SUPPRESS)

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any
    ) -> None:
        parser.print_help()
        if self.const is not None:
            self.const(namespace)
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``surnn`` with these arguments (those of the process by default); the exit status."""
    try:
        try:
            with _interruptible():
                return _run(list(sys.argv[1:] if argv is None else argv))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # surnn list | head: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_SIGPIPE


def _run(argv: list[str]) -> int:
    command = argv[0] if argv and not argv[0].startswith("-") else ""
    try:
        if command and command not in COMMANDS:
            hint = suggestion(command, COMMANDS, "see surnn --help")
            raise CommandError(f"there is no command {command!r}; {hint}")
        arguments, rest = build_parser().parse_known_args(argv)
        if rest:
            _check_flags(rest, arguments)
            arguments.flags = [*rest, *arguments.flags]
        if getattr(arguments, "task_from", None) is not None:
            from surnn.tasks.outside import load_outside  # noqa: PLC0415 (torch)

            load_outside(arguments.task_from)
        arguments.call(arguments)
    except ModuleNotFoundError as error:
        missing = missing_extra(error, f"surnn {command}".strip())
        if missing is error:
            raise
        print(f"surnn: error: {missing}", file=sys.stderr)
        return EXIT_ERROR
    except SurnnError as error:
        line = " ".join(("surnn", command)).strip() + f": error: {error}"
        print(printable(line), file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_SIGINT
    return 0


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, but ends the process at once during an import: numpy's
    import swallows exceptions, and a half imported module fails much later."""
    unusual = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    if unusual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(EXIT_SIGINT)
        frame = frame.f_back
    raise KeyboardInterrupt


def _check_flags(rest: list[str], arguments: argparse.Namespace) -> None:
    """Raise unless arguments unknown to argparse are the command's own flags and their values."""
    if not rest[0].startswith("-"):
        raise CommandError(f"{rest[0]!r} is one argument too many; see surnn COMMAND --help")
    own = arguments.own
    for flag in (word.split("=")[0] for word in rest if word.startswith("--")):
        for prefix, why in arguments.refused.items():
            if flag.startswith(prefix):
                raise CommandError(f"{flag}: {why}")
        if not flag.startswith(own or "\0"):
            more = f"see --help, or begin it with {' or '.join(own)}" if own else "see --help"
            hint = suggestion(flag, arguments.options, more)
            raise CommandError(f"there is no option {flag}; {hint}")
