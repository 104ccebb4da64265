"""The command ``surnn``: one module a sub-command, parsed before anything heavy is imported.

To add a sub-command, write a module with three names and enter it in ``COMMANDS``::

    HELP = "one line for surnn --help"
    def add_arguments(parser: argparse.ArgumentParser) -> None: ...
    def run(arguments: argparse.Namespace) -> None: ...

The module is imported to parse any command line, so torch is imported inside ``run``. What a user
can mend is raised as :class:`CommandError`; anything else is a bug and shows its traceback. A
module with ``FLAGS``, such as ``("--task.",)``, gets all options that begin so in
``arguments.flags``, and parses them itself; what ``--help`` is to say of them is printed by its
``more_help(arguments)``. One with ``REFUSED``, such as ``{"--model.": "start a new run"}``, says
why it takes no options that begin so.
"""

import argparse
import difflib
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

from . import __version__

COMMANDS = {
    "train": "surnn.commands.train",
    "reproduce": "surnn.commands.reproduce",
    "resume": "surnn.commands.resume",
    "eval": "surnn.commands.evaluate",
    "report": "surnn.commands.report",
    "plot": "surnn.commands.plot",
    "export": "surnn.commands.export",
    "generate": "surnn.commands.generate",
    "list": "surnn.commands.lists",
    "info": "surnn.commands.info",
    "data": "surnn.data.command",
    "bench": "surnn.bench.command",
}
WRONG, INTERRUPTED, UNREAD = 2, 130, 141
"""Exit statuses: a mistake, as argparse has it; and what a shell says of SIGINT and SIGPIPE."""


class CommandError(Exception):
    """What is wrong and how to mend it, for the one who typed the command."""


def suggestion(wrong: str, known: Iterable[str], otherwise: str) -> str:
    """The nearest of the known words, if one is near."""
    close = difflib.get_close_matches(wrong, list(known), 1)
    return f"did you mean {close[0]!r}?" if close else otherwise


def build_parser() -> argparse.ArgumentParser:
    """The parser of all sub-commands."""
    parser = _Parser(prog="surnn", description="Selective-update RNNs for PyTorch.")
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
        options = [
            option for action in command._actions for option in action.option_strings
            if option not in ("-h", "--help")
        ]  # fmt: skip
        command.set_defaults(call=module.run, options=options, own=getattr(module, "FLAGS", ()))
        command.set_defaults(refused=getattr(module, "REFUSED", {}))
    return parser


class _Parser(argparse.ArgumentParser):
    """Whoever leaves out what a command needs is shown its help, not only its usage."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):
            self.print_help(sys.stderr)
            self.exit(WRONG, f"\n{self.prog}: error: {message}\n")
        super().error(message)


class _Help(argparse.Action):
    """As argparse's own, and what a command has to add; ``const`` is its function for that."""

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
    except BrokenPipeError:  # surnn list | head: whoever reads this has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD


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
        arguments.call(arguments)
    except CommandError as error:
        print(" ".join(("surnn", command)).strip() + f": error: {error}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C as ever, but while something is imported it ends the process without an exception:
    numpy's import swallows those, and what is half imported fails much later."""
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
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _check_flags(rest: list[str], arguments: argparse.Namespace) -> None:
    """Arguments that argparse did not know must be a command's own flags, and their values."""
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
