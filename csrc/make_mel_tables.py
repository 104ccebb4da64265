"""Writes mel_tables.inc: ``python csrc/make_mel_tables.py > csrc/mel_tables.inc``."""

import math
from itertools import pairwise

WINDOW, BANDS, RATE, LOWEST, HIGHEST = 640, 40, 16000, 20.0, 8000.0


def main() -> None:
    """Print the tables."""
    low, high = (2595 * math.log10(1 + hertz / 700) for hertz in (LOWEST, HIGHEST))
    mels = [low + (high - low) * i / (BANDS + 1) for i in range(BANDS + 2)]
    edges = [700 * (10 ** (mel / 2595) - 1) for mel in mels]
    hertz = [k * RATE / WINDOW for k in range(WINDOW // 2)]
    first = [next((k for k, f in enumerate(hertz) if f >= e), len(hertz)) for e in edges]
    weights = [0.0] * len(hertz)
    for i, (begin, end) in enumerate(pairwise(first)):
        for k in range(begin, end):
            weights[k] = (hertz[k] - edges[i]) / (edges[i + 1] - edges[i])
    cosines = [round(math.cos(2 * math.pi * k / WINDOW) * 2**30) for k in range(WINDOW // 4 + 1)]
    logarithms = [round(math.log2(1 + i / 32) * 2**20) for i in range(33)]
    per_unit = 255 / 24
    print("/* Made by make_mel_tables.py. */")
    table("int32_t", "cosines", cosines, "cos(2 pi k / 640) in units of 2^-30")
    table("uint16_t", "first_bins", first, "the first frequency from each edge of the bands on")
    table(
        "uint32_t",
        "weights",
        [round(w * 2**32) for w in weights],
        "of the band that rises, in units of 2^-32",
    )
    table("uint32_t", "logarithms", logarithms, "log2(1 + i / 32) in units of 2^-20")
    print(f"#define FLOOR {round(1e-6 * 2**38)} /* 1e-6 in units of sample^2 * 2^-8 */")
    print(f"#define PER_OCTAVE {round(math.log(2) * per_unit * 2**20)} /* in units of 2^-20 */")
    print(f"#define OFFSET ((int64_t){round(14 * per_unit * 2**8)} << 32) /* of 2^-40 */")


def table(kind: str, name: str, values: list[int], text: str) -> None:
    """Print one table."""
    suffix = "u" if kind == "uint32_t" else ""
    words = [f"{v}{suffix}," for v in values]
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) > 98:
            lines, line = [*lines, line.rstrip()], ""
        line += word + " "
    body = "\n".join(f"    {row}" for row in [*lines, line.rstrip()])
    print(f"/* {text} */\nstatic const {kind} {name}[{len(values)}] = {{\n{body}\n}};")


if __name__ == "__main__":
    main()
