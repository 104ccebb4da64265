"""Headless Chromium for tests of pages, driven by its DevTools protocol over a pipe: no other
package is needed."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--remote-debugging-pipe", "--hide-scrollbars", "--disable-quic", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
PATIENCE = 300.0
"""Seconds after which the browser counts as hung."""


def chromium() -> str | None:
    """Path of the browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


needs_chromium = pytest.mark.skipif(
    chromium() is None, reason="no Chromium here; Debian's package is chromium"
)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of the folder, as ``python -m http.server`` starts it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


class Page:
    """One browser with one page.

    Args:
        folder: for the browser's own files.
        width: of the window.
        height: of the window.
        flags: more options of the browser.
    """

    def __init__(
        self, folder: Path, width: int = 1280, height: int = 900, flags: Iterable[str] = ()
    ) -> None:
        program = chromium()
        assert program is not None
        self.console: list[str] = []
        """Everything written to the console: warnings, errors, exceptions."""
        self.requests: list[str] = []
        self._number = 0
        self._rest = b""
        theirs_in, self._out = _pipe()
        self._in, theirs_out = _pipe()
        # The browser reads file 3 and writes file 4.
        plumbing = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            [
                "bash", "-c", plumbing, program, *FLAGS, *flags, f"--user-data-dir={folder}",
                "about:blank",
            ],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        os.set_blocking(self._in, False)
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # the browser ends when its pipe closes
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._in)

    # ------------------------------------------------------------ actions

    def open(self, place: Path | str) -> None:
        """Load a page, a file or an address, and wait until its charts are drawn."""
        url = place.resolve().as_uri() if isinstance(place, Path) else place
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")
        self.run("new Promise((done) => setTimeout(done, 200))")

    def run(self, script: str) -> Any:
        """The value of an expression."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < end, f"never came true: {script}"
            time.sleep(0.02)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def media(self, kind: str = "", **features: str) -> None:
        """Print or screen, and features such as ``prefers_color_scheme="dark"``."""
        listed = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.call("Emulation.setEmulatedMedia", media=kind, features=listed)

    def mouse(self, kind: str, x: float, y: float, **options: Any) -> None:
        """``mouseMoved``, ``mousePressed``, ``mouseReleased``."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **options)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self, path: Path) -> None:
        answer = self.call("Page.printToPDF", printBackground=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    # ------------------------------------------------------------ the protocol

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._handle(answer)

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            try:
                chunk = os.read(self._in, 1 << 20)
                assert chunk, "the browser is gone"
                self._rest += chunk
            except BlockingIOError:
                assert time.monotonic() < end, "the browser does not answer"
                time.sleep(0.005)
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _handle(self, event: dict[str, Any]) -> None:
        about = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled":
                self.console.append(f"{about['type']}: {about['args']}")
            case "Runtime.exceptionThrown":
                self.console.append(str(about["exceptionDetails"]))
            case "Log.entryAdded":
                self.console.append(about["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])


def _pipe() -> tuple[int, int]:
    """A pipe with descriptors above those that the browser uses."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends)
    for end in ends:
        os.close(end)
    return high  # type: ignore[return-value]
