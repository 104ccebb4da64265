"""Export a trained model to other programs: one time step of a stream, state in and state out.

surnn export RUN --to engine                    for surnn.Engine and the C library
surnn export RUN --to engine --weights int8     smaller weights; predictions change a little
surnn export RUN --to engine --weights int8 --activations int8    faster still, and less exact
surnn export RUN --to c --out FOLDER            C files with the model in them, also for Cortex-M
surnn export RUN --to web --out FOLDER          a page for the microphone, and a JavaScript module
surnn export RUN --to onnx --out model.onnx     for onnxruntime (pip install 'surnn[onnx]')
surnn export RUN --to pt2                       for torch without surnn: torch.export.load
surnn export RUN --to hf                        a whole language model, hybrids and Transformers
                                                too, for Hugging Face (pip install 'surnn[hf]')

Before a file gets its name, it is checked against the model on random input.
"""

import argparse
import errno
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..main import CommandError

if TYPE_CHECKING:
    from surnn.deploy.export.check import Agreement
    from surnn.deploy.export.step import StreamingStep
    from surnn.runs.loading import Trained
    from surnn.tasks.base import Task, Tokens, Values

Check: TypeAlias = "tuple[str, Agreement | str]"
"""A check of the file, and its result, or why it was skipped."""
Precision: TypeAlias = tuple[str, str]
"""Types of weights and activations."""
HELP = "export a trained model to the C engine, C, browsers, ONNX, torch.export, Hugging Face"
NAMES = {
    "engine": "model.surnn", "c": "model-c", "web": "model-web", "onnx": "model.onnx",
    "pt2": "model.pt2", "hf": "model-hf",
}  # fmt: skip
ENGINE_FORMATS = ("engine", "c", "web")
"""Targets that contain the engine's file."""
EXTRAS = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "hf": ("transformers", "tokenizers")}
"""Packages that writing and checking need; the extra has the name of the target."""
USAGE = {
    "engine": """\
stream = surnn.Engine("{path}").stream()
prediction = stream.step({name})  # {what}; or all at once: stream.run({name}s)""",
    "c": """\
cd {path} && make
./model < input.txt  # {what}; prints one prediction a line
# or add the files in src to your program; src/surnn.h says how. README.md: microcontrollers""",
    "web": """\
python -m http.server --directory {path}
# then open http://localhost:8000; surnn.js there is for pages of your own ({what})""",
    "onnx": """\
session = onnxruntime.InferenceSession("{path}")
state = {{i.name: numpy.zeros([1, *i.shape[1:]], "int64" if i.name == "t" else "float32") \
for i in session.get_inputs()[1:]}}
prediction, *new = session.run(None, {{"{name}": {name}, **state}}); \
state = dict(zip(state, new))  # {what}""",
    "pt2": """\
program = torch.export.load("{path}")
step, state = program.module(), {{k: v[:1] for k, v in program.example_inputs[0][1].items()}}
prediction, state = step({name}, state)  # {what}""",
    "hf": """\
import surnn.hf, transformers
model = transformers.AutoModelForCausalLM.from_pretrained("{path}")
tokenizer = transformers.AutoTokenizer.from_pretrained("{path}")
output = model.generate(**tokenizer("The", return_tensors="pt"), max_new_tokens=50)
print(tokenizer.decode(output[0]))""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn export``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--to", choices=tuple(NAMES), required=True, help="the target")
    parser.add_argument(
        "--out", type=Path, help="new file; for c, web and hf a new folder (default: RUN/model...)"
    )
    parser.add_argument(
        "--weights", choices=("float32", "int8"), default="float32", help="for engine, c and web"
    )
    parser.add_argument(
        "--activations",
        choices=("int16", "int8"),
        default="int16",
        help="numbers that weights of 8 bits multiply; int8 is faster and less exact",
    )
    parser.add_argument(
        "--checkpoint",
        choices=("best", "last", "previous"),
        default="best",
        help="weights to use (default: best)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Load the model, write and check the file, then give it its name."""
    to, precision = arguments.to, (arguments.weights, arguments.activations)
    weights = arguments.weights
    out: Path = arguments.out or arguments.run / NAMES[to]
    if weights != "float32" and to not in ENGINE_FORMATS:
        raise CommandError(f"--weights {weights} works with --to engine, c and web, not with {to}")
    if arguments.activations != "int16" and weights != "int8":
        raise CommandError("--activations int8 needs --weights int8")
    if to == "pt2" and out.suffix != ".pt2":
        raise CommandError(f"torch needs a name that ends in .pt2, got {out}")
    if out.exists():
        raise CommandError(f"{out} exists already; remove it, or choose another name with --out")
    check_packages(to)
    from surnn.deploy.export.step import streaming_step  # noqa: PLC0415 (torch)
    from surnn.errors import option_errors  # noqa: PLC0415
    from surnn.runs.loading import load  # noqa: PLC0415

    trained = load(arguments.run, arguments.checkpoint)
    if to == "hf":
        write = partial(write_hf, trained, arguments.run)
    elif to == "web":
        with option_errors():
            step = streaming_step(trained.model)
            write = partial(write_web, trained, step, precision, arguments.run)
    else:
        with option_errors():  # models that cannot stream
            write = partial(WRITERS[to], streaming_step(trained.model), precision)
    try:  # first the place, so that later errors have other reasons
        out.parent.mkdir(parents=True, exist_ok=True)
        # A folder of our own: nothing that exists can be in the way, or be removed.
        draft = tempfile.TemporaryDirectory(prefix=".surnn-export-", dir=out.parent)
    except OSError as error:
        raise CommandError(
            f"{out} could not be written: {error}; choose another place with --out"
        ) from error
    with draft as folder:
        temporary = Path(folder) / out.name
        try:
            results = "\n".join(check_result(check, weights) for check in write(temporary))
            if out.exists():
                raise CommandError(f"{out} was made meanwhile; choose another name with --out")
            temporary.rename(out)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise CommandError(
                f"{out} could not be written: {error}; free disk space, or choose another place "
                "with --out"
            ) from error
    print(f"wrote {out} ({size_of(out)}): {arguments.checkpoint} weights (step {trained.step})")
    print(f"{results}\nusage:")
    print("\n".join(f"    {line}" for line in usage(to, trained.task.input, out).splitlines()))
    if names := class_names(trained.task):
        print(f"a prediction is the scores of {', '.join(names)}")


def check_result(check: Check, weights: str) -> str:
    """The result of a check as text; an error if it failed."""
    name, agreement = check
    if isinstance(agreement, str):
        return f"not {name}: {agreement}"
    if weights == "float32" and not agreement.good:
        raise CommandError(
            f"the file does not compute the same as the model and was deleted: {agreement}. "
            "This is a bug of surnn or of a package it exports with; please report it"
        )
    return f"{name}: {agreement}"


def class_names(task: "Task") -> tuple[str, ...]:
    """Names of the model's outputs, if the task has them."""
    if task.sound is not None:
        return task.sound.words
    names = getattr(task, "classes", ())
    return tuple(names) if isinstance(names, tuple | list) else ()


def usage(to: str, model_input: "Tokens | Values", path: Path) -> str:
    """Lines of code that run the exported model."""
    features = getattr(model_input, "features", None)
    if features is None:
        name, batched, plain = "token", "token [1] int64", "tokens are integers"
    else:
        name, batched = "frame", f"frame [1, {features}] float32"
        plain = "a frame is one number" if features == 1 else f"a frame is {features} numbers"
    shape = batched if to in ("onnx", "pt2") else plain
    return USAGE[to].format(path=path, name=name, what=shape)


# ---------------------------------------------------------------------------- each kind of file


def write_engine(step: "StreamingStep", precision: Precision, path: Path) -> list[Check]:
    """Write the engine's file."""
    from surnn.deploy.engine import EngineError, library  # noqa: PLC0415
    from surnn.deploy.export import to_engine  # noqa: PLC0415
    from surnn.deploy.export.check import compare_engine  # noqa: PLC0415
    from surnn.errors import option_errors  # noqa: PLC0415

    with option_errors(TypeError, ValueError):  # layers that the engine does not have
        to_engine(step.model, path, *precision)  # type: ignore[arg-type]
    try:
        library()
    except EngineError as error:
        return [("checked", str(error))]
    return [("checked", compare_engine(step, path))]


def write_c(step: "StreamingStep", precision: Precision, path: Path) -> list[Check]:
    """Write a folder of C files. It contains the engine's file, which is checked too."""
    from surnn.deploy.export import to_c_folder  # noqa: PLC0415
    from surnn.deploy.export.check import compare_c  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        checks = write_engine(step, precision, Path(folder) / "model.surnn")
    to_c_folder(step.model, path, *precision)  # type: ignore[arg-type]
    if (compiler := shutil.which("cc")) is None:
        return [*checks, ("compiled", "no C compiler (cc) found")]
    try:
        return [*checks, ("compiled with cc, and checked", compare_c(step, path, compiler))]
    except subprocess.CalledProcessError as error:
        raise CommandError(
            f"the C files do not build here and were deleted: {error}\n{error.stderr}"
        ) from error


def write_web(
    trained: "Trained", step: "StreamingStep", precision: Precision, run: Path, path: Path
) -> list[Check]:
    """Write a folder for browsers. Its engine is the same C code; the engine's file is checked."""
    from surnn.deploy.export import to_web  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        checks = write_engine(step, precision, Path(folder) / "model.surnn")
    sound = trained.task.sound
    if sound is not None and (threshold := trained_threshold(run, trained.step)) is not None:
        sound = replace(sound, threshold=threshold)
    to_web(
        step.model, path, *precision,  # type: ignore[arg-type]
        title=trained.task.name.replace("_", " "),
        classes=class_names(trained.task), sound=sound,
    )  # fmt: skip
    return checks


def trained_threshold(run: Path, step: int) -> float | None:
    """The threshold at which the checkpoint of this step was judged in validation."""
    from surnn.runs.folder import RunFolder  # noqa: PLC0415
    from surnn.tasks.keyword_scores import threshold_at  # noqa: PLC0415

    for line in reversed(RunFolder.open(run).metrics()):
        if line.get("step") == step and line.get("kind") == "valid" and "curve" in line:
            return threshold_at(line["curve"])
    return None


def write_onnx(step: "StreamingStep", precision: Precision, path: Path) -> list[Check]:
    """Write the step for onnxruntime."""
    from surnn.deploy.export import to_onnx  # noqa: PLC0415
    from surnn.deploy.export.check import compare, onnx_step  # noqa: PLC0415

    to_onnx(step.model, path)
    return [("checked", compare(step, onnx_step(path)))]


def write_pt2(step: "StreamingStep", precision: Precision, path: Path) -> list[Check]:
    """Write the step for torch."""
    from surnn.deploy.export import to_pt2  # noqa: PLC0415
    from surnn.deploy.export.check import compare, pt2_step  # noqa: PLC0415

    to_pt2(step.model, path)
    return [("checked", compare(step, pt2_step(path)))]


WRITERS: "dict[str, Callable[[StreamingStep, Precision, Path], list[Check]]]" = {
    "engine": write_engine, "c": write_c, "onnx": write_onnx, "pt2": write_pt2
}  # fmt: skip


def write_hf(trained: "Trained", run: Path, path: Path) -> list[Check]:
    """Write a Hugging Face folder: a whole model, so that it need not be able to stream."""
    from surnn.deploy.export.check import compare_hf  # noqa: PLC0415
    from surnn.deploy.hf import to_folder  # noqa: PLC0415

    to_folder(trained, run, path)
    return [("checked", compare_hf(trained.model, path))]


# ---------------------------------------------------------------------------- helpers


def check_packages(to: str) -> None:
    """Raise if a package that the target needs is not installed."""
    if missing := [name for name in EXTRAS.get(to, ()) if find_spec(name) is None]:
        raise CommandError(
            f"--to {to} needs {', '.join(missing)}, not installed here: pip install 'surnn[{to}]'"
        )


def size_of(path: Path) -> str:
    """The size of a file, or of all files in a folder, as text."""
    files = path.iterdir() if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
