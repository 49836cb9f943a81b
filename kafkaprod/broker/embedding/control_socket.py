"""The way into a running broker for its window, and for a test beside `kafkaprod broker`: a Unix socket.

Commands and answers are lines of JSON, as between a test and its broker (`commands`). The socket is its owner's alone
(mode 0600), in a directory that is, too. Each connection has a thread; at most 16 are open at a time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Mapping
from typing import Final

from kafkaprod.broker.embedding.commands import CommandHandler, answer_to
from kafkaprod.broker.embedding.lines import NUMBER, JsonLines
from kafkaprod.errors import ConfigError

logger = logging.getLogger(__name__)

_MOST_CONNECTIONS: Final = 16
_MOST_PATH_BYTES: Final = 103
"""What all systems take of a path: Linux has room for 107 bytes, macOS for 103."""


class ControlSocket:
    """Listens, and answers each connection on a thread of its own.

    Args:
        path: Where; what an earlier broker left there is removed.
        handlers: What can be done, by the name of the command.

    Raises:
        ConfigError: The path is too long.
        OSError: It cannot listen there.
    """

    def __init__(self, path: str, handlers: Mapping[str, CommandHandler]) -> None:
        size = len(os.fsencode(path))
        if size > _MOST_PATH_BYTES:
            raise ConfigError(f"the control socket {path!r} has {size} bytes: a path of one has {_MOST_PATH_BYTES}")
        self._handlers = handlers
        self._path = path
        self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            self._listener.bind(path)
            os.chmod(path, 0o600)
            self._listener.listen(_MOST_CONNECTIONS)
        except OSError:
            self._listener.close()
            raise
        threading.Thread(target=self._accept, name="kafkaprod-control", daemon=True).start()

    def close(self) -> None:
        """Listen no more; connections end with the process."""
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _accept(self) -> None:
        while True:
            self._room.acquire()
            try:
                sock, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._obey, args=(sock,), name="kafkaprod-control", daemon=True).start()

    def _obey(self, sock: socket.socket) -> None:
        lines = JsonLines(sock, sock)
        try:
            while (command := lines.receive()) is not None:
                number = command.pop(NUMBER, None)
                lines.reply(number, answer_to(command, self._handlers))
        except (OSError, ValueError, AttributeError) as error:  # it is gone, or sends no objects
            logger.debug("a connection to the control socket ends: %s", error)
        finally:
            sock.close()
            self._room.release()
