"""What clients have set that is no data: options, quotas, SCRAM credentials, ACLs.

Each section is plain JSON and is replaced as a whole: any thread may read, only the control thread changes. A broker
alone keeps them in `settings.json`; in a cluster they are in the metadata log (`replicated_settings`).
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from kafkaprod.broker.server.refusal import RequestRefusedError
from kafkaprod.broker.storage.disk import Disk, replace_file_durably
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode

FILE_NAME = "settings.json"

BROKER_OPTIONS: Final = "broker options"  # {"" for all brokers, or the node id: {name: value}}
GROUP_OPTIONS: Final = "group options"  # {group id: {name: value}}
METRICS_OPTIONS: Final = "client metrics options"  # {subscription name: {name: value}}
QUOTAS: Final = "quotas"  # [{"entity": {type: name or null}, "values": {key: number}}]
SCRAM: Final = "scram credentials"  # {user: {mechanism: {"salt", "stored_key", "server_key", "iterations"} or null}}
ACLS: Final = "acls"  # [fields of an Acl]

_EMPTY: Final[Mapping[str, Any]] = {
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
        self._sections: Mapping[str, Any] = {**_EMPTY, **sections}

    def get(self, section: str) -> Any:
        """Return a section; do not change it."""
        return self._sections[section]

    @abstractmethod
    def put(self, section: str, content: Any) -> None:
        """Replace a section.

        Raises:
            RequestRefusedError: 56 or 7, it could not be written.
        """


class SavedSettings(Settings):
    """Those of a broker alone, in a file."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """Read the file, if there is one.

        Raises:
            CorruptDataError: It is damaged.
            OSError: It cannot be read.
        """
        self._disk = disk
        self._path = os.path.join(directory, FILE_NAME)
        super().__init__(self._load())

    def put(self, section: str, content: Any) -> None:
        """Replace a section, durably.

        Raises:
            RequestRefusedError: 56, the disk refused; nothing was changed.
        """
        changed = {**self._sections, section: content}
        encoded = json.dumps({"version": 0, "sections": changed}, indent=1, sort_keys=True).encode()
        try:
            replace_file_durably(self._disk, self._path, encoded)
        except OSError as error:
            raise RequestRefusedError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write {self._path}: {error}") from error
        self._sections = changed

    def _load(self) -> dict[str, Any]:
        try:
            with open(self._path, "rb") as file:
                sections = json.load(file)["sections"]
            for name, content in sections.items():
                if type(content) is not type(_EMPTY[name]):
                    raise TypeError(name)
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptDataError(f"{self._path} is damaged: {error!r}") from error
        return dict(sections)
