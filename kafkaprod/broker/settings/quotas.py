"""Quotas of users, client ids and addresses (KIP-546): kept, shown, and found for a client (`server.throttling`).

A quota of a user is shared by all client ids of that user, one of a client id by all users; a default stands for one
quota for each. What counts for a client is the first that there is, of

    user and client id | user, default client id | user | default user, client id | both defaults | default user |
    client id | default client id

An entity is one or two parts, type -> name, None for the default of the type: {"user": "ann", "client-id": None}.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkaprod.broker.calls.limits import MAX_ID_CHARS
from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.settings.settings import QUOTAS, Settings
from kafkaprod.protocol.error_codes import ErrorCode

Entity = Mapping[str, str | None]

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2
PRODUCER_BYTES, CONSUMER_BYTES = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, MUTATIONS = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"

_ABSENT: Final = ""  # no name is empty

_CLIENT_KEYS: Final = frozenset({PRODUCER_BYTES, CONSUMER_BYTES, REQUEST_PERCENTAGE, MUTATIONS})
_IP_KEYS: Final = frozenset({CONNECTIONS})
_FRACTIONAL_KEYS: Final = frozenset({REQUEST_PERCENTAGE, MUTATIONS})


class Filter(NamedTuple):
    """Matches one part of an entity.

    Attributes:
        match_type: EXACT, DEFAULT or ANY.
        name: The name to match, for EXACT.
    """

    entity_type: str
    match_type: int
    name: str | None


class Change(NamedTuple):
    """Sets a quota, or removes it if `value` is None."""

    key: str
    value: float | None


class Found(NamedTuple):
    """A quota of a client, and the names of those that share it."""

    quota: float
    entity: tuple[str, ...]


class QuotaTable:
    """The quotas of clients, as they are looked up for each request, and of addresses. A value.

    Attributes:
        keys: The keys that any client has a quota of.
    """

    def __init__(self, entries: Iterable[Mapping[str, Any]] = ()) -> None:
        """Take entries of the settings over."""
        self._values: dict[tuple[str, str | None, str | None], float] = {}
        self._of_addresses: dict[str | None, float] = {}
        for entry in entries:
            entity = entry["entity"]
            if IP in entity:
                self._of_addresses |= {_address(entity[IP]): value for value in entry["values"].values()}
                continue
            for key, value in entry["values"].items():
                self._values[key, entity.get(USER, _ABSENT), entity.get(CLIENT_ID, _ABSENT)] = value
        self.keys = frozenset(key for key, _, _ in self._values)

    def find(self, key: str, user: str, client_id: str) -> Found | None:
        """Return what counts for a client, None if there is no quota of the key for it."""
        if key not in self.keys:
            return None
        user, client_id = user[:MAX_ID_CHARS], client_id[:MAX_ID_CHARS]  # meters are kept by these names
        for owner in (user, None):
            for client in (client_id, None):
                if (value := self._values.get((key, owner, client))) is not None:
                    return Found(value, (user, client_id))
            if (value := self._values.get((key, owner, _ABSENT))) is not None:
                return Found(value, ("user", user, ""))
        for client in (client_id, None):
            if (value := self._values.get((key, _ABSENT, client))) is not None:
                return Found(value, ("client id", client_id, ""))
        return None

    def of_address(self, host: str) -> float | None:
        """Return how many connections a second may come from an address, None for any number."""
        if not self._of_addresses:
            return None
        return self._of_addresses.get(_address(host), self._of_addresses.get(None))


class Quotas:
    """See the module docstring. Used on the control thread, but for `table`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: tuple[Any, QuotaTable] = ((), QuotaTable())  # a section of the settings, and the table of it

    @property
    def table(self) -> QuotaTable:
        """The quotas of now. Thread-safe; the same object as long as they are the same."""
        section = self._settings.get(QUOTAS)
        known, table = self._known
        if known is not section:
            table = QuotaTable(section)
            self._known = (section, table)
        return table

    def find(
        self, filters: Sequence[Filter], *, is_strict: bool
    ) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        """Return entities and their quotas; strictly, those that have no parts but the filtered ones.

        Raises:
            RequestRefusedError: INVALID_REQUEST or UNSUPPORTED_VERSION for filters that mean nothing.
        """
        types = [wanted.entity_type for wanted in filters]
        if len(set(types)) < len(types):
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "An entity type is filtered twice.")
        for wanted in filters:
            _check_type(wanted.entity_type)
            if wanted.match_type not in (EXACT, DEFAULT, ANY) or (wanted.match_type == EXACT) == (wanted.name is None):
                raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"Match type {wanted.match_type} is wrong here.")
        if IP in types and len(types) > 1:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "Addresses cannot be combined with other entities.")
        return [
            (entry["entity"], entry["values"])
            for entry in self._settings.get(QUOTAS)
            if all(_matches(entry["entity"], wanted) for wanted in filters)
            and (not is_strict or len(entry["entity"]) == len(filters))
        ]

    def check(self, parts: Sequence[tuple[str, str | None]], changes: Sequence[Change]) -> None:
        """Check the changes of one entity.

        Raises:
            RequestRefusedError: INVALID_REQUEST, UNSUPPORTED_VERSION or INVALID_CONFIG for what means nothing.
        """
        entity = dict(parts)
        if not parts or len(entity) < len(parts) or (IP in entity and len(entity) > 1):
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "The entity is empty or contradicts itself.")
        for entity_type, name in parts:
            _check_type(entity_type)
            if name == "":
                raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"The name of the {entity_type} is empty.")
            if len(name or "") > MAX_ID_CHARS:
                problem = f"The name of the {entity_type} has more than {MAX_ID_CHARS} characters."
                raise RequestRefusedError(ErrorCode.INVALID_REQUEST, problem)
            if entity_type == IP and name is not None and not _is_address(name):
                raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"{name} is not an IP address.")
        for change in changes:
            _check_change(change, _IP_KEYS if IP in entity else _CLIENT_KEYS)

    def alter(self, wanted: Iterable[tuple[Entity, Sequence[Change]]]) -> None:
        """Change the quotas of entities, which `check` has let pass, all or none.

        Raises:
            RequestRefusedError: KAFKA_STORAGE_ERROR, the disk refused.
        """
        entries = {frozenset(entry["entity"].items()): entry for entry in self._settings.get(QUOTAS)}
        for entity, changes in wanted:
            before = entries.pop(frozenset(entity.items()), {"values": {}})
            values = dict(before["values"])
            for change in changes:
                if change.value is None:
                    values.pop(change.key, None)
                else:
                    values[change.key] = change.value
            if values:
                entries[frozenset(entity.items())] = {"entity": dict(entity), "values": values}
        self._settings.put(QUOTAS, list(entries.values()))


def _matches(entity: Entity, wanted: Filter) -> bool:
    if wanted.entity_type not in entity:
        return False
    return wanted.match_type == ANY or entity[wanted.entity_type] == wanted.name


def _address(name: str | None) -> str | None:
    """Return an address in the one form that sockets have, any other text as it is."""
    if name is None or not _is_address(name):
        return name
    return ipaddress.ip_address(name).compressed


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _check_type(entity_type: str) -> None:
    if not entity_type:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "The entity type is empty.")
    if entity_type not in (USER, CLIENT_ID, IP):
        raise RequestRefusedError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{entity_type}' not supported.")


def _check_change(change: Change, known_keys: Iterable[str]) -> None:
    if change.key not in known_keys:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {change.key}")
    if change.value is None:
        return
    is_whole = change.key in _FRACTIONAL_KEYS or change.value.is_integer()
    if not math.isfinite(change.value) or change.value <= 0 or not is_whole:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"{change.key}={change.value} is not a positive number.")
