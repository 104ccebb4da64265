"""A small model that hears loud sounds, and recordings for it: no training is needed."""

import wave
from pathlib import Path

import numpy as np
import torch

from surnn.config import InputGateConfig, ModelConfig
from surnn.models.model import SequenceModel
from surnn.tasks import Output, Values
from surnn.tasks.sound import Sound

RATE = 16_000
SOUND = Sound(("none", "loud"), mean=-6.0, spread=4.5, average=5, pause=25, threshold=0.6)


@torch.no_grad()
def loudness_model() -> SequenceModel:
    """Its gates are open where the mean of the frame is above 0.5, its units are positive where it
    is above 1, and the word "loud" is their sign."""
    config, gate = ModelConfig(width=32, layers=1, block="stack"), InputGateConfig(source="input")
    model = SequenceModel(config, gate, Values(40), Output(2, "step"), 50).eval()
    layer = model.blocks[0].mixer.layer
    for parameter in model.parameters():
        parameter.zero_()
    layer.gates[0].weight.fill_(1 / 40)
    layer.gates[0].bias.fill_(-0.5)
    layer.bias_ih_l0[32:64] = -30.0  # z = 0: an update replaces the state
    layer.weight_ih_l0[64:] = 4 / 40
    layer.bias_ih_l0[64:] = -4.0
    model.head.weight[1] = 4 / 32
    return model


def record(path: Path, seconds: float, words: list[float]) -> np.ndarray:
    """A recording of faint noise with loud noise of half a second, which fades, from some times on;
    its samples."""
    random = np.random.default_rng(0)
    t = np.arange(int(seconds * RATE)) / RATE
    level = np.full(len(t), 20.0)
    for begin in words:
        after = t - begin
        level = np.where(
            after > 0, np.maximum(level, 6000 * np.exp(-12 * (after - 0.5).clip(0))), level
        )
    samples = (random.normal(size=len(t)) * level).clip(-32768, 32767).astype(np.int16)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    return samples
