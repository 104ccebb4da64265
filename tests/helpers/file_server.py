"""An HTTP server for tests of downloads: ranges, changed files, broken connections."""

import hashlib
import http.server
from pathlib import Path

from surnn.data import download
from surnn.data.registry import Remote

CONTENT = bytes(range(256)) * 4000  # about 1 MB
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT with ranges; the server's attributes say how it misbehaves."""

    def do_GET(self) -> None:
        server = self.server
        server.requests.append(dict(self.headers))
        if self.path != "/file.bin":
            self.send_error(404)
            return
        body, status, start = server.content, 200, 0
        wanted = self.headers.get("Range")
        fresh = server.ignores_if_range or self.headers.get("If-Range") in (None, server.tag)
        if wanted and server.ranges and fresh:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.end_headers()
                return
            status = 206
            start += server.shift
        self.send_response(status)
        if server.lengths:
            self.send_header("Content-Length", str(len(body) - start))
        if status == 206 and server.content_range:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if server.tag:
            self.send_header("ETag", server.tag)
        self.end_headers()
        cut = server.cuts.pop(0) if server.cuts else len(body)
        self.wfile.write(body[start : start + cut])

    def log_message(self, *_) -> None:
        pass


def remote(*addresses: str, checksum: str | None = MD5) -> Remote:
    return Remote("file.bin", addresses, len(CONTENT), checksum)


def fetch(folder: Path, one: Remote) -> Path:
    return download.fetch(one, folder, lambda name, done, total: None)
