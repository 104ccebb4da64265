"""Build options of the engine do not change its results."""

import os
import shutil
import subprocess

import numpy as np
import pytest
import torch

from helpers.engine_files import SOURCES, build_objects, convolutions, every_operation, link
from surnn.deploy.export import to_engine
from surnn.deploy.export.c_folder import inference_sources

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
MICRO = ("-DSURNN_MICRO=1", "-DSURNN_NO_MALLOC=0")  # surnn-run allocates
PARTS = {"WARPED": "warped", "MEAN": "input-float32", "ACTIVATIONS": "prelu", "INT8": "int8"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("options")


@pytest.fixture(scope="module")
def files(folder):
    torch.manual_seed(0)
    activations = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ELU())
    return [
        *every_operation(folder),
        to_engine(convolutions(), folder / "convolutions.surnn"),
        to_engine(activations, folder / "prelu.surnn"),
    ]


def program(folder, *options):
    flags = ("-O1", "-std=c99", "-ffp-contract=off", *options)
    name = "".join(c for c in "".join(options) if c.isalnum()) or "normal"
    objects = build_objects(folder / name, *flags, sources=inference_sources())
    return link(folder / name / "surnn-run", SOURCES / "main.c", objects, *flags)


def answers(program, path):
    inputs = 1 if path.name.startswith("table") else 6  # tokens; else frames of 2 or 3 numbers
    values = np.random.default_rng(0).normal(size=20 * inputs)
    text = " ".join(map(str, np.arange(20) % 5 if inputs == 1 else values.astype(np.float32)))
    environment = {**os.environ, "SURNN_SIMD": "scalar"}
    return subprocess.run(
        [program, path], input=text, capture_output=True, text=True, env=environment, check=False
    )


def test_results_do_not_depend_on_the_build(folder, files):
    normal, micro = program(folder), program(folder, *MICRO)
    one_frame = program(folder, "-DSURNN_CHUNK=1")
    for path in files:
        expected = answers(normal, path)
        assert expected.returncode == 0, expected.stderr
        assert len(set(expected.stdout.splitlines())) >= 5
        assert answers(micro, path).stdout == expected.stdout, path
        assert answers(one_frame, path).stdout == expected.stdout, path


@pytest.mark.parametrize("part", PARTS)
def test_a_file_is_refused_if_its_part_is_left_out(part, folder, files):
    without = program(folder, *MICRO, f"-DSURNN_{part}=0")
    for path in files:
        done = answers(without, path)
        if PARTS[part] in path.name:
            assert "contradict" in done.stderr, path
        elif path.name == "clocks-float32.surnn":
            assert done.returncode == 0, done.stderr
