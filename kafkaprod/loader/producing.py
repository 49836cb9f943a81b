"""The producer of a load: one producer id and epoch over all processes that work at it. See `recovery`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kafkaprod.admin.client import ClusterClient
from kafkaprod.engine.engine import Engine
from kafkaprod.loader.recovery import SEQUENCE_MASK
from kafkaprod.metrics import LatencyHistogram, Stage
from kafkaprod.producer import Producer
from kafkaprod.protocol.error_codes import describe, error_for
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.text import counted

_log = logging.getLogger("kafkaprod.loader")

NO_TRANSACTION_TIMEOUT = 0x7FFFFFFF
MAX_TRIES = 100
RETRY_MS = 100


class _LoadEngine(Engine):
    """An engine that reports failures at debug level: the load raises them, or continues them with --resume."""

    def _report_failures(self) -> None:
        count, error = self.ledger.take()
        if count:
            _log.debug("%s not delivered in this session, the first because: %s", counted(count, "record"), error)


class LoadProducer(Producer):
    """A producer that continues where another process with its id and epoch stopped.

    Args:
        options: As Producer's.
        topic: The one topic it is for.
        identity: Producer id and epoch; None: as any producer.
        next_sequences: By partition, how many rows of the load are in the log.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        topic: str,
        identity: tuple[int, int] | None = None,
        next_sequences: Mapping[int, int] | None = None,
    ) -> None:
        self._identity = identity
        super().__init__(options)
        try:
            self.partitions_for(topic)
        except BaseException:
            self.close(0)
            raise
        for partition, count in (next_sequences or {}).items():
            if count:
                self._engine.drain.resume_partition(topic, partition, count & SEQUENCE_MASK)

    def _make_engine(self) -> Engine:
        return _LoadEngine(self._config, self._clock, self._identity)

    @property
    def latencies(self) -> Mapping[Stage, LatencyHistogram]:
        """Of its records, by stage."""
        return self._engine.histograms

    @property
    def retry_count(self) -> int:
        """How often one of its records was sent again."""
        return int(self.metrics()["producer-metrics"]["record-retry-total"])


def new_producer_id(client: ClusterClient) -> tuple[int, int]:
    """Ask the cluster for a producer id and epoch. Raises KafkaError if it gives none."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT)
    answer = client.ask(request)
    for _ in range(MAX_TRIES):  # a broker that has just started knows no ids yet
        if not describe(answer.error_code).retriable:
            break
        client.wait(RETRY_MS)
        answer = client.ask(request)
    if answer.error_code:
        raise error_for(answer.error_code, "the cluster gave no producer id")
    return answer.producer_id, answer.producer_epoch
