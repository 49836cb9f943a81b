"""Keeps a token for most of its life, so that each login does not cost a request to the identity provider."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

from kafkaprod.clock import monotonic_s
from kafkaprod.errors import ConnectionLostError, KafkaError, copy_to_raise
from kafkaprod.locks import locked
from kafkaprod.security.oauthbearer import BearerToken

REFRESH_SHARE: Final = 0.8  # of a token's life, as Java's sasl.login.refresh.window.factor
PATIENCE_S: Final = 30.0

logger = logging.getLogger("kafkaprod.security")


class TokenCache:
    """Fetches a token when the kept one has lived for 80 % of its time. Thread-safe; one fetch at a time.

    Between 80 % and its end a token is still used while another is fetched, and if no other can be, with a warning: the
    brokers of a running producer outlive a short failure of the provider.

    Args:
        fetch: Returns a new token; may block. A token without a life is used once.
        clock: Seconds, monotonic.
        patience_s: How long a login waits for a fetch that another one began.
    """

    def __init__(
        self,
        fetch: Callable[[], BearerToken],
        clock: Callable[[], float] = monotonic_s,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._patience_s = patience_s
        self._lock = threading.RLock()  # held for memory only, never while a token is fetched
        self._kept: BearerToken | None = None
        self._refresh_at_s = 0.0
        self._ends_at_s = 0.0
        self._running: _Fetch | None = None

    def token(self) -> BearerToken:
        """Return a token that is valid now.

        Raises:
            KafkaError: None could be fetched, and there is no other.
        """
        mine = _Fetch()
        try:
            found = self._find(mine)
            if isinstance(found, BearerToken):
                return found
            return self._run(mine) if found is mine else self._share(found)
        finally:
            self._end(mine)

    @locked
    def _find(self, mine: _Fetch) -> BearerToken | _Fetch:
        """Return the kept token if it should be used, else the fetch that runs: `mine` if there was none."""
        if self._kept is not None and self._clock() < self._refresh_at_s:
            return self._kept
        if self._running is None:
            self._running = mine
        elif self._kept is not None and self._clock() < self._ends_at_s:
            return self._kept
        return self._running

    @locked
    def _end(self, mine: _Fetch) -> None:
        if self._running is mine:
            self._running = None
        mine.end()

    def _run(self, mine: _Fetch) -> BearerToken:
        begun_at_s = self._clock()
        try:
            token = self._fetch()
        except BaseException as error:
            mine.error = error if isinstance(error, KafkaError) else None
            if mine.error is None:
                raise
            return self._old_token(mine.error)
        mine.token = token
        self._keep(token, begun_at_s)
        return token

    def _share(self, running: _Fetch) -> BearerToken:
        """Take the token that another login fetches. One that can be used once only is that login's own."""
        if not running.wait(self._patience_s):
            raise ConnectionLostError(
                f"another login's request for a token has not ended within {self._patience_s:g} s"
            )
        if running.error is not None:
            return self._old_token(running.error)
        if running.token is not None and running.token.lifetime_s is not None:
            return running.token
        return self.token()

    @locked
    def discard(self, token: BearerToken) -> None:
        """Forget a token that a broker refused: the next login fetches another."""
        if self._kept == token:
            self._kept = None

    @locked
    def _keep(self, token: BearerToken, fetched_at_s: float) -> None:
        self._kept = None if token.lifetime_s is None else token
        if token.lifetime_s is not None:
            self._refresh_at_s = fetched_at_s + token.lifetime_s * REFRESH_SHARE
            self._ends_at_s = fetched_at_s + token.lifetime_s

    def _old_token(self, error: KafkaError) -> BearerToken:
        kept, left_s = self._kept_for()
        if kept is None or left_s <= 0:
            raise copy_to_raise(error)  # all logins that waited for the token have it
        logger.warning("no new token could be fetched, the old one is used for %.0f s more: %s", left_s, error)
        return kept

    @locked
    def _kept_for(self) -> tuple[BearerToken | None, float]:
        return self._kept, self._ends_at_s - self._clock()


class _Fetch:
    """A request for a token, and what came of it once it is over."""

    def __init__(self) -> None:
        self.token: BearerToken | None = None
        self.error: KafkaError | None = None
        self._is_over = False
        self._waiting: list[queue.SimpleQueue[None]] = []  # one for each login that waits

    def end(self) -> None:
        """Wake who waits."""
        self._is_over = True
        for one in self._waiting:
            one.put(None)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; return whether it came."""
        mine: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._waiting.append(mine)
        if self._is_over:
            return True
        try:
            mine.get(timeout=timeout_s)
        except queue.Empty:
            return False
        return True
