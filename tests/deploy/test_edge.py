"""Models on an emulated Cortex-M4. ``make test-edge`` runs these; they need qemu."""

import numpy as np
import pytest
import torch
from torch import nn

import surnn
from helpers.mel import build_mel, mel_in_c
from surnn.bench.firmware import Firmware, missing_tools
from surnn.deploy.export import to_c_folder, to_engine
from surnn.models.model import SequenceModel
from surnn_recipes.speech_commands import streams

pytestmark = pytest.mark.skipif(
    bool(missing_tools()), reason=f"not installed: {', '.join(missing_tools())}"
)
INPUTS, CLASSES, WIDTH = 40, 12, 32
CLOCKS = (0, 96, 10**6, 10**9, 2**40 - 20, 2**50 - 60)


class Speech(nn.Module):
    """The shape of a keyword model."""

    def __init__(self, gate, width=WIDTH):
        super().__init__()
        self.rnn = surnn.SuGRU(INPUTS, width, num_layers=2, gate=gate, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def gate_of(kind):
    if kind == "clock":
        return surnn.Rhythm(rate=0.1, frequencies=16, horizon=100)
    return surnn.InputGate(rate=0.1)


@pytest.fixture(
    scope="module", params=[("clock", "float32"), ("input", "float32"), ("input", "int8")]
)
def device(request, tmp_path_factory):
    """A model's firmware, and its file."""
    kind, weights = request.param
    torch.manual_seed(0)
    model, folder = Speech(gate_of(kind)).eval(), tmp_path_factory.mktemp("edge")
    path = to_engine(model, folder / "model.surnn", weights)
    return kind, Firmware(to_c_folder(model, folder / "c", weights)), path


def answers_of_python(path, frames, monkeypatch, clock=0):
    monkeypatch.setenv("SURNN_SIMD", "scalar")
    stream = surnn.Engine(path).stream()
    stream.clock = clock
    return stream.run(frames)


def test_answers_equal_those_of_a_pc_bit_for_bit(device, monkeypatch):
    _, firmware, path = device
    frames = np.random.default_rng(0).normal(size=(1000, INPUTS)).astype(np.float32)
    measured = firmware.run(frames)
    assert np.array_equal(measured.outputs, answers_of_python(path, frames, monkeypatch))
    assert 0 < measured.updates.mean() < 0.5 * 2 * WIDTH
    assert np.ptp(measured.outputs, axis=0).min() > 1e-3


def test_the_program_is_small_and_needs_neither_malloc_nor_doubles(device):
    _, firmware, _ = device
    assert 15_000 < firmware.flash.engine < 25_000
    assert 2000 < firmware.flash.mel < 5000
    assert not firmware.warnings
    sizes = firmware.run(np.zeros((1, INPUTS))).sizes
    assert sizes.stream < 6000
    assert sizes.stack < 3000
    for name in firmware.symbols:
        assert "alloc" not in name
        assert name not in ("__aeabi_dadd", "__aeabi_dmul", "__aeabi_f2d", "sin", "cos", "_sbrk")
    assert "malloc" not in firmware.map
    assert "muldf3" not in firmware.map


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_the_keyword_model_fits(weights, tmp_path, monkeypatch):
    """That of the recipe: two layers of 192 units, gates with a memory for heads of 16."""
    config = streams()
    task = config.task
    torch.manual_seed(0)
    model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps).eval()
    path = to_engine(model, tmp_path / "model.surnn", weights)
    firmware = Firmware(to_c_folder(model, tmp_path / "c", weights))
    frames = np.random.default_rng(0).normal(size=(30, INPUTS)).astype(np.float32)
    measured = firmware.run(frames)
    assert np.array_equal(measured.outputs, answers_of_python(path, frames, monkeypatch))
    assert firmware.flash.engine < 25_000
    assert 2 * 192 * 4 < measured.sizes.stream < 6000


def test_no_time_step_is_slow_at_any_clock(device, monkeypatch):
    kind, firmware, path = device
    if kind != "clock":
        pytest.skip("other models have no clock")
    frames = np.random.default_rng(1).normal(size=(50, INPUTS)).astype(np.float32)
    medians = []
    for clock in CLOCKS:
        measured = firmware.run(frames, clock)
        assert np.array_equal(measured.outputs, answers_of_python(path, frames, monkeypatch, clock))
        medians.append(np.median(measured.instructions))
        assert measured.instructions.max() < 2 * medians[-1]
    assert max(medians[2:]) < 1.1 * min(medians[2:])  # the first are read from the file


def test_samples_go_in_and_decisions_come_out(device, monkeypatch, tmp_path):
    _, firmware, path = device
    samples = (np.random.default_rng(2).normal(size=32 * 320) * 500).astype(np.int16)
    scale, shift = np.float32(1 / 16), np.float32(-8)
    measured = firmware.listen(samples, float(scale), float(shift))
    frames = mel_in_c(build_mel(tmp_path), samples) * scale + shift
    assert np.array_equal(measured.outputs, answers_of_python(path, frames, monkeypatch))
    assert len(measured.outputs) == 31
    assert 0 < measured.mel_instructions.max() < 120_000
    assert measured.sizes.mel < 3300
