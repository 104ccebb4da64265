"""The log-mel front end in C against its definition in double."""

import shutil

import numpy as np
import pytest

from helpers.mel import build_mel, mel_in_c, mel_in_double

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
T = np.arange(16000)


def sounds():
    random = np.random.default_rng(0)
    noise = random.normal(size=16000)
    yield "silence", 0 * noise
    yield "one", noise.clip(-1, 1)
    yield "noise", 1000 * noise
    yield "largest", random.choice([-32768, 32767], 16000)
    yield "offset", np.full(16000, -32768)
    yield "tone", 32767 * np.sin(2 * np.pi * 1000 * T / 16000)
    yield "low", 20000 * np.sin(2 * np.pi * 55.3 * T / 16000) + noise
    yield "chirp", 30000 * np.sin(np.pi * T * T / 16000 / 2)
    yield "square", 32767 * np.sign(np.sin(2 * np.pi * 437 * T / 16000))
    for _ in range(5):
        heights, pitches = 10 ** random.uniform(-1, 3.8, 4), random.uniform(20, 8000, 4)
        yield "tones", heights @ np.sin(2 * np.pi * pitches[:, None] * T / 16000)


@pytest.mark.parametrize("flags", [(), ("-fsanitize=undefined", "-fno-sanitize-recover")])
def test_bands_are_within_one_of_the_definition(flags, tmp_path):
    library, equal = build_mel(tmp_path, *flags), []
    for name, sound in sounds():
        samples = np.round(sound).clip(-32768, 32767).astype(np.int16)
        found, expected = mel_in_c(library, samples), mel_in_double(samples)
        assert found.shape == expected.shape == (49, 40)
        assert np.abs(found.astype(int) - expected).max() <= 1, name
        equal.append((found == expected).mean())
    assert min(equal) > 0.98
    assert np.mean(equal) > 0.99


def test_the_first_hop_has_no_frame(tmp_path):
    library = build_mel(tmp_path)
    assert mel_in_c(library, np.ones(639, np.int16)).size == 0
    assert len(mel_in_c(library, np.ones(640, np.int16))) == 1
