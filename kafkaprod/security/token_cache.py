"""Keeps a token for most of its life, so that each login does not cost a request to the identity provider."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from kafkaprod.errors import KafkaError
from kafkaprod.security.oauthbearer import BearerToken

REFRESH_SHARE: Final = 0.8  # of a token's life, as Java's sasl.login.refresh.window.factor

logger = logging.getLogger("kafkaprod.security")


class TokenCache:
    """Fetches a token when the kept one has lived for 80 % of its time. Thread-safe; one fetch at a time.

    Between 80 % and its end a token is still used if no other can be fetched, with a warning: the brokers of a running
    producer outlive a short failure of the provider.

    Args:
        fetch: Returns a new token; may block. A token without a life is used once.
        clock: Seconds, monotonic.
    """

    def __init__(self, fetch: Callable[[], BearerToken], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: BearerToken | None = None
        self._refresh_at_s = 0.0
        self._ends_at_s = 0.0
        self._failure: KafkaError | None = None
        self._failed_at_s = 0.0

    def token(self) -> BearerToken:
        """Return a token that is valid now.

        Raises:
            KafkaError: None could be fetched, and there is no other.
        """
        called_at_s = self._clock()
        with self._lock:
            if self._kept is not None and self._clock() < self._refresh_at_s:
                return self._kept
            if self._failure is not None and self._failed_at_s > called_at_s:
                return self._old_token(self._failure)  # it failed for a thread before, while this one waited
            begun_at_s = self._clock()
            try:
                token = self._fetch()
            except KafkaError as error:
                self._failure, self._failed_at_s = error, self._clock()
                return self._old_token(error)
            self._failure = None
            self._keep(token, begun_at_s)
            return token

    def discard(self, token: BearerToken) -> None:
        """Forget a token that a broker refused: the next login fetches another."""
        with self._lock:
            if self._kept == token:
                self._kept = None

    def _keep(self, token: BearerToken, fetched_at_s: float) -> None:
        self._kept = None if token.lifetime_s is None else token
        if token.lifetime_s is not None:
            self._refresh_at_s = fetched_at_s + token.lifetime_s * REFRESH_SHARE
            self._ends_at_s = fetched_at_s + token.lifetime_s

    def _old_token(self, error: KafkaError) -> BearerToken:
        if self._kept is None or self._clock() >= self._ends_at_s:
            raise error
        left_s = self._ends_at_s - self._clock()
        logger.warning("no new token could be fetched, the old one is used for %.0f s more: %s", left_s, error)
        return self._kept
