"""Modules that a user writes, in a browser and in Node: each predicts what torch does."""

import json
import shutil
import subprocess

import numpy as np
import pytest
import torch

import surnn
from helpers.browser import Page, needs_chromium, served
from helpers.own_modules import MODULES, make_module
from surnn.deploy.export import to_web

STREAM = """async (load, place, frames) => {
  const stream = (await load(place)).stream();
  return frames.map((frame) => Array.from(stream.step(frame)));
}"""


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """A folder with an export of each module, and their inputs and predictions."""
    folder, cases = tmp_path_factory.mktemp("sites"), {}
    for name in MODULES:
        module, x, expected = make_module(name)
        to_web(module, folder / name.replace(" ", "-"))
        cases[name] = x, expected
    return folder, cases


def assert_equal(found: list, folder, name: str, x: torch.Tensor, expected: torch.Tensor) -> None:
    steps = np.array(found, np.float32)
    np.testing.assert_allclose(steps, expected, rtol=1e-5, atol=1e-5)
    stream = surnn.Engine(folder / name.replace(" ", "-") / "model.surnn").stream()
    np.testing.assert_array_equal(steps, [stream.step(frame) for frame in x.numpy()])


@needs_chromium
def test_a_browser_predicts_what_torch_does(sites, tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_SIMD", "generic")
    folder, cases = sites
    (folder / "blank.html").write_text("<!doctype html><link rel=icon href=data:,>")
    with served(folder) as url, Page(tmp_path) as page:
        page.open(f"{url}blank.html")
        for name, (x, expected) in cases.items():
            site = name.replace(" ", "-")
            found = page.run(
                f"import('./{site}/surnn.js').then(({{load}}) => "
                f"({STREAM})(load, './{site}/model.surnn', {json.dumps(x.tolist())}))"
            )
            assert_equal(found, folder, name, x, expected)
        assert not page.console


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node here")
def test_node_predicts_what_torch_does(sites, monkeypatch):
    monkeypatch.setenv("SURNN_SIMD", "generic")
    folder, cases = sites
    for name, (x, expected) in cases.items():
        site = folder / name.replace(" ", "-")
        script = (
            f"import {{load}} from {json.dumps((site / 'surnn.js').as_uri())};"
            f"const place = {json.dumps((site / 'model.surnn').as_uri())};"
            f"console.log(JSON.stringify(await ({STREAM})(load, place, {json.dumps(x.tolist())})));"
        )
        command = ["node", "--input-type=module", "--eval", script]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        assert_equal(json.loads(answer.stdout), folder, name, x, expected)
