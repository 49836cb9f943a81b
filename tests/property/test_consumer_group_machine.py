"""Any history of members, topics and time: no partition is used twice, and in the end everything is assigned."""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.coordinator.consumer_group import ConsumerGroup
from kafkaprod.broker.coordinator.consumer_group_config import ConsumerGroupConfig
from kafkaprod.broker.coordinator.consumer_member import MemberState
from kafkaprod.broker.coordinator.regex_subscriptions import Topics
from kafkaprod.protocol.error_codes import ErrorCode
from tests.support.broker.consumer_member import Client, partitions, topics

INSTANCES = st.sampled_from([None, None, "i", "j"])
NAMES = st.sets(st.sampled_from(["x", "y", "z"]), min_size=1)
BEGIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID)


def no_match(_: str, __: Topics) -> frozenset[str]:
    return frozenset()


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Clients that keep the protocol, lose answers, restart and die; a group that is made again of its records."""

    @initialize()
    def open(self) -> None:
        self.group = ConsumerGroup("g", ConsumerGroupConfig(), no_match)
        self.records: dict[bytes, bytes] = {}
        self.counts = {"x": 1, "y": 3}
        self.topics = topics(self.counts)
        self.clients: list[Client] = []
        self.numbers = count()
        self.now_ms = 0

    def beat(self, client: Client) -> None:
        try:
            client.beat(self.group, self.topics, self.now_ms)
        except RequestRefusedError as error:
            if error.code not in (*BEGIN_AGAIN, ErrorCode.UNRELEASED_INSTANCE_ID):
                raise
            client.begin_again()
        for key, value in self.group.take_changes():
            if value is None:
                self.records.pop(key, None)
            else:
                self.records[key] = value

    def some(self, number: int) -> Client | None:
        return self.clients[number % len(self.clients)] if self.clients else None

    @rule(names=NAMES, instance_id=INSTANCES)
    def join(self, names: set[str], instance_id: str | None) -> None:
        self.clients.append(Client(f"m{next(self.numbers)}", names, instance_id))
        self.beat(self.clients[-1])

    @rule(number=st.integers(0), loses_answer=st.booleans(), revokes=st.booleans())
    def heartbeat(self, number: int, loses_answer: bool, revokes: bool) -> None:
        client = self.some(number)
        if client is None:
            return
        if revokes:
            client.finish_revocation()
        if loses_answer:
            try:
                self.group.heartbeat(client.request(), self.topics, self.now_ms)
            except RequestRefusedError:
                return
        else:
            self.beat(client)

    @rule(number=st.integers(0), for_restart=st.booleans())
    def leave(self, number: int, for_restart: bool) -> None:
        client = self.some(number)
        if client is None:
            return
        self.clients.remove(client)
        try:
            client.leave(self.group, for_restart=for_restart and client.instance_id is not None)
        except RequestRefusedError as error:
            if error.code not in BEGIN_AGAIN:
                raise

    @rule(number=st.integers(0))
    def die(self, number: int) -> None:
        client = self.some(number)
        if client is not None:
            self.clients.remove(client)

    @rule(number=st.integers(0), names=NAMES)
    def subscribe(self, number: int, names: set[str]) -> None:
        client = self.some(number)
        if client is not None:
            client.names = frozenset(names)
            self.beat(client)

    @rule(name=st.sampled_from(["x", "y", "z"]), more=st.integers(1, 3))
    def grow(self, name: str, more: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + more
        self.topics = topics(self.counts)

    @rule(ms=st.sampled_from([1_000, 20_000]))
    def wait(self, ms: int) -> None:
        self.pass_time(ms)

    def pass_time(self, ms: int) -> None:
        """Whoever is removed notices before it uses anything more."""
        self.now_ms += ms
        self.group.on_time(self.now_ms)
        for client in self.clients:
            member = self.group.members.get(client.member_id)
            if member is None:
                client.begin_again()

    @rule()
    def restart_broker(self) -> None:
        for key, value in self.group.take_changes():
            if value is None:
                self.records.pop(key, None)
            else:
                self.records[key] = value
        copy = ConsumerGroup("g", ConsumerGroupConfig(), no_match)
        copy.restore(self.records, self.now_ms)
        assert copy.members == self.group.members
        assert (copy.epoch, copy.target_epoch, copy.targets) == (
            self.group.epoch,
            self.group.target_epoch,
            self.group.targets,
        )
        self.group = copy

    @invariant()
    def no_partition_is_used_twice(self) -> None:
        used = [partition for client in self.clients for partition in client.owned]
        assert len(used) == len(set(used))
        assigned = [p for member in self.group.members.values() for p in member.assigned | member.revoking]
        assert len(assigned) == len(set(assigned))

    def teardown(self) -> None:
        """Whoever is left settles: all partitions of topics that a member wants are used."""
        if not hasattr(self, "group"):
            return
        self.now_ms += 44_000
        for _ in range(30):
            for client in self.clients:
                client.finish_revocation()
                self.beat(client)
                self.no_partition_is_used_twice()
            self.pass_time(2_000)
        members = self.group.members
        live = [client for client in self.clients if client.member_id in members]
        wanted = frozenset().union(
            *(partitions(name, *range(self.counts.get(name, 0))) for client in live for name in client.names)
        )
        assert frozenset().union(*(client.owned for client in live)) == wanted
        assert all(members[client.member_id].state is MemberState.STABLE for client in live)
        assert self.group.state_name == ("Stable" if members else "Empty")


ConsumerGroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestConsumerGroup = ConsumerGroupMachine.TestCase
