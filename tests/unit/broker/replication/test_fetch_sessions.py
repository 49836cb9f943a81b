"""Sessions of a follower and its leader: what is idle is neither sent nor looked at, what moves is answered once."""

from __future__ import annotations

import uuid

import pytest

from kafkaprod.broker.metadata.image import PartitionImage, PartitionKey
from kafkaprod.broker.replication.fetch_sessions import MAX_LOOKS, FetchSession, FetchSessions
from kafkaprod.broker.replication.fetcher import FIRST_WAIT_MS, FetchAnswer, Fetcher, FetchRequest
from kafkaprod.broker.replication.partition import FetchOutcome, FollowerFetch, PartitionReplica
from kafkaprod.protocol.error_codes import ErrorCode as E
from tests.simulation.logs import SimulatedLog
from tests.support.clock import ManualClock
from tests.unit.broker.kafka_bugs.cases import KEY, LAG_MS, Node, fetch, follow_all, grow

TOPIC_ID = uuid.UUID(int=1)
RETRY_MS, IDLE_MS = 50, 10


class Pair:
    """A leader's sessions of many partitions, and one follower's fetcher of them."""

    def __init__(self, count: int) -> None:
        self.looks: list[PartitionKey] = []
        self.leader_logs = {(TOPIC_ID, index): SimulatedLog(ManualClock()) for index in range(count)}
        self.logs = {key: SimulatedLog(ManualClock()) for key in self.leader_logs}
        self.broker_epoch = 1
        self.sessions = FetchSessions(self._look)
        self.fetcher = Fetcher(
            2, 1, lambda: self.broker_epoch, retry_ms=RETRY_MS, idle_ms=IDLE_MS, max_wait_ms=8 * FIRST_WAIT_MS
        )
        for key, log in self.logs.items():
            self.fetcher.add(key, log, 0)
        self.now_ms = 0

    def _look(self, key: PartitionKey, question: FollowerFetch, now_ms: int) -> FetchOutcome:
        self.looks.append(key)
        log = self.leader_logs[key]
        return FetchOutcome(E.NONE, log.read_batches(question.offset, 10), log.high_watermark, log.log_start_offset)

    def append(self, key: PartitionKey) -> None:
        """Append a record at the leader, which moves its high watermark."""
        log = self.leader_logs[key]
        grow(log, (0, 1))
        log.high_watermark = log.end_offset
        self.sessions.note_moved([key])

    def request(self) -> FetchRequest:
        """Return the follower's next request, after a rest."""
        self.now_ms += RETRY_MS
        request = self.fetcher.next_request(self.now_ms)
        assert request is not None
        return request

    def begin(self, request: FetchRequest) -> FetchSession:
        """Take a request over at the leader."""
        session = self.sessions.begin(request, self.now_ms)
        assert isinstance(session, FetchSession)
        return session

    def turn(self) -> FetchRequest:
        """Ask, look and answer once; return the request."""
        request = self.request()
        session = self.begin(request)
        answer = FetchAnswer(self.sessions.collect(session), session.session_id)
        self.fetcher.on_answer(request, answer, self.now_ms)
        return request


def test_an_idle_partition_is_neither_named_again_nor_looked_at() -> None:
    pair = Pair(100)
    assert len(pair.turn().questions) == 100
    moved = (TOPIC_ID, 7)
    pair.append(moved)
    pair.looks.clear()
    asked = [set(pair.turn().questions) for _ in range(3)]
    assert asked == [set(), {moved}, set()]
    assert set(pair.looks) == {moved}
    assert (pair.logs[moved].end_offset, pair.logs[moved].high_watermark) == (1, 1)


def test_each_follower_that_waits_for_a_partition_hears_of_it() -> None:
    pair = Pair(1)
    question = FollowerFetch(0, 1, 0, 0, -1, 0, 0)
    sessions = []
    for follower in (2, 3, 4):
        session = pair.sessions.begin(FetchRequest({KEY: question}, follower=follower), 0)
        assert isinstance(session, FetchSession)
        assert pair.sessions.collect(session) == {}
        sessions.append(session)
    pair.append(KEY)
    assert [list(pair.sessions.collect(session)) for session in sessions] == [[KEY]] * 3


def test_a_watermark_alone_is_news_once() -> None:
    pair = Pair(1)
    grow(pair.leader_logs[KEY], (0, 1))
    pair.turn()
    pair.turn()
    assert pair.logs[KEY].high_watermark == 0
    pair.leader_logs[KEY].high_watermark = 1
    pair.sessions.note_moved([KEY])
    pair.turn()
    assert pair.logs[KEY].high_watermark == 1
    pair.turn()
    pair.sessions.note_moved([KEY])
    (session,) = pair.sessions
    assert pair.sessions.collect(session) == {}


def test_a_log_start_that_rises_is_news() -> None:
    pair = Pair(1)
    for _ in range(3):
        pair.append(KEY)
    pair.turn()
    pair.turn()
    pair.leader_logs[KEY].raise_log_start(2)
    pair.sessions.note_moved([KEY])
    pair.turn()
    assert pair.logs[KEY].log_start_offset == 2


def test_a_watermark_that_is_lower_at_the_leader_changes_nothing_and_is_no_news() -> None:
    pair = Pair(1)
    pair.append(KEY)
    pair.turn()
    pair.turn()
    pair.leader_logs[KEY].high_watermark = 0
    request = pair.request()
    session = pair.begin(request)
    pair.sessions.note_moved([KEY])
    assert pair.sessions.collect(session) == {}
    answer = FetchAnswer({KEY: FetchOutcome(E.NONE, (), 0, 0)}, session.session_id)
    pair.fetcher.on_answer(request, answer, pair.now_ms)
    assert pair.logs[KEY].high_watermark == 1


def test_a_lost_answer_begins_a_session_with_everything() -> None:
    pair = Pair(3)
    pair.turn()
    pair.append(KEY)
    lost = pair.request()
    pair.sessions.collect(pair.begin(lost))
    pair.fetcher.on_lost(pair.now_ms)
    again = pair.turn()
    assert (len(again.questions), again.session_epoch) == (3, 0)
    assert pair.logs[KEY].end_offset == 1


def test_another_registration_begins_a_session_with_everything() -> None:
    pair = Pair(3)
    pair.turn()
    pair.broker_epoch = 2
    again = pair.turn()
    assert (len(again.questions), again.session_epoch, again.broker_epoch) == (3, 0, 2)


@pytest.mark.parametrize(
    ("session_id", "epoch", "error"),
    [(1, 1, E.FETCH_SESSION_ID_NOT_FOUND), (0, 2, E.INVALID_FETCH_SESSION_EPOCH)],
)
def test_a_request_of_another_session_is_refused_and_the_follower_begins_again(
    session_id: int, epoch: int, error: E
) -> None:
    pair = Pair(2)
    pair.turn()
    (session,) = pair.sessions
    foreign = FetchRequest({}, follower=1, session_id=session.session_id + session_id, session_epoch=epoch)
    assert pair.sessions.begin(foreign, 0) is error
    request = pair.request()
    pair.fetcher.on_answer(request, FetchAnswer({}, error=error), pair.now_ms)
    assert len(pair.turn().questions) == 2


def test_what_is_fetched_no_more_leaves_the_session() -> None:
    pair = Pair(2)
    pair.turn()
    pair.fetcher.remove(KEY)
    assert pair.turn().forgotten == {KEY}
    (session,) = pair.sessions
    assert set(session.standing) == {(TOPIC_ID, 1)}
    pair.append(KEY)
    assert not session.moved


def test_one_answer_looks_at_a_bounded_number_of_partitions() -> None:
    pair = Pair(2 * MAX_LOOKS + 1)
    for key in pair.leader_logs:
        pair.append(key)
    pair.looks.clear()
    pair.turn()
    assert len(pair.looks) == MAX_LOOKS
    pair.turn()
    pair.turn()
    assert all(log.end_offset == 1 for log in pair.logs.values())


def test_an_answer_without_room_leaves_the_rest_for_the_next_one() -> None:
    pair = Pair(3)
    for key in pair.leader_logs:
        pair.append(key)
    session = pair.begin(pair.request())
    assert len(pair.sessions.collect(session, lambda _: False)) == 1
    assert len(session.moved) == 2


def test_the_wait_grows_while_it_is_quiet_and_begins_again_with_news() -> None:
    pair = Pair(1)
    waits = []
    for _ in range(6):
        request = pair.request()
        waits.append(request.wait_ms)
        session = pair.begin(request)
        pair.now_ms += request.wait_ms
        pair.fetcher.on_answer(request, FetchAnswer({}, session.session_id), pair.now_ms)
    assert waits == [FIRST_WAIT_MS * factor for factor in (1, 2, 4, 8, 8, 8)]
    pair.append(KEY)
    pair.turn()
    assert pair.request().wait_ms == FIRST_WAIT_MS


def test_a_follower_of_an_idle_partition_stays_in_sync_while_its_session_lives() -> None:
    node = Node()
    node.hear(leader=1)
    for follower in (2, 3):
        asked = fetch(0, follower=follower)._replace(high_watermark=0, log_start_offset=0)
        node.manager.serve(FetchRequest({KEY: asked}, follower=follower), 0)
    session = next(session for session in node.manager.sessions if session.follower == 2)
    later_ms = 50 * LAG_MS
    node.manager.serve(FetchRequest({}, follower=2, session_id=session.session_id, session_epoch=1), later_ms)
    node.manager.tick(later_ms)
    grow(node.log, (0, 1))
    node.manager.sessions.note_moved([KEY])
    node.manager.tick(later_ms + LAG_MS)
    request = node.manager.next_isr_request(later_ms + LAG_MS)
    assert request is not None, "broker 3 has not been heard of for long"
    assert [member.broker_id for member in request.topics[0].partitions[0].new_isr_with_epochs] == [1, 2]


class Counted:
    """A leader on broker 1 of many partitions with followers 2 and 3, whose ticks are counted."""

    def __init__(self, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logs: dict[PartitionKey, SimulatedLog] = {}
        self.node = Node()
        self.node.manager._open_log = self._open  # type: ignore[method-assign]
        self.keys = [(KEY[0], index) for index in range(count)]
        for key in self.keys:
            self.node.image.partitions[key] = PartitionImage(*key, (1, 2, 3), (1, 2, 3), 1, 0, 0)
        follow_all(self.node.manager, self.keys, 0)
        self.looks: list[PartitionKey] = []
        shrink = PartitionReplica.propose_shrink

        def counted(replica: PartitionReplica, now_ms: int) -> None:
            self.looks.append(replica.key)
            shrink(replica, now_ms)

        monkeypatch.setattr(PartitionReplica, "propose_shrink", counted)
        self.epochs = dict.fromkeys((2, 3), 0)
        self.ids = dict.fromkeys((2, 3), 0)

    def _open(self, key: PartitionKey) -> SimulatedLog:
        self.logs[key] = SimulatedLog(ManualClock())
        return self.logs[key]

    def ask(self, follower: int, now_ms: int, *keys: PartitionKey) -> None:
        """Have a follower ask for what it has not asked yet, from the end of what the leader has."""
        questions = {key: self._question(follower, key) for key in keys}
        while True:
            session_id, epoch = self.ids[follower], self.epochs[follower]
            request = FetchRequest(questions, follower=follower, session_id=session_id, session_epoch=epoch)
            self.ids[follower] = self.node.manager.serve(request, now_ms).session_id
            self.epochs[follower] += 1
            questions = {}
            if not any(session.moved for session in self.node.manager.sessions if session.follower == follower):
                return

    def _question(self, follower: int, key: PartitionKey) -> FollowerFetch:
        log = self.logs[key]
        known = {"high_watermark": log.high_watermark, "log_start_offset": 0}
        return fetch(log.end_offset, follower=follower)._replace(**known)

    def append(self, key: PartitionKey) -> None:
        """Append a record."""
        grow(self.logs[key], (0, 1))
        self.node.manager.sessions.note_moved([key])

    def tick(self, now_ms: int) -> list[PartitionKey]:
        """Return the partitions that a tick has looked at."""
        self.looks.clear()
        self.node.manager.tick(now_ms)
        return list(self.looks)


def test_a_follower_that_waits_hears_that_its_leaders_disk_has_failed() -> None:
    node = Node()
    node.hear(leader=1)
    session = node.manager.sessions.begin(FetchRequest({KEY: fetch(0)}, follower=2), 0)
    assert isinstance(session, FetchSession)
    assert node.manager.sessions.collect(session) != {}, "it learns the high watermark"
    session.standing[KEY] = fetch(0)._replace(high_watermark=0, log_start_offset=0)
    assert node.manager.sessions.collect(session) == {}
    node.manager.fail([KEY])
    assert [outcome.error for outcome in node.manager.sessions.collect(session).values()] != [E.NONE]
    assert session.standing == {}


def test_a_lost_proposal_is_sent_again() -> None:
    node = Node()
    node.hear(leader=1, isr=(1, 2))
    node.manager.serve(FetchRequest({KEY: fetch(0, follower=3)}, follower=3), 0)
    request = node.manager.next_isr_request(0)
    assert request is not None
    assert node.manager.next_isr_request(1_999) is None, "in flight"
    assert node.manager.next_isr_request(2_000) is None, "lost: after a rest"
    assert node.manager.next_isr_request(2_050) == request


def test_a_tick_looks_at_no_quiet_partition_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (1, 100, 1000):
        cluster = Counted(count, monkeypatch)
        for follower in (2, 3):
            cluster.ask(follower, 10, *cluster.keys)
        assert len(cluster.tick(20)) == count
        assert not cluster.node.manager.needs_tick
        assert cluster.tick(30) == []
        cluster.append(cluster.keys[0])
        assert cluster.node.manager.needs_tick
        for now_ms in (40, 50):
            assert cluster.tick(now_ms) == [cluster.keys[0]]
        for follower in (2, 3):
            cluster.ask(follower, 60)
            cluster.ask(follower, 70, cluster.keys[0])
        assert cluster.tick(80) == [cluster.keys[0]]
        assert cluster.tick(90) == []


def test_a_follower_that_waited_for_a_quiet_partition_has_its_time_when_it_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Counted(2, monkeypatch)
    key, other = cluster.keys
    for follower in (2, 3):
        cluster.ask(follower, 0, key, other)
    cluster.tick(1)
    for now_ms in range(100, 5_000, 100):  # both ask on, and name nothing
        for follower in (2, 3):
            cluster.ask(follower, now_ms)
        cluster.tick(now_ms)
    replica = cluster.node.manager.replicas[key]
    cluster.append(key)
    cluster.tick(4_900 + LAG_MS)
    assert replica.proposal is None, "both had everything at 4,900 ms"
    cluster.tick(4_901 + LAG_MS)
    assert replica.proposal is not None, "neither has fetched the record in time"


def test_a_follower_that_fell_silent_leaves_when_a_quiet_partition_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Counted(1, monkeypatch)
    (key,) = cluster.keys
    for follower in (2, 3):
        cluster.ask(follower, 0, key)
    cluster.tick(1)
    cluster.ask(2, 5_000)  # broker 3 asks no more
    cluster.append(key)
    cluster.ask(2, 5_001)
    cluster.ask(2, 5_002, key)
    cluster.tick(5_003)
    replica = cluster.node.manager.replicas[key]
    assert replica.proposal is not None
    assert [member.broker_id for member in replica.proposal.new_isr_with_epochs] == [1, 2]


@pytest.mark.parametrize("isr", [(1, 2), (1,)])
def test_a_partition_that_is_not_in_sync_is_looked_at_in_each_tick(
    monkeypatch: pytest.MonkeyPatch, isr: tuple[int, ...]
) -> None:
    cluster = Counted(1, monkeypatch)
    (key,) = cluster.keys
    cluster.node.image.partitions[key] = PartitionImage(*key, (1, 2, 3), isr, 1, 0, 1)
    follow_all(cluster.node.manager, [key], 0)
    for now_ms in (10, 20, 30):
        assert cluster.tick(now_ms) == [key]
