"""SIGINT, SIGTERM and SIGHUP, heeded when it suits."""

import signal
import time
from types import FrameType
from typing import Any

HEEDED = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""SIGHUP: the terminal is gone. Windows has none."""
ECHO = 0.5
"""Seconds within which a second signal is the first once more: torchrun passes on a Ctrl-C that the
terminal has sent to all."""


class Signals:
    """Notes the first of these while entered; a second one interrupts at once."""

    def __init__(self) -> None:
        self.came: str | None = None
        """The name of the one that came."""
        self._since = 0.0
        self._before: dict[int, Any] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.came is None:
            self.came, self._since = signal.Signals(number).name, now
        elif now - self._since > ECHO:
            raise KeyboardInterrupt

    def __enter__(self) -> "Signals":
        self.came = None
        for number in HEEDED:
            if signal.getsignal(number) is signal.SIG_IGN:  # as nohup has it
                continue
            try:
                self._before[number] = signal.signal(number, self._note)
            except ValueError:  # not in the main thread: whoever is there heeds signals
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
