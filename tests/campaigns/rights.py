"""What users may do to what is not theirs: the embedded broker, a cluster of three, Apache Kafka.

    python -m tests.campaigns.rights [API ...] [--kafka] [--most 120]

Every announced version of every API is sent with every combination of its naming fields (`naming_requests`), as a user
with a right to some and as one without any, to each broker.

Without `--kafka`: to a broker and to a cluster of three, each beside a twin that never had the secret resources. The
answers must be the same, and nothing secret may have changed.
With `--kafka`: to a broker and to Apache Kafka with the same ACLs. Which parts of a request were refused for want of a
right must be the same, what is shown must be, and nothing secret may have changed there either.
Exit status 1 if there are differences that `EXPLAINED` does not name.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.server.router import HANDLERS, LOGIN_APIS, METRICS_APIS, PEER_APIS
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.schema import Request, Response, Struct
from tests.support.broker.naming_requests import HMAC_MARKS, MARKS, MOST_COMBINATIONS, SECRET, requests
from tests.support.broker.rights_world import ACL_OPTIONS, ALICE, BOB, PASSWORDS, ROOT, TOKEN, Door, RightsWorld

APIS: Final = sorted(set(HANDLERS) - PEER_APIS - LOGIN_APIS - METRICS_APIS - {ApiKey.API_VERSIONS})
USERS: Final = (BOB, ALICE)
TOKEN_APIS: Final = frozenset(
    (
        *(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN),
        *(ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN),
    )
)
"""What is also sent by Alice logged in with a token."""
MOST_SHOWN: Final = 1_500
"""Characters of an example."""
_SHOWN_S: Final = 5.0
EXPLAINED: Final[Mapping[str, str]] = {
    "refused by both: ": "nothing is done and nothing shown; only which of two faults is named differs",
    "ALTER_CONFIGS: silent": "Apache Kafka leaves a request that names a resource twice without an answer",
    "DESCRIBE_USER_SCRAM_CREDENTIALS: silent": "the same of a request without users, to whoever may not describe them",
}
"""Beginning of a kind of difference -> why it is right."""
_RIGHTS: Final = frozenset(
    (
        *(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        *(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        *(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    )
)


def explanation(kind: str) -> str:
    """Return why a difference is right; empty if nothing explains it."""
    return next((why for begin, why in EXPLAINED.items() if kind.startswith(begin)), "")


@dataclass
class Counts:
    """What was tried.

    Attributes:
        requests: Sent, to one broker each.
        refused: Answers that name a missing right somewhere.
        allowed: All others.
        changed: Secret things that a request changed.
        different: Kind of difference -> how often.
    """

    requests: int = 0
    refused: int = 0
    allowed: int = 0
    changed: list[str] = field(default_factory=list)
    different: Counter[str] = field(default_factory=Counter)

    def note(self, kind: str, example: str) -> None:
        """Count a difference, and show the first of its kind."""
        self.different[kind] += 1
        if self.different[kind] == 1 and not explanation(kind):
            print(f"{kind}\n    {example[:MOST_SHOWN]}", file=sys.stderr, flush=True)

    def count(self, answer: Any) -> None:
        """Count an answer."""
        self.requests += 1
        if isinstance(answer, str) or not _RIGHTS & {code for _, code in parts(answer)}:
            self.allowed += 1
        else:
            self.refused += 1

    def __str__(self) -> str:
        return (
            f"{self.requests} requests, {self.refused} refused for want of a right, {self.allowed} not,"
            f" {sum(self.different.values())} differences of {len(self.different)} kinds,"
            f" {len(self.changed)} secret things changed"
        )


# -- the worlds --------------------------------------------------------------------------------------------------------


def check(counts: Counts) -> None:
    """Check that nothing was learned or changed, and that there was enough to refuse and to allow."""
    assert counts.changed == []
    assert [kind for kind in counts.different if not explanation(kind)] == []
    assert counts.refused > 100
    assert counts.allowed > 100


def _doors(addresses: Sequence[str]) -> dict[str, Door]:
    return {user: Door(addresses) for user in (*PASSWORDS, TOKEN)}


@contextmanager
def lone_broker(*, has_secrets: bool) -> Iterator[RightsWorld]:
    """Run one embedded broker."""
    with EmbeddedBroker(sasl_users=PASSWORDS, auto_create_topics=False, options=ACL_OPTIONS) as broker:
        world = RightsWorld(_doors([broker.bootstrap_servers]), has_secrets=has_secrets)
        yield world
        world.close()


@contextmanager
def cluster_of_three(*, has_secrets: bool) -> Iterator[RightsWorld]:
    """Run an embedded cluster, in which a topic has one replica: most brokers do not hold it."""
    with EmbeddedCluster(
        sasl_users=PASSWORDS, auto_create_topics=False, replication_factor=1, options=ACL_OPTIONS
    ) as cluster:
        addresses = [f"127.0.0.1:{broker.port}" for broker in cluster.brokers]
        world = RightsWorld(_doors(addresses), has_secrets=has_secrets, wait=cluster.wait_until_applied)
        yield world
        world.close()


@contextmanager
def apache_kafka() -> Iterator[RightsWorld]:
    """Run one node of Apache Kafka with its StandardAuthorizer."""
    from tests.kafka.cluster import KafkaCluster

    overrides: dict[str, str | int] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{ROOT}",  # the first one at the inner listener
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            + " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
            + ";"
        ),
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }
    with KafkaCluster(1, listeners=("SASL_PLAINTEXT",), overrides=overrides) as cluster:
        world = RightsWorld(_doors([cluster.bootstrap("SASL_PLAINTEXT")]), has_secrets=True)
        yield world
        world.close()


# -- beside a twin without secrets -------------------------------------------------------------------------------------


def beside_twin(make: Any, nodes: int, apis: Sequence[ApiKey], most: int) -> Counts:
    """Send everything to a world with secrets and to one without."""
    counts = Counts()
    with make(has_secrets=True) as there, make(has_secrets=False) as twin:
        for api in apis:
            low, high = REQUESTS[api].versions
            for version in range(low, min(high, HANDLERS[api].MAX_VERSION) + 1):
                for user in users_of(api):
                    _send_to_twins(counts, (there, twin), api, version, user, nodes, most)
    return counts


def _send_to_twins(
    counts: Counts, worlds: tuple[RightsWorld, RightsWorld], api: ApiKey, version: int, user: str, nodes: int, most: int
) -> None:
    there = worlds[0]
    for world in worlds:
        world.restore()
    before = there.secrets()
    for number, request in enumerate(requests(api, version, _marked_id(SECRET), most)):
        node = number % nodes
        answers = [world.answer(user, node, request, version) for world in worlds]
        counts.count(answers[0])
        plain = [world.plain(answer, version) for world, answer in zip(worlds, answers, strict=True)]
        encoded = bytes(request.encode(version))
        if MARKS[SECRET] in encoded or HMAC_MARKS[SECRET] in encoded:
            # Whoever has the id or the HMAC may learn that it exists, as in Kafka.
            is_different = SECRET in str(plain[0]).replace(f"id of {SECRET}", "") and SECRET not in str(request)
        else:
            is_different = plain[0] != plain[1]
        if is_different:
            counts.note(f"{api.name} {version} {user}", f"{request}: {plain[0]} and {plain[1]}")
        if _CHANGING & {api} and user == ALICE:
            for world in worlds:
                world.restore()
        if api is ApiKey.EXPIRE_DELEGATION_TOKEN:
            for world in worlds:
                world.tokens.restore()
    if there.secrets() != before:
        counts.changed.append(f"{api.name} {version} {user}: {before} became {there.secrets()}")


_CHANGING: Final = {ApiKey.DELETE_TOPICS, ApiKey.CREATE_TOPICS, ApiKey.DELETE_GROUPS}


def users_of(api: ApiKey) -> tuple[str, ...]:
    """Return who sends requests of an API."""
    return (*USERS, TOKEN) if api in TOKEN_APIS else USERS


def _marked_id(name: str) -> Any:
    import uuid

    return uuid.UUID(bytes=MARKS[name])


# -- beside Apache Kafka -----------------------------------------------------------------------------------------------


def beside_kafka(apis: Sequence[ApiKey], most: int) -> Counts:
    """Send everything to an embedded broker and to Apache Kafka."""
    counts = Counts()
    with ExitStack() as stack:
        kafka = stack.enter_context(apache_kafka())
        own = stack.enter_context(lone_broker(has_secrets=True))
        announced = versions_of(kafka)
        for api in apis:
            low, high = REQUESTS[api].versions
            lowest, highest = announced.get(api, (1, 0))
            for version in range(max(low, lowest), min(high, highest, HANDLERS[api].MAX_VERSION) + 1):
                for user in users_of(api):
                    _send_to_both(counts, kafka, own, api, version, user, most)
    return counts


def versions_of(world: RightsWorld) -> dict[int, tuple[int, int]]:
    """Return the versions that a world announces."""
    keys = world.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).api_keys
    return {each.api_key: (each.min_version, each.max_version) for each in keys}


def _send_to_both(
    counts: Counts, kafka: RightsWorld, own: RightsWorld, api: ApiKey, version: int, user: str, most: int
) -> None:
    worlds = (kafka, own)
    for world in worlds:
        world.restore()
    if api in TOKEN_APIS:
        _await_tokens(kafka, own)
    before = [world.secrets() for world in worlds]
    for request in requests(api, version, _marked_id(SECRET), most):
        answers = [world.answer(user, 0, request, version) for world in worlds]
        counts.count(answers[1])
        for kind in differences(api, worlds, answers, request):
            counts.note(kind, f"v{version} {user} {request}: Kafka {answers[0]}, own {answers[1]}")
        if _CHANGING & {api} and user == ALICE:
            for world in worlds:
                world.restore()
        if api is ApiKey.EXPIRE_DELEGATION_TOKEN:
            for world in worlds:
                world.tokens.restore()
    for name, world, former in zip(("Kafka", "own"), worlds, before, strict=True):
        if (now := world.secrets()) != former:
            counts.changed.append(f"{name}: {api.name} {version} {user}: {former} became {now}")


def _await_tokens(kafka: RightsWorld, own: RightsWorld) -> None:
    """Wait until Apache Kafka shows the tokens that it has made; more than 5 s are a difference."""
    ends_s = time.monotonic() + _SHOWN_S
    while kafka.tokens.count() < own.tokens.count() and time.monotonic() < ends_s:
        time.sleep(0.02)


def differences(
    api: ApiKey, worlds: Sequence[RightsWorld], answers: Sequence[Response | str], request: Request
) -> Iterator[str]:
    """Yield how two answers differ about rights and about what is shown."""
    if isinstance(answers[0], str) or isinstance(answers[1], str):
        if answers[0] != answers[1]:
            shown = [each if isinstance(each, str) else _codes(code for _, code in parts(each)) for each in answers]
            yield f"{api.name}: {shown[0]} and {shown[1]}"
        return
    kafka, own = (
        _by_name(parts(answer, {topic_id: name for name, topic_id in world.ids.items()}))
        for world, answer in zip(worlds, answers, strict=True)
        if not isinstance(answer, str)
    )
    for name in sorted(kafka.keys() | own.keys()):
        theirs, ours = kafka.get(name, set()), own.get(name, set())
        if theirs == ours:
            continue
        if name.endswith(":operations"):
            if theirs and ours:
                yield f"{api.name}: operations {_codes(theirs)} and {_codes(ours)}"
        elif _RIGHTS & (theirs | ours) or api is ApiKey.DESCRIBE_DELEGATION_TOKEN:
            is_refused_by_both = 0 not in theirs | ours
            yield f"{'refused by both: ' if is_refused_by_both else ''}{api.name}: {_codes(theirs)} and {_codes(ours)}"


def _by_name(found: Iterable[tuple[str, int]]) -> dict[str, set[int]]:
    """Return the codes of each named part: some brokers answer a part once that a request names twice."""
    codes: dict[str, set[int]] = {}
    for name, code in found:
        codes.setdefault(name, set()).add(code)
    return codes


def _codes(codes: Iterable[int]) -> str:
    return ", ".join(sorted({str(_CODES.get(code, code)) for code in codes})) or "nothing"


_CODES: Final = {int(code): code.name for code in ErrorCode}
_NAMES: Final = frozenset(
    (
        *("name", "topic", "topic_name", "group_id", "group", "key", "transactional_id", "resource_name"),
        *("topic_id", "user", "entity_name", "member_id", "principal_name"),
    )
)


def parts(answer: Struct, names: Mapping[Any, str] | None = None, place: str = "") -> list[tuple[str, int]]:
    """Return each named part of an answer with its error code, or the error code of the part that it is in."""
    found: list[tuple[str, int]] = []
    named = [getattr(answer, item.name) for item in type(answer).fields if item.name in _NAMES]
    for value in named:
        if value not in (None, ""):
            place = f"{place}{(names or {}).get(value, value)}"
    for item in type(answer).fields:
        value = getattr(answer, item.name)
        if item.name in ("error_code", "partition_error_code"):
            found.append((place, value))
        elif item.name.endswith("authorized_operations"):
            found.append((f"{place}:operations", value))
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, Struct):
                    inner = parts(element, names, f"{place}/")
                    found.extend(inner or [(place, 0)])
    if not found and named and place:
        found.append((place, 0))
    return found


def main() -> int:
    """Print what was found; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("apis", nargs="*", metavar="API")
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--most", type=int, default=MOST_COMBINATIONS, help="combinations of names of a version")
    options = parser.parse_args()
    apis = [api for api in APIS if not options.apis or api.name in options.apis]
    runs: dict[str, Callable[[Sequence[ApiKey], int], Counts]]
    runs = {"one broker": partial(beside_twin, lone_broker, 1), "a cluster": partial(beside_twin, cluster_of_three, 3)}
    if options.kafka:
        runs = {"Apache Kafka": beside_kafka}
    is_bad = False
    for name, run in runs.items():
        counts = run(apis, options.most)
        print(f"{name}: {counts}")
        for kind, count in sorted(counts.different.items()):
            why = explanation(kind)
            is_bad |= not why
            print(f"  {count:6} {kind}{f' ({why})' if why else ''}")
        for change in counts.changed:
            print(f"  changed: {change}")
        is_bad |= bool(counts.changed)
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
