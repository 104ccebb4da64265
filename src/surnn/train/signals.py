"""SIGINT, SIGTERM and SIGHUP, noted and handled between two steps."""

import signal
import time
from types import FrameType
from typing import Any

HANDLED = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""SIGHUP comes when the terminal closes. Windows has none."""
ECHO_SECONDS = 0.5
"""A second signal within this time is the first one again: torchrun forwards a Ctrl-C that the
terminal has already sent to all processes."""


class Signals:
    """Notes the first signal inside its context; a second one interrupts at once."""

    def __init__(self) -> None:
        self.name: str | None = None
        """The name of the signal, once one came."""
        self._received_at = 0.0
        self._before: dict[int, Any] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.name is None:
            self.name, self._received_at = signal.Signals(number).name, now
        elif now - self._received_at > ECHO_SECONDS:
            raise KeyboardInterrupt

    def __enter__(self) -> "Signals":
        self.name = None
        for number in HANDLED:
            if signal.getsignal(number) is signal.SIG_IGN:  # under nohup
                continue
            try:
                self._before[number] = signal.signal(number, self._note)
            except ValueError:  # outside the main thread signals cannot be handled
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
