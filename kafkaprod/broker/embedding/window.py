"""The test's side of the window: the process that serves the page of a broker or a cluster, and its address.

It is started beside the broker, which does not wait for it, and outlives the broker's `kill()` and `start()`. It ends
with `close`, or with the process that started it. One that cannot start is a warning: no test fails because of it.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final

from kafkaprod.broker.embedding.child_process import ChildProcess, EmbeddedBrokerError, start_module
from kafkaprod.errors import ConfigError, IllegalStateError
from kafkaprod.text import address_text

logger = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
_START_S: Final = 30.0
_END_S: Final = 5.0
_LAST_PORT: Final = 65_535


class Window:
    """See the module docstring. Not thread-safe.

    Args:
        paths: Id of a broker -> its control socket.
        port: Where the page is served; 0 for a free port.
        host: The address it listens on.
    """

    def __init__(self, paths: Mapping[str, str], port: int, host: str = LOOPBACK) -> None:
        self._options: dict[str, Any] = {"paths": dict(paths), "port": port, "host": host, "about": {}}
        self._options["token"] = secrets.token_urlsafe(16)
        self._process: ChildProcess | None = None
        self._url = self._failure = ""
        self._about: dict[str, Any] = {}

    def start(self) -> None:
        """Start the process, unless it runs; do not wait for it."""
        if self._process is None:
            self._process = start_module("kafkaprod.broker.window")

    def describe(self, bootstrap: str, addresses: Mapping[str, str], paths: Mapping[str, str] | None = None) -> None:
        """Have the page show where clients reach the brokers; and other brokers, if `paths` has their sockets."""
        self._about = {"bootstrap": bootstrap, "addresses": dict(addresses)}
        if paths is not None:
            self._options["paths"] = dict(paths)
        if self._url:
            self._send_about()

    @property
    def url(self) -> str:
        """The address of the page, with its secret.

        Raises:
            IllegalStateError: It was not started.
            EmbeddedBrokerError: It could not start.
        """
        if self._process is None:
            raise IllegalStateError("the window was not started, or is closed: it has no address")
        if self._failure:
            raise EmbeddedBrokerError(self._failure)
        if not self._url:
            answer = self._process.exchange(self._options, _START_S, "the window")
            if "error" in answer:
                self._failure = f"the window cannot be served at {answer['error']}"
                raise EmbeddedBrokerError(self._failure)
            shown = LOOPBACK if self._options["host"] in ("0.0.0.0", "::") else self._options["host"]
            self._url = f"http://{address_text(shown, answer['port'])}/#k={self._options['token']}"
            self._send_about()
        return self._url

    def begin(self) -> None:
        """Let it serve; log a warning if it cannot."""
        try:
            assert self.url
        except EmbeddedBrokerError as error:
            logger.warning("no page shows the broker: %s", error)

    def close(self) -> None:
        """End the process. Idempotent."""
        process, self._process = self._process, None
        self._url = self._failure = ""
        if process is None:
            return
        process.kill()
        process.wait(_END_S)
        self._close_pipes(process)

    def disown(self) -> None:
        """In a forked child: drop what belongs to the parent."""
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0
            self._close_pipes(process)

    def _close_pipes(self, process: ChildProcess) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _send_about(self) -> None:
        if self._process is not None:
            self._process.say({"about": self._about, "paths": self._options["paths"]})


def checked_port(ui: object) -> int | None:
    """Return the port that `ui` names: 0 for True, None for no page.

    Raises:
        ConfigError: It is neither a port nor True or False.
    """
    if ui is None or isinstance(ui, bool):
        return 0 if ui else None
    if not isinstance(ui, int) or not 0 <= ui <= _LAST_PORT:
        raise ConfigError(f"ui={ui!r} is not True, False or a port, 8080 say")
    return ui
