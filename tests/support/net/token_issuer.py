"""An identity provider on loopback: a token endpoint, and the keys that its tokens are checked by."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

CLIENT_ID, SECRET = "tests", "issuer-secret"


class Asked(NamedTuple):
    """A request that came to the endpoint."""

    method: str
    path: str
    headers: dict[str, str]
    form: dict[str, str]


def encoded(fields: dict[str, Any]) -> str:
    """A part of a JSON web token."""
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()


def unsigned_token(subject: str, lifetime_s: float, **more: Any) -> str:
    """A token without a signature."""
    now = time.time()
    return f"{encoded({'alg': 'none'})}.{encoded({'sub': subject, 'iat': now, 'exp': now + lifetime_s, **more})}."


class TokenIssuer:
    """Grants tokens for CLIENT_ID and SECRET, or for any assertion.

    Attributes:
        asked: The requests, oldest first.
        lifetime_s: Of the tokens.
        subject: Of the tokens.
        answer: (status, body) to give instead of a token; None: a token.
        sign: Makes the token; None: without a signature.
    """

    def __init__(self, *, lifetime_s: float = 60.0) -> None:
        self.asked: list[Asked] = []
        self.lifetime_s = lifetime_s
        self.subject = "service-1"
        self.answer: tuple[int, bytes] | None = None
        self.headers: dict[str, str] = {}
        self.sign: Any = None
        self.keys: dict[str, Any] = {"keys": []}
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The token endpoint."""
        return f"http://127.0.0.1:{self._port}/token"

    @property
    def keys_url(self) -> str:
        """Where the public keys are."""
        return f"http://127.0.0.1:{self._port}/keys"

    def start(self) -> Self:
        """Listen; again on the same port after `stop`."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = dict(urllib.parse.parse_qsl(body))
                issuer.asked.append(Asked("POST", self.path, dict(self.headers), form))
                self._reply(*issuer.reply(dict(self.headers), form))

            def do_GET(self) -> None:
                if self.path == "/keys":
                    self._reply(200, json.dumps(issuer.keys).encode())
                    return
                issuer.asked.append(Asked("GET", self.path, dict(self.headers), {}))
                self._reply(*(issuer.answer or (200, issuer.token_answer())))

            def _reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                for name, value in issuer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def reply(self, headers: dict[str, str], form: dict[str, str]) -> tuple[int, bytes]:
        """Status and body for a request."""
        if self.answer is not None:
            return self.answer
        proof = base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()
        if headers.get("Authorization") != f"Basic {proof}" and not form.keys() & {"assertion", "client_assertion"}:
            return 401, b'{"error":"invalid_client","error_description":"unknown client or wrong secret"}'
        return 200, self.token_answer()

    def token_answer(self) -> bytes:
        """The body that grants a token."""
        make = self.sign or unsigned_token
        token = make(self.subject, self.lifetime_s)
        return json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s}).encode()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
