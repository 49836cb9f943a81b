"""A broker or cluster, of any kind, with what `ALICE` may use and, if wanted, what only root may.

Everything goes over the protocol, so that the same works with the embedded broker and with Apache Kafka.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kafkaprod.broker.settings import acls
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.frames import encode_request, split_response
from kafkaprod.protocol.messages import RESPONSES
from kafkaprod.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from kafkaprod.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaprod.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kafkaprod.protocol.messages.describe_delegation_token import DescribedDelegationToken
from kafkaprod.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafkaprod.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkaprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafkaprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from kafkaprod.protocol.messages.produce import ProduceResponse
from kafkaprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkaprod.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafkaprod.protocol.schema import Request, Response, Struct
from tests.support.broker.broker_requests import produce_request
from tests.support.broker.fixtures_log import make_batch
from tests.support.broker.naming_requests import MARKS, MINE, PRODUCER_MARK, SECRET
from tests.support.broker.rights_tokens import RightsTokens
from tests.support.net.raw_client import RawClient

ALICE, BOB, ROOT = "alice", "bob", "root"
"""Who may use what is `MINE`, who has no right at all, who may do everything."""
TOKEN: Final = "alice by token"
"""Alice, logged in with a delegation token."""
PASSWORDS: Final = {ALICE: "alice-secret", BOB: "bob-secret", ROOT: "root-secret"}
ACL_OPTIONS: Final[Mapping[str, str | bool]] = {
    "super.users": f"User:{ROOT}",
    "allow.everyone.if.no.acl.found": False,
    "delegation.token.secret.key": "of all tokens",
}
PATIENCE_S: Final = 20.0
SILENCE_S: Final = 5.0
"""How long an answer to a request of Alice or Bob is waited for."""
SILENCE_OF_APIS_S: Final = {ApiKey.ALTER_CONFIGS: 0.7}  # Apache Kafka leaves some without an answer
_UNSTABLE: Final = frozenset(
    (
        *("port", "host", "cluster_id", "member_id", "session_id", "throttle_time_ms", "error_message", "records"),
        "producer_id",  # in a cluster each broker has a block of its own
        *("token_id", "hmac", "issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"),
        *("issue_timestamp", "expiry_timestamp", "max_timestamp"),
    )
)
"""Fields that differ though all is the same."""

ResponseT = TypeVar("ResponseT", bound=Response)


class Door(NamedTuple):
    """How a user comes in: one address for each broker; no login if the address is for that user alone."""

    addresses: Sequence[str]
    has_login: bool = True


class RightsWorld:
    """See the module docstring. One thread.

    Attributes:
        ids: The ids of the topics that it made.
        tokens: Its delegation tokens.
    """

    tokens: RightsTokens

    def __init__(self, doors: dict[str, Door], *, has_secrets: bool, wait: Callable[[], object] = lambda: None) -> None:
        """Make topics, groups, transactional ids and ACLs.

        Args:
            doors: How each user comes in.
            has_secrets: Make what only root may use, too.
            wait: Returns when all brokers know of a change.
        """
        self.ids: dict[str, uuid.UUID] = {}
        self._producer_ids: dict[str, int] = {}
        self._doors = doors
        self._wait = wait
        self._has_secrets = has_secrets
        self._clients: dict[tuple[str, int], RawClient] = {}
        for key_type in range(2):  # makes the internal topics
            self.ask(FindCoordinatorRequest(key=MINE, key_type=key_type), FindCoordinatorResponse, 2)
        self.restore()
        for resource_type in (acls.TOPIC, acls.GROUP, acls.TRANSACTIONAL_ID):
            self._allow(resource_type, MINE, acls.ALL)
        for operation in (acls.CREATE_TOKENS, acls.DESCRIBE_TOKENS):
            self._allow(acls.USER, f"User:{MINE}", operation)
        for name in (MINE, SECRET) if has_secrets else (MINE, "another"):  # as many producer ids with and without
            self._begin_transactions(name)
        if has_secrets:  # what is Alice's has to do with what is not
            self.commit(MINE, SECRET)
        self._wait()
        self.tokens = RightsTokens(self, (ALICE, BOB, ROOT), has_secrets=has_secrets, wait=wait)

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()

    def restore(self) -> None:
        """Make topics and offsets again that are gone."""
        described = self.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse, 12)
        there = {topic.name: topic.topic_id for topic in described.topics}
        missing = [name for name in self._names() if name not in there]
        if missing:
            nodes = sorted(broker.node_id for broker in described.brokers)
            places = {MINE: nodes[0], SECRET: nodes[-1]}
            topics = [
                CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[places[name]])],
                )
                for name in missing
            ]
            made = self.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), CreateTopicsResponse, 7)
            assert not [topic for topic in made.topics if topic.error_code], made
            there.update({topic.name: topic.topic_id for topic in made.topics})
            self._wait()
            for name in missing:
                self._until_done(lambda name=name: self._produce(name))  # type: ignore[misc]
        self.ids = {name: known for name in self._names() if (known := there[name]) is not None}
        for name in self._names():
            if name in missing or name not in str(self._offsets(name)):
                self.commit(name, name)

    def answer(self, user: str, node: int, request: Request, version: int) -> Response | str:
        """Return what a user gets from a broker: an answer, or "closed", or "silent"."""
        frame = b"".join(map(bytes, encode_request(request, version, 1, "client")))
        for name, mark in MARKS.items():
            if name in self.ids:
                frame = frame.replace(mark, self.ids[name].bytes)
        frame = self.tokens.fill(frame)
        frame = frame.replace(PRODUCER_MARK.to_bytes(8, "big"), self._producer_ids[MINE].to_bytes(8, "big"))
        try:
            client = self._client(user, node)
            client.socket.settimeout(SILENCE_OF_APIS_S.get(request.api, SILENCE_S))
            client.socket.sendall(frame)
            response_class = RESPONSES[request.api]
            _, body = split_response(client.receive_frame(), request.api, response_class.is_flexible(version))
            return response_class.decode(body, version)
        except OSError as error:
            self._clients.pop((user, node)).close()
            return "silent" if isinstance(error, TimeoutError) else "closed"

    def plain(self, answer: Response | str, version: int) -> Any:
        """Return an answer as text and numbers that are the same in worlds that are the same."""
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return answer if isinstance(answer, str) else _plain(answer, version, names)

    def secrets(self) -> object:
        """Return what Alice and Bob must not change."""
        offsets = [
            self.ask(
                ListOffsetsRequest(
                    topics=[ListOffsetsTopic(name=SECRET, partitions=[ListOffsetsPartition(timestamp=timestamp)])]
                ),
                ListOffsetsResponse,
                7,
            )
            .topics[0]
            .partitions[0]
            .offset
            for timestamp in (-1, -2)
        ]
        wanted = DescribeTransactionsRequest(transactional_ids=[SECRET])
        transaction = self.ask(wanted, DescribeTransactionsResponse, 0).transaction_states
        everything = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        entries = self.ask(everything, DescribeAclsResponse, 3).resources
        described = self.ask(MetadataRequest(topics=None), MetadataResponse, 12).topics
        ids = {topic.name: topic.topic_id for topic in described if not topic.is_internal and topic.name != MINE}
        return (
            *(offsets, str(self._offsets(SECRET)), str(transaction), sorted(map(str, entries)), ids),
            self.tokens.secrets(),
        )

    def ask(self, request: Request, response_class: type[ResponseT], version: int) -> ResponseT:
        """Ask as root, each broker until one knows better than that another is the one."""
        answers: list[ResponseT] = []

        def has_answer() -> bool:
            for node in range(len(self._doors[ROOT].addresses)):
                client = self._client(ROOT, node)
                client.socket.settimeout(PATIENCE_S)
                answer = client.call(request, response_class, version)
                if not _TRY_ANOTHER & set(error_codes(answer)):
                    answers.append(answer)
                    return True
            return False

        self._until_done(has_answer)
        return answers[0]

    def call(self, user: str, request: Request, response_class: type[ResponseT], version: int) -> ResponseT:
        """Ask the first broker as a user."""
        client = self._client(user, 0)
        client.socket.settimeout(PATIENCE_S)
        return client.call(request, response_class, version)

    def commit(self, group: str, topic: str) -> None:
        """Commit an offset of the topic's only partition."""
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        assert self.ask(request, OffsetCommitResponse, 7).topics[0].partitions[0].error_code == 0

    def _names(self) -> list[str]:
        return [MINE, SECRET] if self._has_secrets else [MINE]

    def _produce(self, name: str) -> bool:
        answer = self.ask(produce_request(make_batch(), topic=name), ProduceResponse, 9)
        return answer.responses[0].partition_responses[0].error_code == 0

    def _offsets(self, group: str) -> OffsetFetchResponse:
        return self.ask(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]), OffsetFetchResponse, 8
        )

    def _begin_transactions(self, name: str) -> None:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)

        def has_begun() -> bool:
            answer = self.ask(request, InitProducerIdResponse, 4)
            self._producer_ids[name] = answer.producer_id
            return answer.error_code == 0

        self._until_done(has_begun)

    def _allow(self, resource_type: int, name: str, operation: int) -> None:
        entry = AclCreation(
            resource_type=resource_type,
            resource_name=name,
            resource_pattern_type=acls.LITERAL,
            principal=f"User:{ALICE}",
            host="*",
            operation=operation,
            permission_type=acls.ALLOW,
        )
        answer = self.ask(CreateAclsRequest(creations=[entry]), CreateAclsResponse, 3)
        assert answer.results[0].error_code == 0, answer

    def _until_done(self, is_done: Callable[[], bool]) -> None:
        ends_s = time.monotonic() + PATIENCE_S
        while not is_done():
            assert time.monotonic() < ends_s, "no broker does it"
            time.sleep(0.01)

    def _client(self, user: str, node: int) -> RawClient:
        client = self._clients.get((user, node))
        if client is None:
            door = self._doors[user]
            client = RawClient(door.addresses[node], patience_s=PATIENCE_S)
            if user == TOKEN:
                self.tokens.log_in(client)
            elif door.has_login:
                log_in(client, user)
            self._clients[user, node] = client
        return client


_TRY_ANOTHER: Final = {
    *(ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    *(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
}


def log_in(client: RawClient, user: str) -> None:
    """Log in by PLAIN."""
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
    token = f"\0{user}\0{PASSWORDS[user]}".encode()
    answer = client.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 1)
    assert answer.error_code == 0, answer


def error_codes(message: Any) -> Iterator[int]:
    """Yield every error code in an answer."""
    for item in type(message).fields:
        value = getattr(message, item.name)
        if item.name.endswith("error_code"):
            yield value
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, Struct):
                    yield from error_codes(element)


def _plain(value: Any, version: int, names: dict[uuid.UUID, str]) -> Any:
    if isinstance(value, Struct):
        return {
            item.name: "" if item.name in _UNSTABLE else _plain(getattr(value, item.name), version, names)
            for item in type(value).fields
            if item.is_in(version)
        }
    if isinstance(value, list):
        elements = [_plain(element, version, names) for element in value]
        # Tokens come in the order of their ids, which are random.
        return sorted(elements, key=str) if value and isinstance(value[0], DescribedDelegationToken) else elements
    if isinstance(value, uuid.UUID):
        return f"id of {names[value]}" if value in names else str(value)
    return bytes(value) if isinstance(value, bytearray | memoryview) else value
