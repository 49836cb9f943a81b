"""How many connections a second there may be: of an address (`connection_creation_rate`), of a listener, and in all.

    of an address  those above the quota are held for the time that it says, then closed; they do not count
    of a listener  listener.name.NAME.max.connection.creation.rate: it waits before it takes the one that was too many
    in all         max.connection.creation.rate: any listener waits

Measured as other quotas are: of ten seconds, so many may come at once. A wait is a second at most.
Source: Kafka, ConnectionQuotas; KIP-612. Belongs to the event loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from kafkaprod.broker.calls.meters import Meters, WindowedRate
from kafkaprod.broker.settings.quotas import QuotaTable
from kafkaprod.structs import INT32_MAX

MAX_WAIT_MS: Final = 1_000


class ConnectionRates:
    """See the module docstring."""

    def __init__(
        self, table: Callable[[], QuotaTable], limit: Callable[[], int], limit_of_listener: Callable[[str], int]
    ) -> None:
        """Note nothing yet.

        Args:
            table: Returns the quotas of now.
            limit: Returns how many connections a second there may be, INT32_MAX for any number.
            limit_of_listener: The same for the listener of a name.
        """
        self._table = table
        self._limit = limit
        self._limit_of_listener = limit_of_listener
        self._rate = WindowedRate()
        self._rates_of_listeners: defaultdict[str, WindowedRate] = defaultdict(WindowedRate)
        self._meters = Meters(WindowedRate)

    def pause_ms(self, listener: str, now_ms: int) -> int:
        """Note a connection; return for how long its listener must wait with it, in milliseconds."""
        wait_ms = 0
        for rate, limit in (
            (self._rate, self._limit()),
            (self._rates_of_listeners[listener], self._limit_of_listener(listener)),
        ):
            if limit != INT32_MAX:
                rate.add(1, now_ms)
                wait_ms = max(wait_ms, rate.wait_ms(limit, now_ms))
        return min(wait_ms, MAX_WAIT_MS)

    def hold_ms(self, host: str, now_ms: int) -> int:
        """Note a connection of an address; return after how long it must be closed, 0 if it may stay."""
        quota = self._table().of_address(host)
        if quota is None:
            return 0
        meter = self._meters.of(host, "", now_ms)
        meter.add(1, now_ms)
        wait_ms = min(meter.wait_ms(quota, now_ms), MAX_WAIT_MS)
        if wait_ms:
            meter.add(-1, now_ms)
        return wait_ms
