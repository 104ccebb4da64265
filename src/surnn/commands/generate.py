"""Text from a trained language model, as it comes.

surnn generate RUN --prompt "The history of"
surnn generate RUN --tokens 500 --temperature 0.7 --top-p 0.9 --seed 1
surnn generate RUN --temperature 0              always the likeliest; the same every time
surnn generate model.surnn --prompt "The"       by the C engine, of what surnn export wrote
"""

import argparse
import codecs
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cli import CommandError

if TYPE_CHECKING:
    from ..engine import Engine
    from ..models import SequenceModel

HELP = "write text with a trained language model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn generate``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder, or a .surnn file")
    parser.add_argument("--prompt", default="", help="what it goes on with")
    parser.add_argument("--tokens", type=int, default=300, help="how many (default: 300)")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 is the likeliest (0.8)")
    parser.add_argument("--top-k", type=int, help="draw from so many of the likeliest")
    parser.add_argument("--top-p", type=float, help="draw from the likeliest of this probability")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default: 0)")
    parser.add_argument("--checkpoint", choices=("best", "last", "previous"), default="best")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        help="of a .surnn file (default: tokenizer.json beside it, if any)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Load, and write as it comes."""
    import torch  # noqa: PLC0415

    from ..generation import generate  # noqa: PLC0415

    path: Path = arguments.run
    model, vocabulary = (_engine if path.is_file() else _trained)(path, arguments)
    letters = Letters(vocabulary, arguments.tokenizer or _beside(path))
    prompt = torch.tensor([letters.encode(arguments.prompt)])
    options = {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p", "seed")}
    sys.stdout.write(arguments.prompt)
    try:
        for token in generate(model, prompt, arguments.tokens, **options):
            sys.stdout.write(letters.decode(int(token)))
            sys.stdout.flush()
    except (ValueError, TypeError) as error:
        raise CommandError(str(error)) from error
    sys.stdout.write(letters.end() + "\n")


class Letters:
    """Texts as tokens and back, letter by letter: some tokens end inside of one.

    Args:
        vocabulary: how many tokens the model knows; 256 are bytes.
        tokenizer: the file of those that are not bytes.
    """

    def __init__(self, vocabulary: int, tokenizer: Path | None) -> None:
        self.coder: Any = None
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        if vocabulary == 256:
            return
        if tokenizer is None:
            raise CommandError(
                f"this model has {vocabulary:,} tokens, and there is no tokenizer.json that says "
                "what they are; name one with --tokenizer"
            )
        from ..data.tokens import END, load, spelling_of  # noqa: PLC0415 (an extra)

        try:
            self.coder = load(tokenizer.read_text(encoding="utf-8"), vocabulary)
        except OSError as error:
            raise CommandError(f"--tokenizer {tokenizer} cannot be read: {error}") from error
        self.first = self.coder.token_to_id(END)
        self.spelling = spelling_of(self.coder)

    def encode(self, text: str) -> list[int]:
        """Tokens; after what stands before a text, if there is such a token."""
        if self.coder is None:
            return list((text or "\n").encode())
        return [self.first, *self.coder.encode(text, add_special_tokens=False).ids]

    def decode(self, token: int) -> str:
        """The letters that are whole with this token."""
        if self.coder is None:
            return self.decoder.decode(bytes([token]))
        known = self.spelling[token] if token < len(self.spelling) else None
        return self.decoder.decode(known or b"")

    def end(self) -> str:
        """What is left of a letter that is not whole."""
        return self.decoder.decode(b"", final=True)


def _trained(path: Path, arguments: argparse.Namespace) -> "tuple[SequenceModel, int]":
    from ..distributed import World  # noqa: PLC0415 (torch)
    from ..runs import RunError  # noqa: PLC0415
    from ..tasks.language import Language  # noqa: PLC0415
    from ..train import pick_device  # noqa: PLC0415
    from ..trained import load  # noqa: PLC0415

    try:
        found = load(path, arguments.checkpoint, pick_device(arguments.device, World()))
    except (RunError, ValueError) as error:
        raise CommandError(str(error)) from error
    if not isinstance(found.task, Language):
        raise CommandError(
            f"{path} was trained on {found.task.name}, which is no text; language models are made "
            "by surnn train enwik8, wikitext103 or text_file"
        )
    return found.model, found.task.vocabulary_size


def _engine(path: Path, arguments: argparse.Namespace) -> "tuple[Engine, int]":
    from ..engine import Engine, EngineError  # noqa: PLC0415

    try:
        engine = Engine(path)
    except EngineError as error:
        raise CommandError(
            f"{error}. surnn generate takes a run's folder, or a file of one that surnn export RUN "
            "--to engine wrote"
        ) from error
    if not engine.takes_tokens or engine.input_size != engine.output_size:
        raise CommandError(f"{path} does not predict the next token: it is no language model")
    return engine, engine.output_size


def _beside(path: Path) -> Path | None:
    folder = path.parent if path.is_file() else path
    found = folder / "tokenizer.json"
    return found if found.exists() else None
