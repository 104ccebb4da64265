"""A file server, and a cache of the test's own."""

import http.server
import threading

import pytest

from helpers.file_server import CONTENT, Handler


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        found.content, found.tag, found.ranges = CONTENT, '"one"', True
        found.handle_error = lambda *_: None  # clients that hang up are the point
        found.cuts, found.requests = [], []
        found.content_range, found.lengths, found.ignores_if_range, found.shift = (
            True,
            True,
            False,
            0,
        )
        found.address = f"http://127.0.0.1:{found.server_port}/file.bin"
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SURNN_DATA", raising=False)
