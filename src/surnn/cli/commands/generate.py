"""Generate text with a trained language model, printed token by token.

surnn generate RUN --prompt "The history of"
surnn generate RUN --tokens 500 --temperature 0.7 --top-p 0.9 --seed 1
surnn generate RUN --temperature 0              always the most likely token
surnn generate RUN --prompt-file letter.txt --stop "Yours," --samples 3
surnn generate model.surnn --prompt "The"       with the C engine, a file of surnn export

The prompt is used unchanged. Without one the model starts a text: after <|endoftext|>, or after a
line end if tokens are bytes.
"""

import argparse
import codecs
import json
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surnn.data.text_files import read_text
from surnn.errors import printable

from ..main import CommandError

if TYPE_CHECKING:
    from surnn.deploy.engine import Engine
    from surnn.models.model import SequenceModel

HELP = "generate text with a trained language model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn generate``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder, or a .surnn file")
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument("--prompt", default="", help="text to continue (default: a new text)")
    prompts.add_argument("--prompt-file", metavar="FILE", help="file with the prompt; - is stdin")
    parser.add_argument("--tokens", type=int, default=300, help="how many tokens (default: 300)")
    parser.add_argument(
        "--temperature",
        type=float,
        default=0.8,
        help="0 always takes the most likely token (default: 0.8)",
    )
    parser.add_argument("--top-k", type=int, help="sample from the K most likely tokens only")
    parser.add_argument(
        "--top-p",
        type=float,
        help="sample from the most likely tokens whose probabilities add up to this",
    )
    parser.add_argument("--stop", metavar="TEXT", help="end before this text")
    parser.add_argument("--seed", type=int, default=0, help="seed of the samples (default: 0)")
    parser.add_argument("--samples", type=int, default=1, help="how many texts (default: 1)")
    parser.add_argument(
        "--checkpoint", choices=("best", "last", "previous"), help="for a run (default: best)"
    )
    devices = ("auto", "cpu", "cuda", "mps")
    parser.add_argument("--device", choices=devices, help="where a run computes (default: cpu)")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        help="for a .surnn file (default: tokenizer.json in its folder, if any)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Load the model, and print tokens as they are generated."""
    import torch  # noqa: PLC0415

    from surnn.deploy.generation import generate  # noqa: PLC0415
    from surnn.errors import option_errors  # noqa: PLC0415

    path: Path = arguments.run
    _check(arguments)
    model, vocabulary = (_load_engine if path.is_file() else _load_run)(path, arguments)
    codec = TextCodec(vocabulary, arguments.tokenizer or _find_tokenizer(path))
    text = arguments.prompt if arguments.prompt_file is None else _read(arguments.prompt_file)
    prompt = codec.encode(text)
    options = {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p")}
    for seed in range(arguments.seed, arguments.seed + arguments.samples):
        with option_errors(ValueError, TypeError):  # of sampling, and of models that cannot stream
            tokens = generate(model, torch.tensor([prompt]), arguments.tokens, **options, seed=seed)
            tokens = chain((next(tokens),), tokens)
        if arguments.samples > 1:
            sys.stdout.write(f"----- seed {seed} -----\n")
        sys.stdout.write(shown(codec.echo(prompt, text)) if text else "")
        for part in before_stop(arguments.stop, (codec.to_bytes(int(t)) for t in tokens)):
            sys.stdout.write(shown(codec.decode(part)))
            sys.stdout.flush()
        sys.stdout.write(codec.finish() + "\n")


def shown(text: str) -> str:
    """Generated text as it is written: a terminal must not obey what a model makes up."""
    return printable(text) if sys.stdout.isatty() else text


def before_stop(stop: str | None, parts: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes before the text ``stop``, which may span several parts; all of them if None.

    Bytes that may be the beginning of ``stop`` are held back until this is decided.
    """
    if stop is None:
        yield from parts
        return
    end, buffer = stop.encode("utf-8", "surrogateescape"), b""
    for part in parts:
        buffer += part
        before, match, _ = buffer.partition(end)
        if match:
            yield before
            return
        overlap = next(n for n in range(len(end) - 1, -1, -1) if buffer.endswith(end[:n]))
        yield buffer[: len(buffer) - overlap]
        buffer = buffer[len(buffer) - overlap :]
    yield buffer


class TextCodec:
    """Encodes text as tokens, and decodes it incrementally: a token may end inside a character.

    Args:
        vocabulary: the model's number of tokens; 256 are bytes.
        tokenizer: the tokenizer's file, if tokens are not bytes.
    """

    def __init__(self, vocabulary: int, tokenizer: Path | None) -> None:
        self.coder: Any = None
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        if vocabulary == 256:
            return
        if tokenizer is None:
            raise CommandError(
                f"this model has {vocabulary:,} tokens, and its folder has no tokenizer.json that "
                "defines them; put it there, or for a .surnn file name it with --tokenizer"
            )
        from surnn.data.tokens import END, load, token_bytes  # noqa: PLC0415 (an extra)

        try:
            self.coder = load(read_text(tokenizer), vocabulary)
        except OSError as error:
            raise CommandError(f"--tokenizer {tokenizer} cannot be read: {error}") from error
        self.first = self.coder.token_to_id(END)
        self.token_bytes = token_bytes(self.coder)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; of an empty one, the token that starts a text."""
        if self.coder is None:  # a shell argument need not be UTF-8
            return list(_bytes(text or "\n", "surrogateescape"))
        _bytes(text, "strict")
        return self.coder.encode(text, add_special_tokens=False).ids or [self.first]

    def echo(self, tokens: list[int], text: str) -> str:
        """The prompt as text; its last bytes may begin the first generated character."""
        return text if self.coder is not None else self.decode(bytes(tokens))

    def to_bytes(self, token: int) -> bytes:
        """The bytes of a token."""
        if self.coder is None:
            return bytes([token])
        known = token < len(self.token_bytes)
        return (self.token_bytes[token] if known else None) or b""

    def decode(self, part: bytes) -> str:
        """The characters that these bytes complete."""
        return self.decoder.decode(part)

    def finish(self) -> str:
        """A replacement for a character that is still incomplete."""
        return self.decoder.decode(b"", final=True)


def _check(arguments: argparse.Namespace) -> None:
    """Raise on options without effect, and on folders that are no runs."""
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
    for option, value in (("--tokens", arguments.tokens), ("--samples", arguments.samples)):
        if value < 1:
            raise CommandError(f"{option} must be at least 1, got {value}")
    if arguments.stop == "":
        raise CommandError("--stop is empty; expected some text, or leave it out")
    several = None if arguments.samples == 1 else arguments.samples
    sampling = {"--top-k": arguments.top_k, "--top-p": arguments.top_p, "--samples": several}
    for option, value in sampling.items():
        if arguments.temperature == 0 and value is not None:
            raise CommandError(
                f"{option} needs random samples, and --temperature 0 always takes the most likely "
                "token; leave one of them out"
            )
    if _is_hugging_face(path):
        raise CommandError(
            f"{path} is a Hugging Face folder; give the run that it was exported from, or in "
            "Python: import surnn.hf, transformers; "
            f"transformers.AutoModelForCausalLM.from_pretrained({str(path)!r}).generate(...)"
        )


def _is_hugging_face(path: Path) -> bool:
    try:
        return "model_type" in json.loads(read_text(path / "config.json"))
    except (OSError, ValueError):  # opening it as a run gives the error
        return False


def _read(file: str) -> str:
    """The prompt in a file or from standard input; as a shell argument, it need not be UTF-8."""
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise CommandError(f"--prompt-file {file} cannot be read: {error}") from error
    return content.decode("utf-8", "surrogateescape")


def _bytes(text: str, errors: str) -> bytes:
    try:
        return text.encode("utf-8", errors)
    except UnicodeEncodeError as error:
        raise CommandError(
            f"the prompt is not UTF-8 (at character {error.start}, {text[error.start]!r}); only "
            "models of bytes take any bytes"
        ) from error


def _load_run(path: Path, arguments: argparse.Namespace) -> "tuple[SequenceModel, int]":
    from surnn.runs.loading import load  # noqa: PLC0415 (torch)
    from surnn.tasks.language import Language  # noqa: PLC0415
    from surnn.train.devices import pick_device  # noqa: PLC0415

    trained = load(path, arguments.checkpoint or "best", pick_device(arguments.device or "cpu"))
    if not isinstance(trained.task, Language):
        raise CommandError(
            f"{path} was trained on {trained.task.name}, which is not text; train a language model "
            "with surnn train enwik8, wikitext103 or text_file"
        )
    return trained.model, trained.task.vocabulary_size


def _load_engine(path: Path, arguments: argparse.Namespace) -> "tuple[Engine, int]":
    from surnn.deploy.engine import Engine, EngineError  # noqa: PLC0415

    try:
        engine = Engine(path)
    except EngineError as error:
        raise CommandError(
            f"{error}. surnn generate takes a run's folder, or a file that surnn export RUN --to "
            "engine wrote"
        ) from error
    if not engine.takes_tokens or engine.input_size != engine.output_size:
        raise CommandError(f"{path} does not predict the next token: it is not a language model")
    if arguments.tokenizer is not None and engine.output_size == 256:
        raise CommandError(f"the tokens of {path} are bytes and need no --tokenizer; leave it out")
    return engine, engine.output_size


def _find_tokenizer(path: Path) -> Path | None:
    folder = path.parent if path.is_file() else path
    tokenizer = folder / "tokenizer.json"
    return tokenizer if tokenizer.exists() else None
