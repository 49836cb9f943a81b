"""Access control: who may do what to which resource, decided as Kafka's StandardAuthorizer does.

    super user -> allowed      a deny that matches -> refused      an allow that matches -> allowed
    no entry for the resource -> allowed if `allow.everyone.if.no.acl.found` is on, which is this broker's default

An entry is for one resource, for all of a type (name "*") or for names with a prefix; for one principal or "User:*";
for one host or "*". A client that did not log in is "User:ANONYMOUS". Source: Kafka, StandardAuthorizerData, KIP-290.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Final, NamedTuple

from kafkaprod.broker.calls.refusal import RequestRefusedError
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


class _Entries:
    """Entries, found by resource without a look at each: a broker may have many, and a request name many resources."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self.all = tuple(acls)
        self._by_pattern: defaultdict[tuple[int, int, str], list[Acl]] = defaultdict(list)
        self._prefix_lengths: defaultdict[int, set[int]] = defaultdict(set)
        for acl in self.all:
            self._by_pattern[acl.resource_type, acl.pattern_type, acl.name].append(acl)
            if acl.pattern_type == PREFIXED:
                self._prefix_lengths[acl.resource_type].add(len(acl.name))

    def covering(self, resource_type: int, name: str) -> list[Acl]:
        """Return the entries for a resource: of its name, of its prefixes, and of all names."""
        prefixes = [name[:length] for length in self._prefix_lengths.get(resource_type, ()) if length <= len(name)]
        return [
            *self._of(resource_type, LITERAL, name),
            *(acl for prefix in prefixes for acl in self._of(resource_type, PREFIXED, prefix)),
            *(self._of(resource_type, LITERAL, WILDCARD) if name != WILDCARD else ()),
        ]

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
        matching = self._entries.covering(resource_type, name)
        if not matching:
            return self._allows_if_none
        return self._decide(matching, principal, host, operation)

    def is_allowed_for_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Decide whether a principal may do something to some resource of a type (KIP-679)."""
        if principal in self._super_users or self.is_open:
            return True
        names = {
            acl.name for acl in self._entries.all if acl.resource_type == resource_type and acl.permission == ALLOW
        }
        if self._allows_if_none and not names:
            return self.is_allowed(principal, host, operation, resource_type, WILDCARD)
        return any(self.is_allowed(principal, host, operation, resource_type, name) for name in names)

    def _decide(self, matching: Iterable[Acl], principal: str, host: str, operation: int) -> bool:
        is_allowed = False
        for acl in matching:
            if acl.principal not in (principal, EVERYBODY) or acl.host not in (host, WILDCARD):
                continue
            if acl.permission == DENY:
                if acl.operation in (operation, ALL):
                    return False
            elif acl.operation in (operation, ALL) or acl.operation in _IMPLYING.get(operation, ()):
                is_allowed = True
        return is_allowed

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
    elif not acl.host:
        problem = "The host is empty."
    if problem:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, problem)
    kind, colon, name = acl.principal.partition(":")
    if not colon or not kind or not name:
        raise RequestRefusedError(
            ErrorCode.INVALID_PRINCIPAL_TYPE, f"Could not parse principal {acl.principal!r}: not TYPE:NAME."
        )
