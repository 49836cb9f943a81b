"""An HTTP server of objects in memory, whose answers a test can spoil: what real servers do on bad days."""

from __future__ import annotations

import email.utils
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

OLD = "Sat, 01 Jan 2022 00:00:00 GMT"


@dataclass
class Reply:
    """What the server is about to answer; faults change it."""

    status: int
    headers: dict[str, str]
    body: bytes
    sent_bytes: int | None = None  # cut behind these
    delay_s: float = 0.0


@dataclass
class Asked:
    """A request."""

    path: str
    headers: Mapping[str, str]
    range: tuple[int, int] | None


Fault = Callable[[Asked, Reply], None]


@dataclass
class ObjectServer:
    """Serves `objects`, path -> content. `faults` are given each request, from the first to the last.

    `validators` are the headers that objects have: of "etag" and "modified".
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    validators: tuple[str, ...] = ("etag",)
    has_ranges: bool = True
    has_conditions: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    modified: str = OLD
    faults: list[Fault] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    delay_s: float = 0.0
    port: int = 0
    host: str = "127.0.0.1"

    def url(self, path: str) -> str:
        """The address of an object."""
        return f"http://{self.host}:{self.port}{path}"

    def etag(self, path: str) -> str:
        """The ETag of what an object is now."""
        return '"' + hashlib.md5(self.objects[path], usedforsecurity=False).hexdigest() + '"'

    def once(self, fault: Fault, at: int = 0) -> None:
        """Spoil one answer: the one of that number from now on."""
        left = [at]

        def only(asked: Asked, reply: Reply) -> None:
            if left[0] == 0:
                fault(asked, reply)
            left[0] -= 1

        self.faults.append(only)

    def listing(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        """The keys of a bucket, as S3 lists them, two at a time."""
        prefix, after = query.get("prefix", [""])[0], query.get("continuation-token", [""])[0]
        start = bucket.rstrip("/") + "/"
        keys = sorted(path.removeprefix(start) for path in self.objects if path.startswith(start + prefix))
        page = [key for key in keys if key > after][:2]
        more = page and page[-1] != keys[-1]
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2022-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(self.etag(start + key))}</ETag><Size>{len(self.objects[start + key])}</Size></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        text = (
            f"<ListBucketResult><IsTruncated>{str(bool(more)).lower()}</IsTruncated>{token}{entries}</ListBucketResult>"
        )
        return text.encode()

    def reply(self, asked: Asked) -> Reply:
        """The answer to a request, before faults."""
        path, _, query = asked.path.partition("?")
        path = unquote(path)
        if "list-type=2" in query:
            return Reply(200, {"Content-Type": "application/xml"}, self.listing(path, parse_qs(query)))
        if path not in self.objects:
            return Reply(404, {}, b"no such object")
        content = self.objects[path]
        headers = dict(self.headers)
        if "etag" in self.validators:
            headers["ETag"] = self.etag(path)
        if "weak" in self.validators:
            headers["ETag"] = f"W/{self.etag(path)}"
        if "modified" in self.validators:
            headers["Last-Modified"] = self.modified
        if self.has_conditions:
            wanted, since = asked.headers.get("if-match"), asked.headers.get("if-unmodified-since")
            if wanted is not None and wanted != headers.get("ETag"):
                return Reply(412, headers, b"")
            if since is not None and since != headers.get("Last-Modified"):
                return Reply(412, headers, b"")
        if asked.range is None or not self.has_ranges:
            return Reply(200, headers, content)
        start, end = asked.range
        if start >= len(content):
            return Reply(416, {**headers, "Content-Range": f"bytes */{len(content)}"}, b"")
        end = min(end, len(content) - 1)
        return Reply(206, {**headers, "Content-Range": f"bytes {start}-{end}/{len(content)}"}, content[start : end + 1])


@contextmanager
def object_server(objects: dict[str, bytes] | None = None, **options: Any) -> Iterator[ObjectServer]:
    """A running server."""
    state = ObjectServer(objects or {}, **options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = self.headers.get("Range", "").removeprefix("bytes=").split("-")
            span = (int(found[0]), int(found[1])) if len(found) == 2 else None
            asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, span)
            state.asked.append(asked)
            reply = state.reply(asked)
            reply.delay_s = state.delay_s
            for fault in state.faults:
                fault(asked, reply)
            if reply.delay_s:
                threading.Event().wait(reply.delay_s)
            self._send(reply)

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            headers = {"Content-Length": str(len(reply.body)), **reply.headers}
            for name, value in headers.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            self.wfile.write(reply.body if reply.sent_bytes is None else reply.body[: reply.sent_bytes])
            if reply.sent_bytes is not None or not headers["Content-Length"]:
                self.close_connection = True

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

        def date_time_string(self, timestamp: float | None = None) -> str:
            return email.utils.formatdate(timestamp, usegmt=True)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients hang up as they like."""

    server = Server((state.host, 0), Handler)
    state.port = server.server_port
    thread = threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# -- faults ------------------------------------------------------------------------------------------------------------


def cut(after: int) -> Fault:
    """Send so many bytes of the body, then close the connection."""

    def spoil(asked: Asked, reply: Reply) -> None:
        reply.sent_bytes = min(after, max(len(reply.body) - 1, 0))

    return spoil


def status(code: int, **headers: str) -> Fault:
    """Answer with another status, and no body."""

    def spoil(asked: Asked, reply: Reply) -> None:
        reply.status, reply.body = code, b""
        reply.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    return spoil


def redirect(location: str, code: int = 302) -> Fault:
    """Lead elsewhere."""
    return status(code, Location=location)


def headers(**values: str) -> Fault:
    """Have other headers; without those that are empty."""

    def spoil(asked: Asked, reply: Reply) -> None:
        reply.headers |= {name.replace("_", "-"): value for name, value in values.items()}

    return spoil
