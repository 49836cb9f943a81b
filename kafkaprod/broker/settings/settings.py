"""What clients have set that is no data: options, quotas, SCRAM credentials, ACLs.

Each section is plain JSON and is replaced as a whole: any thread may read, only the control thread changes. They are
records of the metadata log (`replicated_settings`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

BROKER_OPTIONS: Final = "broker options"  # {"" for all brokers, or the node id: {name: value}}
GROUP_OPTIONS: Final = "group options"  # {group id: {name: value}}
METRICS_OPTIONS: Final = "client metrics options"  # {subscription name: {name: value}}
QUOTAS: Final = "quotas"  # [{"entity": {type: name or null}, "values": {key: number}}]
SCRAM: Final = "scram credentials"  # {user: {mechanism: {"salt", "stored_key", "server_key", "iterations"} or null}}
ACLS: Final = "acls"  # [fields of an Acl]

EMPTY: Final[Mapping[str, Any]] = {
    BROKER_OPTIONS: {},
    GROUP_OPTIONS: {},
    METRICS_OPTIONS: {},
    QUOTAS: [],
    SCRAM: {},
    ACLS: [],
}


class Settings(ABC):
    """See the module docstring."""

    def __init__(self, sections: Mapping[str, Any]) -> None:
        """Take sections over; missing ones are empty."""
        self._sections: Mapping[str, Any] = {**EMPTY, **sections}

    def get(self, section: str) -> Any:
        """Return a section; do not change it."""
        return self._sections[section]

    @abstractmethod
    def put(self, section: str, content: Any) -> None:
        """Replace a section.

        Raises:
            RequestRefusedError: KAFKA_STORAGE_ERROR or REQUEST_TIMED_OUT, it could not be written.
        """
