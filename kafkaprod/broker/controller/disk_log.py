"""The metadata log on disk: one partition in the format of all logs, `__cluster_metadata-0`, as Kafka's KRaft log.

`kafka-dump-log --cluster-metadata-decoder` reads it. A cluster's controller has a data directory for it; a broker alone
keeps it in its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

from kafkaprod.broker.metadata.log import MetadataBatch
from kafkaprod.broker.metadata.records import decode, encode
from kafkaprod.broker.storage.disk import Disk
from kafkaprod.broker.storage.format.batch_header import HEADER_BYTES, parse_header
from kafkaprod.broker.storage.format.internal_records import build_batch
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.broker.storage.log.directory_files import directory_name
from kafkaprod.broker.storage.log.group_commit import FlushPolicy
from kafkaprod.broker.storage.log.log_dir import open_log_dir
from kafkaprod.broker.storage.log.log_store import LogEnvironment
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.segments import OpenHandles
from kafkaprod.clock import Clock
from kafkaprod.errors import ConfigError, CorruptDataError
from kafkaprod.structs import TopicPartition

METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
METADATA_TOPIC_ID: Final = uuid.UUID(int=1)
METADATA_CONFIG: Final = LogConfig(retention_ms=-1, retention_bytes=-1)
CONTROLLER_NODE_ID: Final = 0

_READ_BYTES = 1024 * 1024


def check_metadata_is_first(paths: Sequence[str]) -> None:
    """Refuse log directories in another order than before: the first one has the metadata log.

    Raises:
        ConfigError: Another directory has it, and the first one has not.
    """
    name = directory_name(METADATA_PARTITION)
    having = [path for path in paths if os.path.isdir(os.path.join(path, name))]
    if having and paths[0] not in having:
        raise ConfigError(
            f"{paths[0]} has no metadata, but the log directory {having[0]} has: the one with {name} must be data_dir"
        )


class PartitionOfMetadata:
    """See the module docstring."""

    def __init__(self, log: PartitionLog, clock: Clock) -> None:
        self._clock = clock
        self._log = log

    @property
    def is_of_kafka(self) -> bool:
        """Whether it is the log of Apache Kafka's own controllers: those begin with a control batch of the quorum."""
        log = self._log
        if not log.log_end_offset:
            return False
        first = log.read(log.log_start_offset, 1, log.log_end_offset).records
        return first is None or parse_header(memoryview(first.read())).is_control

    def batches(self) -> Iterator[MetadataBatch]:
        """Read the log from its start.

        Raises:
            CorruptDataError: A record is not known.
            LogError: CORRUPT_MESSAGE, the log is damaged.
        """
        log, offset = self._log, 0
        while offset < log.log_end_offset:
            records = log.read(offset, _READ_BYTES, log.log_end_offset).records
            if records is None:
                return
            view = memoryview(records.read())
            while len(view) >= HEADER_BYTES:
                header = parse_header(view)
                if len(view) < header.size_bytes:
                    break
                values = [record.value or b"" for record in iterate_records(view[: header.size_bytes])]
                yield MetadataBatch(header.base_offset, header.partition_leader_epoch, tuple(map(decode, values)))
                offset = header.last_offset + 1
                view = view[header.size_bytes :]

    def append(self, batch: MetadataBatch) -> list[bytes]:
        """Write a batch, and sync it if the flush policy says so; return its records, encoded.

        Raises:
            CorruptDataError: It does not follow the log's end.
            LogError: The disk refused.
        """
        if batch.base_offset != self._log.log_end_offset:
            raise CorruptDataError(f"batch at {batch.base_offset} does not follow the end {self._log.log_end_offset}")
        values = [encode(record) for record in batch.records]
        records = build_batch([(None, value) for value in values], self._clock.wall_ms())
        self._log.append_internal(records, batch.epoch)
        self._log.commit(self._log.log_end_offset)
        return values

    def sync(self) -> None:
        """Bring all of it to the disk, whatever the flush policy.

        Raises:
            LogError: The disk refused; the log takes no more batches.
        """
        self._log.flush()


class DiskMetadataLog(PartitionOfMetadata):
    """The metadata log of a cluster's controller, in a data directory of its own."""

    def __init__(self, data_dir: str, cluster_id: str, policy: FlushPolicy, disk: Disk, clock: Clock) -> None:
        """Open the log, or make it.

        Raises:
            DirectoryLockedError, ConfigError, OSError: As `open_log_dir`.
        """
        environment = LogEnvironment(disk, clock, policy, OpenHandles())
        self._log_dir = open_log_dir(
            data_dir, environment, node_id=CONTROLLER_NODE_ID, cluster_id=cluster_id, defaults=METADATA_CONFIG
        )
        super().__init__(self._log_dir.create(METADATA_PARTITION, METADATA_TOPIC_ID), clock)

    def close(self) -> None:
        """Sync and close the log."""
        self._log_dir.close()
