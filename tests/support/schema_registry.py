"""A schema registry of one process, over HTTP: what confluent-kafka's client asks of one, and the requests it got."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class Registry:
    """Schemas by subject; ids count from 1, the same schema has the same id in all subjects.

    Attributes:
        url: Its address.
        asked: Method and path of each request.
        authorization: The header of that name in the last request.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.authorization: str | None = None
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}

    def add(self, subject: str, schema: str) -> int:
        """Register a schema."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and content."""
        if path[:2] == ["schemas", "ids"]:
            return 200, {"schema": self.schemas[int(path[2]) - 1]}
        subject = path[1]
        if method == "POST" and path[2:] == ["versions"]:
            return 200, {"id": self.add(subject, body["schema"])}
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if method == "POST":
            if body["schema"] not in self.schemas:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, self._described(subject, self.schemas.index(body["schema"]) + 1)
        return 200, self._described(subject, self.subjects[subject][-1])

    def _described(self, subject: str, number: int) -> dict[str, Any]:
        version = self.subjects[subject].index(number) + 1
        return {"subject": subject, "version": version, "id": number, "schema": self.schemas[number - 1]}


@contextmanager
def running_registry() -> Iterator[Registry]:
    """Run a registry on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            path = urlsplit(self.path).path
            registry.asked.append(f"{self.command} {path}")
            registry.authorization = self.headers.get("Authorization")
            status, content = registry.answer(self.command, [unquote(part) for part in path.split("/")[1:]], body)
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = Registry(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
