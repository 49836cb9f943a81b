"""Make the producer of a load: one producer id and epoch for all processes that work at it. See `recovery`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from kafkaprod.clock import SystemClock
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.engine import Engine
from kafkaprod.loader.positions.recovery import SEQUENCE_MASK
from kafkaprod.metrics import LatencyHistogram, Stage
from kafkaprod.producer import Producer, start_producer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafkaprod.loader.formats.rows import RowBlock
    from kafkaprod.results.block import BlockResult


class LoadProducer(Producer):
    """A producer that continues where another process with its id and epoch stopped. Made by `open`."""

    @classmethod
    def open(
        cls,
        options: Mapping[str, Any],
        topic: str,
        identity: tuple[int, int] | None = None,
        next_sequences: Mapping[int, int] | None = None,
        cluster_id: str | None = None,
    ) -> Self:
        """Make one.

        Args:
            options: As Producer's.
            topic: The one topic it is for.
            identity: Producer id and epoch; None: as any producer.
            next_sequences: By partition, how many rows of the load are in the log.
            cluster_id: The cluster that they are in; records fail where another one answers. None: any.

        Raises: as `Producer` and `partitions_for`.
        """
        # The load raises its failures, or continues them with --resume: they are no errors of the program.
        config = ProducerConfig.from_options(options)
        engine = Engine(config, SystemClock(), identity, unseen_failures_level=logging.DEBUG, cluster_id=cluster_id)
        producer = start_producer(cls, engine)
        try:
            producer.partitions_for(topic)
        except BaseException:
            producer.close(0)
            raise
        for partition, count in (next_sequences or {}).items():
            if count:
                engine.drain.resume_partition(topic, partition, count & SEQUENCE_MASK)
        return producer

    def send_block(self, topic: str, block: RowBlock, partitions: NDArray[np.int32]) -> BlockResult:
        """Send a block of rows, each to its partition. Raises as `send_columns`."""
        return self.send_columns(
            topic,
            block.value,
            block.key,
            block.header_columns(),
            block.timestamps,
            partitions,
            row_count=block.row_count,
        )

    @property
    def latencies(self) -> Mapping[Stage, LatencyHistogram]:
        """Return the latencies of its records, by stage."""
        return self.engine.histograms

    @property
    def retry_count(self) -> int:
        """Return how often one of its records was sent again."""
        return int(self.metrics()["producer-metrics"]["record-retry-total"])
