"""Requests with one odd field, or two: where the answers of an embedded broker, a cluster and Apache Kafka differ.

    python -m tests.campaigns.odd_requests [API ...] [--kafka] [--nodes 3] [--two 4000] [--seed 1] [--rights]

Each API is asked at its lowest, middle and highest version. A request is a sensible one in which one field has an odd
value: a limit of its type, a negative number, null, an empty, long or impossible name, nothing, a part twice. With
`--two` come so many in which two fields are odd.
An embedded broker stands beside an embedded cluster of three; with `--kafka` Apache Kafka beside an embedded broker, or
beside a cluster where `--nodes` is 3, and then has as many nodes. With `--rights` all are sent to a broker with closed
ACLs, by a user who has no right, and to a twin that never had what is secret: their answers must be the same.
Differences are counted by kind, with an example of each. Exit status 1 if a broker ends or loses a record, or if
something secret changes or is seen.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.server.router import HANDLERS
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import ArrayType, FixedType, ScalarType, StructType
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kafkaprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkaprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkaprod.protocol.messages.produce import ProduceResponse
from kafkaprod.protocol.schema import Request, Response, Struct
from tests.campaigns.rights import APIS, lone_broker
from tests.support.broker.broker_requests import produce_request
from tests.support.broker.fixtures_log import make_batch
from tests.support.broker.naming_requests import SECRET
from tests.support.broker.rights_world import BOB
from tests.support.broker.sensible_requests import requests_of
from tests.support.net.protocol_samples import extreme_number, kind_of
from tests.support.net.raw_client import RawClient, response_class_of

TOPIC: Final = "odd"
KEPT: Final = "kept"
KEPT_RECORDS: Final = 10
PATIENCE_S: Final = 2.5
STRANGE_ID: Final = uuid.UUID(int=77)
_ELSEWHERE: Final = frozenset((6, 16, 41))  # another broker leads, coordinates or controls
_TAKES_AWAY: Final = frozenset((ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.CREATE_PARTITIONS))
_LEFT_OUT: Final = frozenset((ApiKey.UNREGISTER_BROKER, ApiKey.WRITE_TXN_MARKERS))  # of brokers and their numbers
_UNSTABLE: Final = frozenset(
    (
        *("port", "host", "cluster_id", "member_id", "session_id", "throttle_time_ms", "producer_id", "leader"),
        *("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms", "log_append_time_ms", "timestamp"),
        *("token_id", "hmac", "node_id", "broker_id", "leader_id", "controller_id", "brokers", "node_endpoints"),
        *("replica_nodes", "isr_nodes", "offline_replicas", "leader_epoch", "partition_size", "total_bytes"),
        *("usable_bytes", "log_dir", "client_instance_id", "current_leader", "coordinator"),
    )
)
_WORDS: Final = frozenset(("error_message", "message"))


# -- requests ----------------------------------------------------------------------------------------------------------

Path = tuple[str | int, ...]
Change = tuple[Path, Any]


def changes(made: Struct, version: int, path: Path = ()) -> Iterator[Change]:
    """Yield where a request may be odd, and how."""
    for item in type(made).fields:
        if item.is_in(version):
            yield from _changes_of(getattr(made, item.name), item.type, version, (*path, item.name))


def _changes_of(value: Any, kind: Any, version: int, path: Path) -> Iterator[Change]:
    if isinstance(value, Struct):
        yield from changes(value, version, path)
        return
    if not isinstance(kind, type) and kind.is_nullable(version) and value is not None:
        yield path, None
    if isinstance(kind, ArrayType) and value:
        yield path, []
        yield path, [*value, *copy.deepcopy(value)]
        yield from _changes_of(value[0], kind.element, version, (*path, 0))
    elif isinstance(kind, FixedType | ScalarType) and not isinstance(kind, StructType):
        yield from ((path, odd) for odd in _odd_values(kind) if odd != value)


def _odd_values(kind: FixedType | ScalarType) -> list[Any]:
    if isinstance(kind, FixedType):
        if kind.format == "?":
            return [True, False]
        if kind.format == "d":
            return [-1.0, float("nan"), float("inf"), 0.0]
        return list(dict.fromkeys([extreme_number(kind.format, False), extreme_number(kind.format, True), 0, 1, 2, *(
            () if kind.format in "HI" else (-1, -2))]))  # fmt: skip
    batch = make_batch([b"v"])
    values: dict[str, list[Any]] = {
        "string": ["", "a/b", "x" * 300, "e\u0301\n\0", ".."],
        "uuid": [None, STRANGE_ID],
        "bytes": [b"", b"\xff" * 40],
        "records": [b"", b"\xff" * 40, bytes(batch)[:-1], bytes(batch) * 2],
    }
    return values[kind_of(kind)]


def with_changes(made: Request, odd: Sequence[Change]) -> Request | None:
    """Return a copy with odd fields; None: one is inside of what another one has taken away."""
    made = copy.deepcopy(made)
    for path, value in odd:
        place: Any = made
        try:
            for step in path[:-1]:
                place = place[step] if isinstance(step, int) else getattr(place, step)
            if isinstance(path[-1], int):
                place[path[-1]] = value
            else:
                setattr(place, path[-1], value)
        except (AttributeError, IndexError, TypeError):
            return None
    return made


def sensible(api: ApiKey, version: int, number: int, topic_id: uuid.UUID | None, topic: str) -> Request:
    """Return the request that is made odd."""
    name = f"new{number}" if api is ApiKey.CREATE_TOPICS else topic
    return next(requests_of(api, version, name, topic_id))


# -- brokers -----------------------------------------------------------------------------------------------------------


@dataclass
class OddWorld:
    """Asks a broker, or brokers of a cluster; connections are made again when they were closed."""

    name: str
    addresses: list[str]
    topic_id: uuid.UUID | None = None
    _clients: dict[str, RawClient] = field(default_factory=dict)

    def ask(self, request: Request, version: int) -> Response | str:
        """Return the answer of the broker that has one, or `silent` or `closed`."""
        answer: Response | str = ""
        for address in self.addresses:
            answer = self._ask(address, request, version)
            if isinstance(answer, str) or not _ELSEWHERE & set(_codes(answer)):
                break
        return answer

    def _ask(self, address: str, request: Request, version: int) -> Response | str:
        client = self._clients.get(address) or RawClient(address, patience_s=PATIENCE_S)
        self._clients[address] = client
        try:
            return client.call(request, response_class_of(request), version)
        except (TimeoutError, ConnectionError) as error:
            client.close()
            del self._clients[address]
            return "silent" if isinstance(error, TimeoutError) else "closed"

    def restore(self) -> None:
        """Make the topics that are not there, and fill the one that is kept."""
        for key_type in range(2):  # makes the internal topics
            for _ in range(600):
                if not next(_codes(self.ask(FindCoordinatorRequest(key=KEPT, key_type=key_type), 2)), -1):
                    break
                time.sleep(0.05)
            else:
                raise TimeoutError(f"no coordinator of kind {key_type} within 30 s")
        for name in (TOPIC, KEPT):
            new = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            answer = self.ask(CreateTopicsRequest(topics=[new], timeout_ms=9000), 5)
            assert isinstance(answer, CreateTopicsResponse), answer
            if name == KEPT and answer.topics[0].error_code == 0:
                while self._written() is not None:
                    pass
        found = self.ask(MetadataRequest(topics=None), 12)
        assert isinstance(found, MetadataResponse), f"{self.name} does not answer: {found}"
        self.topic_id = next((topic.topic_id for topic in found.topics if topic.name == TOPIC), None)

    def _written(self) -> str | None:
        answer = self.ask(produce_request(make_batch([b"v"] * KEPT_RECORDS), topic=KEPT), 9)
        is_written = isinstance(answer, ProduceResponse) and answer.responses[0].partition_responses[0].error_code == 0
        return None if is_written else str(answer)

    def kept(self) -> tuple[int, ...]:
        """Return the first and the next offset of the topic that is kept."""
        found = []
        for timestamp in (-2, -1):
            wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
            topic = ListOffsetsTopic(name=KEPT, partitions=[wanted])
            answer = self.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
            if not isinstance(answer, ListOffsetsResponse):
                return ()
            found.append(answer.topics[0].partitions[0].offset)
        return tuple(found)

    def versions(self) -> dict[int, tuple[int, int]]:
        """Return the announced versions."""
        answer = self.ask(ApiVersionsRequest(), 0)
        assert isinstance(answer, ApiVersionsResponse)
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


@contextmanager
def embedded(nodes: int) -> Iterator[OddWorld]:
    """Run an embedded broker, or a cluster."""
    if nodes == 1:
        with EmbeddedBroker(auto_create_topics=False, options={"node.id": 1}) as broker:
            yield OddWorld("broker", [broker.bootstrap_servers])
    else:
        with EmbeddedCluster(brokers=nodes, auto_create_topics=False, replication_factor=1) as cluster:
            yield OddWorld("cluster", [f"127.0.0.1:{broker.port}" for broker in cluster.brokers])


@contextmanager
def apache_kafka(nodes: int) -> Iterator[OddWorld]:
    """Run Apache Kafka."""
    from tests.kafka.cluster import KafkaCluster

    overrides: dict[str, str | int] = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": 1}
    overrides |= {"transaction.state.log.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
    with KafkaCluster(nodes, overrides=overrides) as cluster:
        yield OddWorld("Apache Kafka", cluster.bootstrap("PLAINTEXT").split(","))


# -- answers -----------------------------------------------------------------------------------------------------------


def _codes(answer: Any) -> Iterator[int]:
    for item in type(answer).fields:
        value = getattr(answer, item.name)
        if item.name.endswith("error_code"):
            yield value
        for element in value if isinstance(value, list) else [value]:
            if isinstance(element, Struct):
                yield from _codes(element)


def plain(answer: Any) -> Any:
    """Return an answer without what differs from broker to broker."""
    if isinstance(answer, list):
        return sorted((plain(each) for each in answer), key=repr)
    if isinstance(answer, uuid.UUID):
        return "id"
    if not isinstance(answer, Struct):
        return bytes(answer) if isinstance(answer, memoryview) else answer
    names = [item.name for item in type(answer).fields if item.name not in _UNSTABLE]
    return {name: plain(getattr(answer, name)) for name in names}


def differences(here: Any, there: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield where two answers differ, each time with what each has."""
    if isinstance(here, dict) and isinstance(there, dict):
        for name in here.keys() | there.keys():
            yield from differences(here.get(name), there.get(name), f"{path}.{name}")
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for one, other in zip(here, there, strict=True):
            yield from differences(one, other, path)
    elif here != there:
        yield path, here, there


@dataclass
class Counts:
    """What was tried, and what differed."""

    requests: int = 0
    equal: int = 0
    words: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def compare(self, request: Request, version: int, odd: Sequence[Change], answers: Sequence[Any]) -> None:
        """Count two answers to a request."""
        self.requests += 1
        found = list(differences(*map(plain, answers)))
        real = [each for each in found if each[0].rpartition(".")[2] not in _WORDS]
        self.equal += not found
        self.words += bool(found) and not real
        for path, here, there in real[:1]:
            shown = [f"{len(each)} elements" if isinstance(each, list) else f"{each!s:.40}" for each in (here, there)]
            kind = f"{request.api.name}{path}: {shown[0]} | {shown[1]}"
            self.kinds[kind] += 1
            fields = ", ".join(f"{'.'.join(map(str, place))}={str(value)[:60]!r}" for place, value in odd)
            self.examples.setdefault(kind, f"v{version} {fields}")

    def __str__(self) -> str:
        differ = sum(self.kinds.values())
        lines = [f"{self.requests} requests: {self.equal} equal, {self.words} but for words, {differ} differ"]
        lines += [f"{count:5} {kind}   ({self.examples[kind]})" for kind, count in sorted(self.kinds.items())]
        return "\n".join([*lines, *(f"FAULT {fault}" for fault in self.faults)])


def versions_of(low: int, high: int) -> list[int]:
    """Return the lowest, middle and highest version."""
    return sorted({low, (low + high) // 2, high})


def singles(
    apis: Sequence[ApiKey], announced: dict[int, tuple[int, int]]
) -> Iterator[tuple[ApiKey, int, list[Sequence[Change]]]]:
    """Yield what is odd, in one field each, for each API and version."""
    for api in apis:
        low, high = REQUESTS[api].versions
        lowest, highest = announced.get(api, (1, 0))
        low, high = max(low, lowest), min(high, highest, HANDLERS[api].MAX_VERSION)
        for version in versions_of(low, high) if low <= high else ():
            made = sensible(api, version, 0, STRANGE_ID, TOPIC)
            yield api, version, [[each] for each in changes(made, version)]


def beside(worlds: Sequence[OddWorld], apis: Sequence[ApiKey], two: int, seed: int) -> Counts:
    """Send everything to two worlds."""
    counts = Counts()
    rng = random.Random(seed)
    for world in worlds:
        world.restore()
    announced = [world.versions() for world in worlds]
    both = {
        key: (max(low, announced[1][key][0]), min(high, announced[1][key][1]))
        for key, (low, high) in announced[0].items()
        if key in announced[1]
    }
    cases = list(singles(apis, both))
    if two:
        share = two / sum(len(each) for _, _, each in cases)
        cases = [(api, version, _pairs(each, share, rng)) for api, version, each in cases]
    for number, (api, version, odd) in enumerate(cases):
        _send(counts, worlds, api, version, odd, number * 10_000)
        kept = [world.kept() for world in worlds]
        if kept != [(0, KEPT_RECORDS)] * 2:
            counts.faults.append(f"after {api.name} {version}: the kept records are {kept}")
        for world in worlds:
            world.restore()
    return counts


def _pairs(odd: list[Sequence[Change]], share: float, rng: random.Random) -> list[Sequence[Change]]:
    if len(odd) < 2:
        return []
    count = int(len(odd) * share + rng.random())
    return [[one[0], other[0]] for one, other in (rng.sample(odd, 2) for _ in range(count))]


def _send(
    counts: Counts, worlds: Sequence[OddWorld], api: ApiKey, version: int, odd: list[Sequence[Change]], first: int
) -> None:
    for number, change in enumerate(odd, first):
        answers = []
        # Ids of topics differ; names that nobody has used yet are made for both.
        base = sensible(api, version, number, STRANGE_ID, TOPIC)
        for world in worlds:
            made = with_changes(_with_id(base, world.topic_id), change)
            if made is None:
                break
            answers.append(world.ask(made, version))
        if len(answers) == 2:
            counts.compare(base, version, change, answers)
        if api in _TAKES_AWAY:
            for world in worlds:
                world.restore()


def _with_id(made: Any, topic_id: uuid.UUID | None) -> Any:
    """Return a request that names the topic of a world."""
    if isinstance(made, list):
        return [_with_id(each, topic_id) for each in made]
    if isinstance(made, Struct):
        return type(made)(**{item.name: _with_id(getattr(made, item.name), topic_id) for item in type(made).fields})
    return topic_id if made == STRANGE_ID else made


def without_rights(apis: Sequence[ApiKey]) -> Counts:
    """Send everything as a user without rights, to a broker that has something secret and to a twin."""
    counts = Counts()
    with lone_broker(has_secrets=True) as there, lone_broker(has_secrets=False) as twin:
        announced = {api: (REQUESTS[api].versions[0], HANDLERS[api].MAX_VERSION) for api in apis}
        before = there.secrets()
        for api, version, odd in singles(apis, {int(api): each for api, each in announced.items()}):
            for number, change in enumerate(odd):
                made = with_changes(sensible(api, version, number, None, SECRET), change)
                if made is not None:
                    answers = [world.plain(world.answer(BOB, 0, made, version), version) for world in (there, twin)]
                    counts.compare(made, version, change, answers)
            if (now := there.secrets()) != before:
                counts.faults.append(f"{api.name} {version}: {before} became {now}")
                before = now
    counts.faults += [f"a secret is seen: {kind}" for kind in counts.kinds]
    return counts


def main() -> int:
    """Run as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.odd_requests", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("apis", nargs="*", metavar="API")
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--nodes", type=int, default=1, help="of Apache Kafka and of the embedded cluster beside it")
    parser.add_argument("--two", type=int, default=0, help="requests with two odd fields, instead of all with one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rights", action="store_true", help="a user without rights, instead")
    options = parser.parse_args()
    apis = [api for api in APIS if api not in _LEFT_OUT and (not options.apis or api.name in options.apis)]
    if options.rights:
        counts = without_rights(apis)
    else:
        with ExitStack() as stack:
            here = stack.enter_context(embedded(options.nodes))
            there = stack.enter_context(apache_kafka(options.nodes) if options.kafka else embedded(3))
            counts = beside([here, there], apis, options.two, options.seed)
    print(counts)
    return 1 if counts.faults else 0


if __name__ == "__main__":
    sys.exit(main())
