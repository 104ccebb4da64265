"""Text from a trained language model, as it comes.

surnn generate RUN --prompt "The history of"
surnn generate RUN --tokens 500 --temperature 0.7 --top-p 0.9 --seed 1
surnn generate RUN --temperature 0              always the likeliest; the same every time
surnn generate RUN --prompt-file letter.txt --stop "Yours," --samples 3
surnn generate model.surnn --prompt "The"       by the C engine, of what surnn export wrote

A prompt is taken as it is. Without one, a text begins: after <|endoftext|>, or after a line end if
tokens are bytes.
"""

import argparse
import codecs
import json
import sys
from collections.abc import Iterator
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
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument("--prompt", default="", help="what it goes on with (default: a new text)")
    prompts.add_argument("--prompt-file", metavar="FILE", help="a file that holds it; - is stdin")
    parser.add_argument("--tokens", type=int, default=300, help="how many (default: 300)")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 is the likeliest (0.8)")
    parser.add_argument("--top-k", type=int, help="draw from so many of the likeliest")
    parser.add_argument("--top-p", type=float, help="draw from the likeliest of this probability")
    parser.add_argument("--stop", metavar="TEXT", help="end before this would be written")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default: 0)")
    parser.add_argument("--samples", type=int, default=1, help="how many texts (default: 1)")
    parser.add_argument(
        "--checkpoint", choices=("best", "last", "previous"), help="of a run (default: best)"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), help="of a run (default: cpu)")
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
    _check(arguments)
    model, vocabulary = (_engine if path.is_file() else _trained)(path, arguments)
    letters = Letters(vocabulary, arguments.tokenizer or _beside(path))
    text = arguments.prompt if arguments.prompt_file is None else _read(arguments.prompt_file)
    prompt = letters.encode(text)
    options = {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p")}
    for seed in range(arguments.seed, arguments.seed + arguments.samples):
        try:
            tokens = generate(model, torch.tensor([prompt]), arguments.tokens, **options, seed=seed)
            if arguments.samples > 1:
                sys.stdout.write(f"----- seed {seed} -----\n")
            sys.stdout.write(letters.shown(prompt, text) if text else "")
            for spelled in until(arguments.stop, (letters.spelled(int(each)) for each in tokens)):
                sys.stdout.write(letters.decode(spelled))
                sys.stdout.flush()
        except (ValueError, TypeError) as error:
            raise CommandError(str(error)) from error
        sys.stdout.write(letters.end() + "\n")


def until(stop: str | None, parts: Iterator[bytes]) -> Iterator[bytes]:
    """What comes before the text ``stop``, wherever parts end; None is all.

    What may be its beginning is held back until it is known.
    """
    if stop is None:
        yield from parts
        return
    wanted, held = stop.encode("utf-8", "surrogateescape"), b""
    for part in parts:
        held += part
        before, found, _ = held.partition(wanted)
        if found:
            yield before
            return
        kept = next(n for n in range(len(wanted) - 1, -1, -1) if held.endswith(wanted[:n]))
        yield held[: len(held) - kept]
        held = held[len(held) - kept :]
    yield held


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
                f"this model has {vocabulary:,} tokens, and there is no tokenizer.json beside it "
                "that says what they are; put it there, or for a .surnn file name it with "
                "--tokenizer"
            )
        from ..data.tokens import END, load, spelling_of  # noqa: PLC0415 (an extra)

        try:
            self.coder = load(tokenizer.read_text(encoding="utf-8"), vocabulary)
        except OSError as error:
            raise CommandError(f"--tokenizer {tokenizer} cannot be read: {error}") from error
        self.first = self.coder.token_to_id(END)
        self.spelling = spelling_of(self.coder)

    def encode(self, text: str) -> list[int]:
        """Tokens of a text as it is; of none, what stands before one."""
        if self.coder is None:  # what a shell gave need not be UTF-8
            return list(_bytes(text or "\n", "surrogateescape"))
        _bytes(text, "strict")
        return self.coder.encode(text, add_special_tokens=False).ids or [self.first]

    def shown(self, tokens: list[int], text: str) -> str:
        """A text that was encoded; the first letter to be decoded may have begun in it."""
        return text if self.coder is not None else self.decode(bytes(tokens))

    def spelled(self, token: int) -> bytes:
        """The bytes of a token."""
        if self.coder is None:
            return bytes([token])
        known = self.spelling[token] if token < len(self.spelling) else None
        return known or b""

    def decode(self, spelled: bytes) -> str:
        """The letters that are whole with these bytes."""
        return self.decoder.decode(spelled)

    def end(self) -> str:
        """What is left of a letter that is not whole."""
        return self.decoder.decode(b"", final=True)


def _check(arguments: argparse.Namespace) -> None:
    """Options that would do nothing, and folders that are no runs."""
    path: Path = arguments.run
    if path.suffix == ".surnn" and not path.exists():
        raise CommandError(f"there is no file {path}; surnn export RUN --to engine writes one")
    if path.is_file():
        for name in ("checkpoint", "device"):
            if getattr(arguments, name) is not None:
                raise CommandError(
                    f"--{name} is for a run's folder, and {path} is a file for the engine; leave "
                    "it out, or give the run"
                )
    elif arguments.tokenizer is not None:
        raise CommandError(
            "--tokenizer is for a .surnn file; a run's folder has its own tokenizer.json, so leave "
            "it out"
        )
    for option, given in (("--tokens", arguments.tokens), ("--samples", arguments.samples)):
        if given < 1:
            raise CommandError(f"{option} must be at least 1, got {given}")
    if arguments.stop == "":
        raise CommandError("--stop is empty; expected some text, or leave it out")
    several = None if arguments.samples == 1 else arguments.samples
    drawn = {"--top-k": arguments.top_k, "--top-p": arguments.top_p, "--samples": several}
    for option, given in drawn.items():
        if arguments.temperature == 0 and given is not None:
            raise CommandError(
                f"{option} is of what is drawn, and --temperature 0 always takes the likeliest; "
                "leave one of them out"
            )
    if _is_hugging_face(path):
        raise CommandError(
            f"{path} is a folder of Hugging Face's; give the run that it was exported from, or in "
            "Python: import surnn.hf, transformers; "
            f"transformers.AutoModelForCausalLM.from_pretrained({str(path)!r}).generate(...)"
        )


def _is_hugging_face(path: Path) -> bool:
    try:
        return "model_type" in json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # whoever opens it as a run says what is wrong
        return False


def _read(file: str) -> str:
    """A prompt as it is in a file, or comes in; as a shell's words, it need not be UTF-8."""
    try:
        found = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise CommandError(f"--prompt-file {file} cannot be read: {error}") from error
    return found.decode("utf-8", "surrogateescape")


def _bytes(text: str, errors: str) -> bytes:
    try:
        return text.encode("utf-8", errors)
    except UnicodeEncodeError as error:
        raise CommandError(
            f"the prompt is not UTF-8 (at letter {error.start}, {text[error.start]!r}); models of "
            "bytes take any bytes, others need text"
        ) from error


def _trained(path: Path, arguments: argparse.Namespace) -> "tuple[SequenceModel, int]":
    from ..devices import pick_device  # noqa: PLC0415
    from ..distributed import World  # noqa: PLC0415 (torch)
    from ..runs import RunError  # noqa: PLC0415
    from ..tasks.language import Language  # noqa: PLC0415
    from ..trained import load  # noqa: PLC0415

    try:
        device = pick_device(arguments.device or "cpu", World())
        found = load(path, arguments.checkpoint or "best", device)
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
    if arguments.tokenizer is not None and engine.output_size == 256:
        raise CommandError(f"{path} is of bytes, which need no --tokenizer; leave it out")
    return engine, engine.output_size


def _beside(path: Path) -> Path | None:
    folder = path.parent if path.is_file() else path
    found = folder / "tokenizer.json"
    return found if found.exists() else None
