"""Models on a microcontroller: built with arm-none-eabi-gcc, run in qemu, instructions counted.

qemu runs with ``-icount shift=6``: an instruction takes 64 ns of the machine's time, and its
SysTick timer counts at 25 MHz, 1.6 times in that time. So the program sees how many instructions
ran, exactly but for one. They are not cycles: qemu knows no wait states and no pipeline.
"""

import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np

TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm", "make")
MACHINES = {"cortex-m3": "mps2-an385", "cortex-m4": "mps2-an386", "cortex-m7": "mps2-an500"}
INSTRUCTIONS_PER_TICK = 40 / 64
HOP = 320


class Sizes(NamedTuple):
    """Bytes."""

    stream: int
    model: int
    """Memory of ``surnn_place``: the decoded model, without its weights."""
    stack: int
    mel: int
    """The front end's memory."""


class Flash(NamedTuple):
    """Bytes, without the padding between parts."""

    engine: int
    """The engine, with the functions of C's library that it needs."""
    mel: int
    model: int
    program: int
    """The test program around them."""


_SECTION = re.compile(r"^ \.(?:text|rodata|data)\S*\s+0x(\w+)\s+0x(\w+) (\S+)$", re.MULTILINE)
_PARTS = {"(weights.o)": "model", "(mel.o)": "mel"}


class Measured(NamedTuple):
    """Answers of a firmware, a row for each frame."""

    instructions: np.ndarray
    """Of the model."""
    mel_instructions: np.ndarray
    """Of the log-mel front end."""
    updates: np.ndarray
    outputs: np.ndarray
    sizes: Sizes


def missing_tools() -> list[str]:
    """The programs that this needs and that are not installed."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


class Firmware:
    """A folder of :func:`~surnn.export.to_c_folder`, built for a microcontroller.

    Args:
        folder: the folder.
        core: of the ``Makefile``: cortex-m3, cortex-m4 or cortex-m7.
    """

    def __init__(self, folder: Path, core: str = "cortex-m4") -> None:
        missing = missing_tools()
        if missing:
            raise FileNotFoundError(
                f"{', '.join(missing)} not found; on Debian: apt-get install gcc-arm-none-eabi "
                "libnewlib-arm-none-eabi qemu-system-arm make"
            )
        self.core, self.build = core, folder / "build" / core
        command = ["make", "-C", str(folder), f"CORE={core}", "qemu"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        self.warnings = done.stderr
        self.symbols = self._symbols()
        self.map = (self.build / "firmware.map").read_text()

    def _symbols(self) -> dict[str, int]:
        """The size of each symbol that the program has."""
        command = ["arm-none-eabi-nm", "-S", str(self.build / "firmware.elf")]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in lines.splitlines()]
        return {row[-1]: int(row[1], 16) if len(row) == 4 else 0 for row in rows}

    @property
    def flash(self) -> Flash:
        """What the program takes of flash, by its linker's map."""
        used = self.map[self.map.index("Linker script and memory map") :]
        sizes = {"engine": 0, "mel": 0, "model": 0, "program": 0}
        for address, size, path in _SECTION.findall(used):
            if int(address, 16) or path.endswith("startup.o"):
                part = next((p for end, p in _PARTS.items() if path.endswith(end)), "engine")
                sizes[part if "libmodel.a" in path or "lib/" in path else "program"] += int(
                    size, 16
                )
        return Flash(**sizes)

    def run(self, frames: np.ndarray, clock: int = 0, timeout: float = 300) -> Measured:
        """Answers to frames [n, inputs], from a clock on."""
        content = struct.pack("<q2f", clock, 0.0, 0.0) + frames.astype("<f4").tobytes()
        return self._run(content, len(frames), timeout)

    def listen(self, samples: np.ndarray, scale: float, shift: float) -> Measured:
        """Answers to int16 samples at 16 kHz, whose log-mel bands are scaled and shifted."""
        hops = len(samples) // HOP
        content = struct.pack("<q2f", 0, scale, shift)
        content += samples[: hops * HOP].astype("<i2").tobytes()
        return self._run(content, hops - 1, 300)

    def _run(self, content: bytes, count: int, timeout: float) -> Measured:
        (self.build / "frames.bin").write_bytes(content)
        command = ["qemu-system-arm", "-M", MACHINES[self.core], "-nographic", "-monitor", "none"]
        command += ["-serial", "none", "-icount", "shift=6", "-kernel", "firmware.elf"]
        command += ["-semihosting-config", "enable=on,target=native"]
        done = subprocess.run(
            command, cwd=self.build, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"the firmware failed: {done.stdout}{done.stderr}")
        raw = (self.build / "answers.bin").read_bytes()
        rows = np.frombuffer(raw[:-16], np.uint32).reshape(count, -1)
        model, mel = (rows[:, i] * INSTRUCTIONS_PER_TICK for i in (0, 1))
        sizes = Sizes(*struct.unpack("<4I", raw[-16:]))
        return Measured(model, mel, rows[:, 2].copy(), rows[:, 3:].copy().view(np.float32), sizes)
