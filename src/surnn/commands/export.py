"""A trained model for other programs: one step of a stream, state in and state out.

surnn export RUN --to engine                    for surnn.Engine and the C library
surnn export RUN --to engine --weights int8     smaller weights; predictions change a little
surnn export RUN --to c --out FOLDER            C files with the model in them: cc *.c -lm
surnn export RUN --to onnx --out model.onnx     for onnxruntime (pip install 'surnn[onnx]')
surnn export RUN --to pt2                       for torch without surnn: torch.export.load
surnn export RUN --to hf                        a whole language model, hybrids and Transformers
                                                too, for Hugging Face (pip install 'surnn[hf]')

Before a file gets its name, it is run on random steps beside the model.
"""

import argparse
import errno
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..cli import CommandError

if TYPE_CHECKING:
    from ..export.check import Agreement
    from ..export.step import StreamingStep
    from ..tasks.base import Tokens, Values
    from ..trained import Trained

Check: TypeAlias = "tuple[str, Agreement | str]"
"""What was done to the file, and what came of it, or why it was not done."""
HELP = "write a trained model for the C engine, C, ONNX, torch.export or Hugging Face"
NAMES = {
    "engine": "model.surnn", "c": "model-c", "onnx": "model.onnx", "pt2": "model.pt2",
    "hf": "model-hf",
}  # fmt: skip
EXTRAS = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "hf": ("transformers", "tokenizers")}
"""Packages that writing and checking need; the extra is named as the target is."""
USAGE = {
    "engine": """\
stream = surnn.Engine("{path}").stream()
prediction = stream.step({given})  # {what}; or all at once: stream.run({given}s)""",
    "c": """\
cd {path} && cc -O2 *.c -lm -o model
./model < input.txt  # {what}; prints one prediction a line
# or take all files but main.c into a program of yours; surnn.h says how""",
    "onnx": """\
session = onnxruntime.InferenceSession("{path}")
state = {{i.name: numpy.zeros([1, *i.shape[1:]], "int64" if i.name == "t" else "float32") \
for i in session.get_inputs()[1:]}}
prediction, *new = session.run(None, {{"{given}": {given}, **state}}); \
state = dict(zip(state, new))  # {what}""",
    "pt2": """\
program = torch.export.load("{path}")
step, state = program.module(), {{k: v[:1] for k, v in program.example_inputs[0][1].items()}}
prediction, state = step({given}, state)  # {what}""",
    "hf": """\
import surnn.hf, transformers
model = transformers.AutoModelForCausalLM.from_pretrained("{path}")
tokenizer = transformers.AutoTokenizer.from_pretrained("{path}")
found = model.generate(**tokenizer("The", return_tensors="pt"), max_new_tokens=50)
print(tokenizer.decode(found[0]))""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn export``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--to", choices=tuple(NAMES), required=True, help="who is to read it")
    parser.add_argument(
        "--out", type=Path, help="new file; of c and hf a new folder (default: RUN/model...)"
    )
    parser.add_argument(
        "--weights", choices=("float32", "int8"), default="float32", help="of engine and c"
    )
    parser.add_argument("--checkpoint", choices=("best", "last", "previous"), default="best")


def run(arguments: argparse.Namespace) -> None:
    """Load, write, check, and only then give it its name."""
    to, weights = arguments.to, arguments.weights
    out: Path = arguments.out or arguments.run / NAMES[to]
    if weights != "float32" and to not in ("engine", "c"):
        raise CommandError(f"--weights {weights} is of --to engine and --to c, not of {to}")
    if to == "pt2" and out.suffix != ".pt2":
        raise CommandError(f"torch wants the name to end in .pt2, got {out}")
    if out.exists():
        raise CommandError(f"{out} exists already; remove it, or choose another name with --out")
    need(to)
    found = trained(arguments.run, arguments.checkpoint)
    if to == "hf":
        write = partial(write_hf, found, arguments.run)
    else:
        write = partial(WRITERS[to], streaming(found), weights)
    fresh = out.with_name(f"new-{out.name}")
    try:  # the place first: what goes wrong later is not its fault
        out.parent.mkdir(parents=True, exist_ok=True)
        fresh.touch()
    except OSError as error:
        raise CommandError(
            f"{out} could not be written: {error}; choose another place with --out"
        ) from error
    remove(fresh)
    try:
        told = "\n".join(judged(check, weights) for check in write(fresh))
        fresh.rename(out)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CommandError(
            f"{out} could not be written: {error}; make room, or choose another place with --out"
        ) from error
    finally:
        remove(fresh)
    print(f"wrote {out} ({size_of(out)}): {arguments.checkpoint} weights (update {found.step})")
    print(f"{told}\nuse it:")
    print("\n".join(f"    {line}" for line in usage(to, found.task.input, out).splitlines()))


def trained(path: Path, checkpoint: str) -> "Trained":
    """What is written, and what files are compared with."""
    from ..runs import RunError  # noqa: PLC0415 (torch)
    from ..trained import load  # noqa: PLC0415

    try:
        return load(path, checkpoint)
    except (RunError, ValueError) as error:
        raise CommandError(str(error)) from error


def streaming(found: "Trained") -> "StreamingStep":
    """Its step."""
    from ..export.step import StreamingStep  # noqa: PLC0415 (torch)

    try:
        return StreamingStep(found.model)
    except ValueError as error:
        raise CommandError(str(error)) from error


def judged(check: Check, weights: str) -> str:
    """What to say of a check; an error if it failed."""
    how, agreement = check
    if isinstance(agreement, str):
        return f"not {how}: {agreement}"
    if weights == "float32" and not agreement.good:
        raise CommandError(
            f"the file would not compute what the model does, and was not kept: {agreement}. "
            "This is a bug of surnn or of what it exports with; please report it"
        )
    return f"{how}: {agreement}"


def usage(to: str, taken: "Tokens | Values", path: Path) -> str:
    """Lines that run it."""
    features = getattr(taken, "features", None)
    if features is None:
        given, batched, plain = "token", "token [1] int64", "tokens are integers"
    else:
        given, batched = "frame", f"frame [1, {features}] float32"
        plain = f"a frame is {features} numbers"
    what = batched if to in ("onnx", "pt2") else plain
    return USAGE[to].format(path=path, given=given, what=what)


# ---------------------------------------------------------------------------- each kind of file


def write_engine(step: "StreamingStep", weights: str, path: Path) -> list[Check]:
    """The engine's file."""
    from ..engine import EngineError, library  # noqa: PLC0415
    from ..export import to_engine  # noqa: PLC0415
    from ..export.check import compare_engine  # noqa: PLC0415

    try:
        to_engine(step.model, path, weights)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:  # what the engine does not have
        raise CommandError(str(error)) from error
    try:
        library()
    except EngineError as error:
        return [("checked", str(error))]
    return [("checked", compare_engine(step, path))]


def write_c(step: "StreamingStep", weights: str, path: Path) -> list[Check]:
    """A folder of C files. The model in it is the engine's file, and checked as such, too."""
    from ..export import to_c_folder  # noqa: PLC0415
    from ..export.check import compare_c  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        checks = write_engine(step, weights, Path(folder) / "model.surnn")
    to_c_folder(step.model, path, weights)  # type: ignore[arg-type]
    if (compiler := shutil.which("cc")) is None:
        return [*checks, ("compiled", "no C compiler (cc) found")]
    try:
        return [*checks, ("compiled with cc, and checked", compare_c(step, path, compiler))]
    except subprocess.CalledProcessError as error:
        told = f"{error}\n{error.stderr}"
        raise CommandError(f"the C files do not build here and were not kept: {told}") from error


def write_onnx(step: "StreamingStep", weights: str, path: Path) -> list[Check]:
    """The step for onnxruntime."""
    from ..export import to_onnx  # noqa: PLC0415
    from ..export.check import compare, onnx_step  # noqa: PLC0415

    to_onnx(step.model, path)
    return [("checked", compare(step, onnx_step(path)))]


def write_pt2(step: "StreamingStep", weights: str, path: Path) -> list[Check]:
    """The step for torch."""
    from ..export import to_pt2  # noqa: PLC0415
    from ..export.check import compare, pt2_step  # noqa: PLC0415

    to_pt2(step.model, path)
    return [("checked", compare(step, pt2_step(path)))]


WRITERS: "dict[str, Callable[[StreamingStep, str, Path], list[Check]]]" = {
    "engine": write_engine, "c": write_c, "onnx": write_onnx, "pt2": write_pt2
}  # fmt: skip


def write_hf(found: "Trained", run: Path, path: Path) -> list[Check]:
    """A folder of Hugging Face's. It is no step of a stream, so what cannot stream goes, too."""
    from ..export.check import compare_hf  # noqa: PLC0415
    from ..hf import to_folder  # noqa: PLC0415
    from ..runs import RunError  # noqa: PLC0415

    try:
        to_folder(found, run, path)
    except (RunError, OSError) as error:
        raise CommandError(str(error)) from error
    return [("checked", compare_hf(found.model, path))]


# ---------------------------------------------------------------------------- helpers


def need(to: str) -> None:
    """What an extra brings."""
    if missing := [name for name in EXTRAS.get(to, ()) if find_spec(name) is None]:
        raise CommandError(
            f"--to {to} writes and checks with {', '.join(missing)}, not installed here: pip "
            f"install 'surnn[{to}]'"
        )


def remove(path: Path) -> None:
    """A file or folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def size_of(path: Path) -> str:
    """Of a file, or of all files in a folder."""
    files = path.iterdir() if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
