"""What brokers refuse again and again, and one line in the log for each refusal that lasts. Sender thread only.

A refusal that passes, as when leaders move, needs no operator: a line comes after LASTING_MS. There is one
for each outage and error code, however many partitions and retries there are.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from kafkaprod.errors import KafkaError, broker_code
from kafkaprod.protocol.error_codes import describe
from kafkaprod.text import counted, printable

LASTING_MS: Final = 2000
LEAST_GAP_MS: Final = 10_000  # without the refusal, after which it is a new outage
MOST_TOPICS: Final = 3  # that a line names
RECORDS: Final = "records"

logger = logging.getLogger("kafkaprod.engine.outages")


class _Outage:
    """One error code for one kind of request.

    Attributes:
        since_ms, last_ms: When it was answered first and last.
        is_logged: Whether the line is written.
        partitions: When each of them answered it last.
    """

    __slots__ = ("is_logged", "last_ms", "partitions", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = self.last_ms = now_ms
        self.is_logged = False
        self.partitions: dict[tuple[str, int], int] = {}


class Outages:
    """The outages of one producer.

    Args:
        retry_backoff_max_ms: The longest wait between attempts.
    """

    def __init__(self, retry_backoff_max_ms: int) -> None:
        self._gap_ms = max(LEAST_GAP_MS, 2 * retry_backoff_max_ms)
        self._recent_ms = max(LASTING_MS, 2 * retry_backoff_max_ms)
        self._outages: dict[tuple[str, int], _Outage] = {}

    def note(self, what: str, error: KafkaError, now_ms: int, partition: tuple[str, int] | None = None) -> None:
        """Note that a broker has refused something that is sent again; log it if that has lasted.

        Args:
            what: RECORDS, or the name of the request.
            error: Its answer; one without an error code is a matter of connections, which have lines of their own.
            now_ms: The time.
            partition: Topic and number of the partition that refused records.
        """
        code = broker_code(error)
        if code is None:
            return
        outage = self._outages.get((what, code))
        if outage is None or now_ms - outage.last_ms >= self._gap_ms:
            outage = self._outages[what, code] = _Outage(now_ms)
        outage.last_ms = now_ms
        if partition is not None:
            outage.partitions[partition] = now_ms
        if not outage.is_logged and now_ms - outage.since_ms >= LASTING_MS:
            outage.is_logged = True
            self._log(what, code, outage, now_ms)

    def end(self, what: str) -> None:
        """Note that nothing of this kind is refused now."""
        if self._outages:
            self._outages = {key: outage for key, outage in self._outages.items() if key[0] != what}

    def _log(self, what: str, code: int, outage: _Outage, now_ms: int) -> None:
        who = what
        if outage.partitions:
            recent = Counter(
                topic for (topic, _), last_ms in outage.partitions.items() if now_ms - last_ms <= self._recent_ms
            )
            named = [f"{counted(count, 'partition')} of {topic}" for topic, count in recent.most_common(MOST_TOPICS)]
            if len(recent) > MOST_TOPICS:
                named.append(f"those of {counted(len(recent) - MOST_TOPICS, 'other topic')}")
            who = ", ".join(named)
        logger.warning(
            "%s: refused for %d ms now, and sent again: %s",
            printable(who),
            now_ms - outage.since_ms,
            printable(str(describe(code))),
        )
