"""The addresses of the window, and its server: threads of the standard library's HTTP server, few and bounded.

GET /                  the page; /page.css, /page.js, /icon.svg: its files. They contain nothing and need no token
GET /events            what one screen shows, as server-sent events; the token is a parameter
GET /records, /record  a search, one record as a whole
POST /send, /create    send a record, make a topic
POST /remove           remove a rule of faults
POST /save             the bytes of a value, as a file
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from kafkaprod.broker.window.guarding import HEADERS, TOKEN_HEADER, Guard, Refusal
from kafkaprod.broker.window.showing import newest_first, shown_record, shown_row
from kafkaprod.broker.window.sources import AskedBrokers, AskError
from kafkaprod.broker.window.streams import SHOWN_RECORDS, Stream, event
from kafkaprod.structs import partition_of_key

FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_JSON: Final = "application/json"
_MOST_CONNECTIONS: Final = 32
_MOST_STREAMS: Final = 8
_MOST_LINE: Final = 8 * 1024
_MOST_BODY: Final = 1 << 20
_WRONG_TOKEN_S: Final = 0.05
_TICK_S: Final = 0.5
_OPENED_BYTES: Final = 64 << 10
_MOST_OPENED_BYTES: Final = 1 << 20


class WindowServer(ThreadingHTTPServer):
    """The server; `serve_forever` runs it.

    Args:
        host: Where it listens.
        port: 0 for a free one.
        sources: Asks the brokers.
        token: The secret of the address.
        about: What the page shows of the brokers as a whole: their addresses for clients.

    Raises:
        OSError: It cannot listen there.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = _MOST_CONNECTIONS

    def __init__(self, host: str, port: int, sources: AskedBrokers, token: str, about: dict[str, Any]) -> None:
        super().__init__((host, port), _Handler)
        self.sources = sources
        self.about = about
        names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}
        self.guard = Guard([f"{name.lower()}:{self.port}" for name in names], token)
        self.connections = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self.streams = threading.BoundedSemaphore(_MOST_STREAMS)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection if there is room; close it otherwise."""
        if self.connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that end: the address of a page has its secret."""


class _Handler(BaseHTTPRequestHandler):
    server: WindowServer
    server_version = "kafkaprod"
    sys_version = ""
    timeout = 10.0

    def do_GET(self) -> None:
        """Answer a request that changes nothing."""
        self._answer(is_change=False)

    def do_POST(self) -> None:
        """Answer a request that changes something, or saves a file."""
        self._answer(is_change=True)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no line: addresses have the token."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what the standard library's server refuses by itself, with the same headers as all else."""
        self._send(code, (message or "refused").encode(errors="replace"), "text/plain; charset=utf-8")

    def _answer(self, *, is_change: bool) -> None:
        address = urlsplit(self.path)
        is_file = address.path in FILES
        refusal = self._refusal(is_page=address.path == "/", is_file=is_file, is_change=is_change)
        if refusal is not None:
            self._send(refusal.status, refusal.text.encode(), "text/plain; charset=utf-8")
            return
        if is_file and not is_change:
            name, kind = FILES[address.path]
            self._send(200, resources.files("kafkaprod.broker.window").joinpath("page", name).read_bytes(), kind)
            return
        arguments = dict(parse_qsl(address.query, keep_blank_values=True, errors="replace"))
        try:
            self._dispatch(address.path, arguments, is_change=is_change)
        except AskError as error:
            self._send_json(409, {"error": str(error)})
        except (ValueError, KeyError, TypeError) as error:
            self._send_json(400, {"error": f"the request cannot be read: {error}"})

    def _refusal(self, *, is_page: bool, is_file: bool, is_change: bool) -> Refusal | None:
        if len(self.requestline) > _MOST_LINE:
            return Refusal(414, "the address is too long")
        guard = self.server.guard
        refusal = guard.check_place(self.headers, is_page=is_page, is_change=is_change)
        if refusal is not None or (is_file and not is_change):
            return refusal
        token = self.headers.get(TOKEN_HEADER)
        if token is None and not is_change and self.path.startswith("/events?"):
            token = dict(parse_qsl(urlsplit(self.path).query)).get("token")
        if not guard.knows(token):
            time.sleep(_WRONG_TOKEN_S)
            return Refusal(403, "open the address that the broker printed: this page's key is another start's")
        if is_change and self.headers.get("Content-Type") != _JSON:
            return Refusal(415, "a change is JSON")
        return None

    def _dispatch(self, path: str, arguments: dict[str, str], *, is_change: bool) -> None:
        match path:
            case "/events" if not is_change:
                self._stream(arguments)
            case "/records" if not is_change:
                self._send_json(200, self._search(arguments))
            case "/record" if not is_change:
                number = int(arguments["partition"])
                most = _MOST_OPENED_BYTES if arguments.get("all") else _OPENED_BYTES
                row = self._record(arguments["topic"], number, int(arguments["offset"]))
                self._send_json(200, shown_record(number, row, most))
            case "/save" if is_change:
                self._save(self._body())
            case "/send" if is_change:
                self._send_json(200, self._send_record(self._body()))
            case "/remove" if is_change:
                self._send_json(200, self._remove_rule(self._body()))
            case "/create" if is_change:
                self._send_json(200, self._create(self._body()))
            case _:
                self._send(404, b"there is no such address", "text/plain; charset=utf-8")

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 < length <= _MOST_BODY:
            raise ValueError(f"a body has 1 to {_MOST_BODY:,} bytes")
        body = json.loads(self.rfile.read(length))
        if not isinstance(body, dict):
            raise ValueError("it is no object")
        return body

    # -- live ----------------------------------------------------------------------------------------------------------

    def _stream(self, wanted: dict[str, str]) -> None:
        if not self.server.streams.acquire(blocking=False):
            self._send(503, b"eight pages are open: close one of them", "text/plain; charset=utf-8")
            return
        try:
            self._begin(200, "text/event-stream")
            stream = Stream(self.server.sources, wanted)
            self.wfile.write(event("hello", self.server.about))
            with contextlib.suppress(OSError):  # the page is gone, or does not read
                while True:
                    began_s = time.monotonic()
                    found = stream.next_events()
                    self.wfile.write(found or b"")
                    if not found and self._is_gone():
                        return
                    time.sleep(max(0.05, _TICK_S - (time.monotonic() - began_s)))
        finally:
            self.server.streams.release()

    def _is_gone(self) -> bool:
        """Return whether the page has closed the connection."""
        self.connection.setblocking(False)
        try:
            return not self.connection.recv(1)
        except BlockingIOError:
            return False
        finally:
            self.connection.settimeout(self.timeout)

    # -- records -------------------------------------------------------------------------------------------------------

    def _search(self, arguments: dict[str, str]) -> dict[str, Any]:
        """Find records by what is in them, or by offset; `ends` continues an earlier search."""
        topic, text = arguments["topic"], arguments.get("find", "")
        number = int(arguments["partition"]) if arguments.get("partition") else None
        ends = json.loads(arguments["ends"]) if arguments.get("ends") else None
        if arguments.get("offset"):
            end = int(arguments["offset"]) + 1
            partitions = self.server.sources.topics()[topic].partitions if number is None else [number]
            ends = {str(each): end for each in partitions}
        found = self.server.sources.newest(topic, SHOWN_RECORDS, number, text, ends)
        rows = newest_first(found["partitions"])
        left = {each: page["end"] for each, page in found["partitions"].items() if page["end"] > page["start"]}
        return {"rows": [shown_row(*each) for each in rows], "searched": found["searched"], "left": left}

    def _record(self, topic: str, partition: int, offset: int) -> list[Any]:
        leader = self.server.sources.leader(topic, partition)
        command = {"command": "record", "topic": topic, "partition": partition, "offset": offset}
        row: list[Any] | None = self.server.sources.ask_one(leader, command)["record"]
        if row is None:
            raise AskError(f"broker {leader} does not lead {topic}-{partition} any more")
        return row

    def _save(self, wanted: dict[str, Any]) -> None:
        topic, partition, offset = str(wanted["topic"]), int(wanted["partition"]), int(wanted["offset"])
        value = self._record(topic, partition, offset)[3]
        name = "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in topic)
        disposition = f'attachment; filename="{name}-{partition}-{offset}.bin"'
        content = base64.b64decode(value or "")
        self._send(200, content, "application/octet-stream", {"Content-Disposition": disposition})

    def _send_record(self, record: dict[str, Any]) -> dict[str, Any]:
        topic, partition = str(record["topic"]), record.get("partition")
        state = self.server.sources.topics().get(topic)
        if state is None or not state.partitions:
            raise AskError(f"topic {topic!r} does not exist")
        key = _bytes(record.get("key"))
        if partition is None:
            partition = _partition_of(key, max(state.partitions) + 1)
        headers = [[str(name), _base64(_bytes(value))] for name, value in record.get("headers") or ()]
        command = {"command": "send", "topic": topic, "partition": int(partition), "headers": headers}
        command |= {"key": _base64(key), "value": _base64(_bytes(record.get("value")))}
        leader = self.server.sources.leader(topic, int(partition))
        return {"partition": int(partition), "offset": self.server.sources.ask_one(leader, command)["offset"]}

    def _remove_rule(self, wanted: dict[str, Any]) -> dict[str, Any]:
        command = {"command": "remove_rule", "rule": int(wanted["rule"])}
        return self.server.sources.ask_one(str(wanted["node"]), command)

    def _create(self, wanted: dict[str, Any]) -> dict[str, Any]:
        command = {"command": "create", "topic": str(wanted["topic"]), "partitions": int(wanted["partitions"])}
        sources = self.server.sources
        return sources.ask_one(sources.any_up(), {**command, "configs": {}})

    # -- answers -------------------------------------------------------------------------------------------------------

    def _send_json(self, status: int, data: Any) -> None:
        self._send(status, json.dumps(data, separators=(",", ":")).encode(), _JSON)

    def _send(self, status: int, content: bytes, kind: str, further: dict[str, str] | None = None) -> None:
        self._begin(status, kind, {**(further or {}), "Content-Length": str(len(content))})
        self.wfile.write(content)

    def _begin(self, status: int, kind: str, further: dict[str, str] | None = None) -> None:
        self.close_connection = True
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, **(further or {})}.items():
            self.send_header(name, value)
        self.end_headers()


def _bytes(text: object) -> bytes | None:
    if text is not None and not isinstance(text, str):
        raise ValueError(f"{text!r} is no text")
    return None if text is None else text.encode(errors="surrogatepass")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _partition_of(key: bytes | None, count: int) -> int:
    return time.monotonic_ns() % count if key is None else partition_of_key(key, count)
