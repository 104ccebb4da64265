"""Phases and waves of clocks in integers, against exact arithmetic."""

import ctypes
import math
import random
import shutil
import struct
import subprocess
from fractions import Fraction

import pytest

from helpers.paths import ROOT

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
TURN = 2 * Fraction(
    31415926535897932384626433832795028841971693993751058209749445923078164062862, 10**76
)


@pytest.fixture(scope="module", params=["128 bits", "64 bits"])
def library(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("phase") / "phase.so"
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O2", "-shared", "-fPIC"]
    flags += ["-fsanitize=undefined", "-fno-sanitize-recover"]
    if request.param == "64 bits":
        flags.append("-U__SIZEOF_INT128__")  # as on microcontrollers
    subprocess.run(["cc", *flags, str(ROOT / "csrc" / "phase.c"), "-o", str(path)], check=True)
    found = ctypes.CDLL(str(path))
    found.surnn_turn.restype = ctypes.c_uint64
    found.surnn_turn.argtypes = [ctypes.c_uint64, ctypes.c_int64]
    return found


def turn(library, omega, t):
    return library.surnn_turn(struct.unpack("<Q", struct.pack("<d", omega))[0], t)


def waves(library, turn, kind, name):
    sine, cosine = kind(), kind()
    getattr(library, name)(ctypes.c_uint64(turn), ctypes.byref(sine), ctypes.byref(cosine))
    return sine.value, cosine.value


def test_phases_are_those_of_the_product_in_double(library):
    draw = random.Random(0)
    for _ in range(3000):
        omega = draw.choice([draw.uniform(0, 3.2), 10 ** draw.uniform(-12, 4), -draw.random()])
        t = draw.choice([draw.randrange(2000), draw.randrange(10**9), draw.randrange(2**50), 2**50])
        exact = Fraction(omega * t) / TURN * 2**64  # omega * t is rounded as Python rounds it
        error = (turn(library, omega, t) - exact) % 2**64
        assert min(error, 2**64 - error) < 1.01


def test_phases_of_odd_frequencies(library):
    assert turn(library, 0.0, 10**9) == 0
    for omega in (math.inf, math.nan, 1e300, -1e300, 1e-300, 5e-324):
        turn(library, omega, 2**50)  # no undefined behaviour
    assert turn(library, 1e-40, 1) == 0


def test_waves(library):
    draw = random.Random(1)
    eighths = [k * 2**61 + e for k in range(8) for e in (-1, 0, 1)]
    for phase in [*(p % 2**64 for p in eighths), *(draw.randrange(2**64) for _ in range(3000))]:
        angle = 2 * math.pi * phase / 2**64
        rough = waves(library, phase, ctypes.c_float, "surnn_wave")
        fine = waves(library, phase, ctypes.c_int64, "surnn_exact_wave")
        for i, expected in enumerate((math.sin(angle), math.cos(angle))):
            assert abs(rough[i] - expected) < 2**-24
            assert abs(fine[i] / 2**62 - expected) < 2**-49  # the angle here is rounded
