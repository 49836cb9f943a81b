"""Access control: who may do what to which resource, decided as Kafka's StandardAuthorizer does.

    super user -> allowed      a deny that matches -> refused      an allow that matches -> allowed
    no entry for the resource -> allowed if `allow.everyone.if.no.acl.found` is on, which is this broker's default; not
    to users and their delegation tokens, which need an allow as soon as there is an entry at all

An entry is for one resource, for all of a type (name "*") or for names with a prefix; for one principal or "User:*";
for one host, a network ("10.0.0.0/8") or "*". A client that did not log in is "User:ANONYMOUS". Source: Kafka,
StandardAuthorizerData, KIP-290.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Final, NamedTuple

from kafkaprod.broker.calls.limits import MAX_ID_CHARS, MAX_TOPIC_NAME_CHARS
from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.settings.networks import NETWORK_MARK, address_of, network_of
from kafkaprod.broker.settings.prefixes import Prefixes
from kafkaprod.broker.settings.settings import ACLS, Settings
from kafkaprod.protocol.error_codes import ErrorCode

ANY = 1  # in filters, of all kinds

# Resource types.
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
CLUSTER_NAME = "kafka-cluster"
# Pattern types.
MATCH, LITERAL, PREFIXED = 2, 3, 4
# Operations.
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 2, 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, CREATE_TOKENS, DESCRIBE_TOKENS, TWO_PHASE_COMMIT = range(10, 16)
# Permissions.
DENY, ALLOW = 2, 3

MAX_CHANGES_OF_REQUEST: Final = 10_000
"""Kafka's MAX_RECORDS_PER_USER_OP."""
CHANGES_OF_STEP: Final = 2_000
"""Entries that are written at once: other requests wait meanwhile, in a cluster for the controller and the metadata."""
NEVER_OPEN: Final = frozenset({DELEGATION_TOKEN, USER})
"""Resources that need an allow where there are any entries, even if `allow.everyone.if.no.acl.found` is on: a right on
another user's tokens is a right to be that user."""
_MOST_CLIENTS_KEPT: Final = 1_000
WILDCARD = "*"
EVERYBODY = "User:*"
_OPERATIONS: Final = range(ALL, TWO_PHASE_COMMIT + 1)
_IMPLYING: Final[Mapping[int, frozenset[int]]] = {
    DESCRIBE: frozenset({READ, WRITE, DELETE, ALTER}),
    DESCRIBE_CONFIGS: frozenset({ALTER_CONFIGS}),
}
"""An allow of one of these is an allow of the key."""


class Acl(NamedTuple):
    """One entry."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class _Masks(NamedTuple):
    """Operations, a bit each."""

    denied: int
    allowed: int

    def __or__(self, other: _Masks) -> _Masks:
        return _Masks(self.denied | other.denied, self.allowed | other.allowed)

    def allow(self, operation: int) -> bool:
        """Tell whether an operation is allowed, and not refused."""
        return bool(self.allowed & ~self.denied & 1 << operation)


_NO_RIGHTS: Final = _Masks(0, 0)


def _masks_of(acl: Acl) -> _Masks:
    operations = _OPERATIONS if acl.operation == ALL else (acl.operation,)
    if acl.permission == DENY:
        return _Masks(sum(1 << operation for operation in operations), 0)
    implied = {wider for wider, implying in _IMPLYING.items() if not implying.isdisjoint(operations)}
    return _Masks(0, sum(1 << operation for operation in implied.union(operations)))


class AclFilter(NamedTuple):
    """Which entries to describe or delete; None and ANY match all."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        """Tell whether the entry is one of them."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type == MATCH:
            return self.name is None or covers(acl, self.name)
        return self.pattern_type in (ANY, acl.pattern_type) and self.name in (None, acl.name)


def covers(acl: Acl, name: str) -> bool:
    """Tell whether an entry is for the resource of this name."""
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, WILDCARD)


class ClientRights:
    """What the entries say of one client: bit sets of operations, refused and allowed. Any thread."""

    def __init__(self, acls: Iterable[Acl], host: str) -> None:
        """Take those of the entries for its principal that are for its host."""
        address = address_of(host)
        self._masks: defaultdict[tuple[int, int, str], _Masks] = defaultdict(lambda: _NO_RIGHTS)
        for acl in acls:
            network = network_of(acl.host)
            is_there = network is not None and address is not None and address in network
            if is_there or acl.host in (host, WILDCARD):
                self._masks[acl.resource_type, acl.pattern_type, acl.name] |= _masks_of(acl)
        self._prefixes = self._merged_prefixes()
        self._for_any: dict[tuple[int, int], bool] = {}

    def allow(self, operation: int, resource_type: int, name: str) -> bool:
        """Decide about a resource that has entries."""
        masks = self._masks.get((resource_type, LITERAL, name), _NO_RIGHTS)
        masks |= self._masks.get((resource_type, LITERAL, WILDCARD), _NO_RIGHTS)
        prefixes = self._prefixes.get(resource_type)
        if prefixes is not None and (prefix := prefixes.longest(name)) is not None:
            masks |= self._masks[resource_type, PREFIXED, prefix]
        return masks.allow(operation)

    def allow_any(self, operation: int, resource_type: int) -> bool:
        """Decide whether there is a resource of a type for which it is allowed."""
        decided = self._for_any.get((operation, resource_type))
        if decided is None:
            decided = self._for_any[operation, resource_type] = any(
                masks.allow(operation) and self.allow(operation, resource_type, name)
                for (kind, _, name), masks in list(self._masks.items())
                if kind == resource_type
            )
        return decided

    def _merged_prefixes(self) -> dict[int, Prefixes]:
        """Add to each prefix the rights of the shorter ones that begin it: only the longest one need be found."""
        names: defaultdict[int, list[str]] = defaultdict(list)
        for resource_type, pattern_type, name in self._masks:
            if pattern_type == PREFIXED:
                names[resource_type].append(name)
        found = {resource_type: Prefixes(texts) for resource_type, texts in names.items()}
        for resource_type, texts in names.items():
            for name in sorted(texts):  # the shorter ones come first
                shorter = found[resource_type].longest(name[:-1])
                if shorter is not None:
                    self._masks[resource_type, PREFIXED, name] |= self._masks[resource_type, PREFIXED, shorter]
        return found


class _Entries:
    """Entries, found by resource and by client without a look at each: a broker may have many."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self.all = tuple(acls)
        self._by_pattern: defaultdict[tuple[int, int, str], list[Acl]] = defaultdict(list)
        self._by_principal: defaultdict[str, list[Acl]] = defaultdict(list)
        prefixes: defaultdict[int, set[str]] = defaultdict(set)
        for acl in self.all:
            self._by_pattern[acl.resource_type, acl.pattern_type, acl.name].append(acl)
            self._by_principal[acl.principal].append(acl)
            if acl.pattern_type == PREFIXED:
                prefixes[acl.resource_type].add(acl.name)
        self._prefixes = {resource_type: Prefixes(names) for resource_type, names in prefixes.items()}
        self._clients: dict[tuple[str, str], ClientRights] = {}

    def covers(self, resource_type: int, name: str) -> bool:
        """Tell whether there is an entry for a resource: of its name, of one of its prefixes, or of all names."""
        prefixes = self._prefixes.get(resource_type)
        return (
            (resource_type, LITERAL, name) in self._by_pattern
            or (resource_type, LITERAL, WILDCARD) in self._by_pattern
            or (prefixes is not None and prefixes.longest(name) is not None)
        )

    def covering(self, resource_type: int, name: str) -> list[Acl]:
        """Return the entries for a resource: of its name, of its prefixes, and of all names."""
        prefixes = self._prefixes.get(resource_type)
        return [
            *self._of(resource_type, LITERAL, name),
            *(
                acl
                for prefix in (() if prefixes is None else prefixes.all_of(name))
                for acl in self._of(resource_type, PREFIXED, prefix)
            ),
            *(self._of(resource_type, LITERAL, WILDCARD) if name != WILDCARD else ()),
        ]

    def rights_of(self, principal: str, host: str) -> ClientRights:
        """Return what the entries say of a client: worked out once, and kept for the clients of late."""
        rights = self._clients.get((principal, host))
        if rights is None:
            if len(self._clients) >= _MOST_CLIENTS_KEPT:
                self._clients.clear()
            mine = (*self._by_principal.get(principal, ()), *self._by_principal.get(EVERYBODY, ()))
            rights = self._clients[principal, host] = ClientRights(mine, host)
        return rights

    def matching(self, wanted: AclFilter) -> Iterator[Acl]:
        """Return the entries that a filter matches."""
        possible: Iterable[Acl] = self.all
        if wanted.name is not None:
            possible = self._named(wanted, wanted.name)
        return (acl for acl in possible if wanted.matches(acl))

    def _named(self, wanted: AclFilter, name: str) -> Iterator[Acl]:
        for resource_type in range(TOPIC, USER + 1) if wanted.resource_type == ANY else (wanted.resource_type,):
            if wanted.pattern_type == MATCH:
                yield from self.covering(resource_type, name)
            else:
                yield from self._of(resource_type, LITERAL, name)
                yield from self._of(resource_type, PREFIXED, name)

    def _of(self, resource_type: int, pattern_type: int, name: str) -> Sequence[Acl]:
        return self._by_pattern.get((resource_type, pattern_type, name), ())


class Acls:
    """The entries, and the decisions. Changed on the control thread; decides on any."""

    def __init__(self, settings: Settings, super_users: Iterable[str], *, allows_if_none: bool) -> None:
        """Take the entries over.

        Args:
            settings: Keeps them.
            super_users: Principals that may do everything.
            allows_if_none: Everyone may do everything to resources without entries.
        """
        self._settings = settings
        self._super_users = frozenset(super_users)
        self._allows_if_none = allows_if_none
        self._known: tuple[Any, _Entries] = ((), _Entries(()))  # a section of the settings, and the entries in it

    @property
    def is_open(self) -> bool:
        """Everyone may do everything: there are no entries."""
        return self._allows_if_none and not self._entries.all

    @property
    def all(self) -> Sequence[Acl]:
        """The entries."""
        return self._entries.all

    def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the entries that a filter matches. Raises RequestRefusedError as `check_filter`."""
        check_filter(wanted)
        return list(self._entries.matching(wanted))

    def check_addition(self, acls: Iterable[Acl]) -> None:
        """Raise RequestRefusedError POLICY_VIOLATION if these would be more new entries than one request may make."""
        _check_count(len(set(acls).difference(self._entries.all)))

    def add(self, acls: Iterable[Acl]) -> None:
        """Add checked entries; those that exist are not doubled.

        Raises:
            RequestRefusedError: KAFKA_STORAGE_ERROR or REQUEST_TIMED_OUT, they could not be written.
        """
        self._put(dict.fromkeys((*self._entries.all, *acls)))

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove entries. Raises RequestRefusedError as `add`."""
        gone = frozenset(acls)
        self._put(acl for acl in self._entries.all if acl not in gone)

    def is_allowed(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Decide whether a principal at a host may do something to a resource."""
        if principal in self._super_users:
            return True
        entries = self._entries
        if not entries.covers(resource_type, name):
            return self._allows_if_none and (not entries.all or resource_type not in NEVER_OPEN)
        return entries.rights_of(principal, host).allow(operation, resource_type, name)

    def is_allowed_for_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Decide whether a principal may do something to some resource of a type (KIP-679)."""
        if principal in self._super_users or self.is_open:
            return True
        entries = self._entries
        has_allow = any(acl.resource_type == resource_type and acl.permission == ALLOW for acl in entries.all)
        if self._allows_if_none and not has_allow:
            return self.is_allowed(principal, host, operation, resource_type, WILDCARD)
        return entries.rights_of(principal, host).allow_any(operation, resource_type)

    @property
    def _entries(self) -> _Entries:
        """The entries; in a cluster other brokers change them, too."""
        section = self._settings.get(ACLS)
        known, entries = self._known
        if known is not section:
            entries = _Entries(map(Acl._make, section))
            self._known = (section, entries)
        return entries

    def _put(self, acls: Iterable[Acl]) -> None:
        self._settings.put(ACLS, list(acls))


def check_removal(acls: Sized) -> None:
    """Raise RequestRefusedError POLICY_VIOLATION if one request may not remove so many entries."""
    _check_count(len(acls))


def _check_count(changed: int) -> None:
    if changed > MAX_CHANGES_OF_REQUEST:
        text = (
            f"{changed} entries are more than the {MAX_CHANGES_OF_REQUEST} that one request may change: send several."
        )
        raise RequestRefusedError(ErrorCode.POLICY_VIOLATION, text)


def check_filter(wanted: AclFilter) -> None:
    """Raise RequestRefusedError INVALID_REQUEST if a filter holds a number that Kafka does not know."""
    known = (
        wanted.resource_type in (ANY, *range(TOPIC, USER + 1))
        and wanted.pattern_type in (ANY, MATCH, LITERAL, PREFIXED)
        and wanted.operation in (ANY, *_OPERATIONS)
        and wanted.permission in (ANY, DENY, ALLOW)
    )
    if not known:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "The filter contains UNKNOWN elements.")


def check_new(acl: Acl) -> None:
    """Raise RequestRefusedError INVALID_REQUEST or INVALID_PRINCIPAL_TYPE unless such an entry may be added."""
    problem = ""
    if acl.resource_type not in range(TOPIC, USER + 1) or acl.pattern_type not in (LITERAL, PREFIXED):
        problem = f"Resource type {acl.resource_type} or pattern type {acl.pattern_type} is wrong here."
    elif acl.operation not in _OPERATIONS or acl.permission not in (DENY, ALLOW):
        problem = f"Operation {acl.operation} or permission {acl.permission} is wrong here."
    elif not acl.name or (acl.resource_type == CLUSTER and acl.name != CLUSTER_NAME):
        problem = f"The resource name is empty, or not {CLUSTER_NAME!r} for the cluster."
    elif len(acl.name) > (most := MAX_TOPIC_NAME_CHARS if acl.resource_type == TOPIC else MAX_ID_CHARS):
        problem = f"The resource name has {len(acl.name)} characters, more than {most}: no such resource can exist."
    elif max(len(acl.principal), len(acl.host)) > MAX_ID_CHARS:
        problem = f"The principal or the host has more than {MAX_ID_CHARS} characters."
    elif not acl.host:
        problem = "The host is empty."
    elif NETWORK_MARK in acl.host and network_of(acl.host) is None:
        problem = f"Invalid CIDR notation: {acl.host!r}."
    if problem:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, problem)
    kind, colon, name = acl.principal.partition(":")
    if not colon or not kind or not name:
        raise RequestRefusedError(
            ErrorCode.INVALID_PRINCIPAL_TYPE, f"Could not parse principal {acl.principal!r}: not TYPE:NAME."
        )
