"""The classic groups in a coordinator's log: read when it starts, written when a group has changed.

The control thread owns it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kafkaprod.broker.coordinator import classic_records
from kafkaprod.broker.coordinator.group import Group
from kafkaprod.broker.coordinator.member import GroupConfig
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.internal_records import KeyValue

logger = logging.getLogger(__name__)

MAX_GROUP_BYTES: Final = 1_048_588
"""Limit of a group's record: Kafka's default for the largest batch of a topic, which __consumer_offsets has, too."""


class SavedGroups:
    """See the module docstring.

    Args:
        saved: The records, group id -> value; `write` changes it.
        write: Writes records, all or none; raises BrokerError.
        wall_ms: The time by the wall clock.
    """

    def __init__(
        self, saved: Mapping[str, bytes], write: Callable[[Sequence[KeyValue]], None], wall_ms: Callable[[], int]
    ) -> None:
        self._saved = saved
        self._write = write
        self._wall_ms = wall_ms

    def read_all(self, config: GroupConfig, now_ms: int) -> Iterator[Group]:
        """Make the groups that have a record; the sessions of their members begin now.

        Raises:
            CorruptDataError: A record is damaged.
        """
        for group_id, value in self._saved.items():
            yield classic_records.read_group(group_id, value, config, now_ms)

    def save(self, group: Group) -> ErrorCode:
        """Write a group that is stable or empty; return the error for its members if that failed.

        UNKNOWN_SERVER_ERROR: it is too large.
        """
        key, value = classic_records.group_record(group, self._wall_ms())
        if value is not None and len(value) > MAX_GROUP_BYTES:
            logger.warning(
                "group %r cannot be written: its %d members take %d bytes, the limit is %d",
                group.group_id,
                len(group.members),
                len(value),
                MAX_GROUP_BYTES,
            )
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return self._try_to_write((key, value), group.group_id)

    def remove(self, group_id: str) -> ErrorCode:
        """Remove a group, if it is written; return the error if that failed."""
        if group_id not in self._saved:
            return ErrorCode.NONE
        return self._try_to_write(classic_records.group_tombstone(group_id), group_id)

    def _try_to_write(self, record: KeyValue, group_id: str) -> ErrorCode:
        try:
            self._write([record])
        except BrokerError as error:
            logger.warning("group %r cannot be written: %s", group_id, error)
            if error.code == ErrorCode.NOT_COORDINATOR:
                return ErrorCode.NOT_COORDINATOR
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE
