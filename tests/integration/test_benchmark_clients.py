"""The client programs of the benchmarks deliver what they say they delivered, and the runner finds out if not."""

import contextlib
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compare.cases import (
    AIO_PRODUCER,
    AIOKAFKA,
    ASYNC_SEND,
    BARE_SEND,
    KAFKA_PYTHON,
    OURS,
    PRODUCE_BATCH,
    YARDSTICK,
)
from benchmarks.delay_proxy import DelayProxy
from benchmarks.far_ends import FarEnd, sink_end, tls_sink_end
from benchmarks.peers.run import LostRecordsError, Peer, run
from benchmarks.peers.task import Task, write_records
from benchmarks.workloads import make_workload
from tests.support.clock import Stopwatch

TOPICS = {"t-0": 3, "t-1": 3}
RECORDS = 500


@pytest.fixture(scope="module")
def far_end() -> Iterator[FarEnd]:
    with sink_end(TOPICS) as end:
        yield end


@pytest.fixture
def records(tmp_path: Path) -> str:
    write_records(tmp_path / "records", make_workload(RECORDS, 20))
    return str(tmp_path / "records")


def _task(far_end: FarEnd, records: str, peer: Peer, **options: Any) -> Task:
    return Task(far_end.bootstrap, "t", records, peer.way, topics=2, seconds=0, warm_up_s=0, **options)


@pytest.mark.parametrize(
    "peer",
    [YARDSTICK, PRODUCE_BATCH, AIO_PRODUCER, KAFKA_PYTHON, AIOKAFKA, *OURS, ASYNC_SEND, BARE_SEND],
    ids=lambda peer: peer.label,
)
def test_every_record_of_a_client_arrives(far_end: FarEnd, records: str, peer: Peer) -> None:
    figures = run(peer, _task(far_end, records, peer, call_records=100, results="read"), far_end, TOPICS)
    assert figures.records == RECORDS
    assert figures.all_records == 2 * RECORDS
    assert figures.version
    assert figures.cpu_s > 0


@pytest.mark.parametrize("peer", [YARDSTICK, OURS[0]], ids=lambda peer: peer.label)
def test_paced_run_has_a_latency_for_each_sampled_record(far_end: FarEnd, records: str, peer: Peer) -> None:
    task = Task(far_end.bootstrap, "t", records, peer.way, topics=2, seconds=0.2, warm_up_s=0.1, rate=1000)
    figures = run(peer, task, far_end, TOPICS)
    assert len(figures.latencies_us) == figures.records == 200
    assert min(figures.latencies_us) > 0


class _Forgetful:
    """A far end that counts one record too few."""

    def __init__(self, end: FarEnd) -> None:
        self._end = end
        self.bootstrap, self.description, self.tls_ca = end.bootstrap, end.description, end.tls_ca
        self._is_first = True

    @contextlib.contextmanager
    def topics(self, partition_counts: Mapping[str, int]) -> Iterator[None]:
        yield

    def arrived(self, topics: Mapping[str, int]) -> int:
        count = self._end.arrived(topics) - (not self._is_first)
        self._is_first = False
        return count


def test_a_lost_record_is_noticed(far_end: FarEnd, records: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.run.SETTLE_S", 0.0)
    with pytest.raises(LostRecordsError, match="999 records arrived, 1000 were sent"):
        run(OURS[0], _task(far_end, records, OURS[0]), _Forgetful(far_end), TOPICS)


def test_every_record_arrives_behind_tls(records: str) -> None:
    with tls_sink_end(TOPICS) as end:
        for peer in (YARDSTICK, *OURS):
            assert run(peer, _task(end, records, peer, tls_ca=end.tls_ca), end, TOPICS).records == RECORDS


def test_delay_proxy_holds_bytes_back_in_both_directions() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, DelayProxy(40) as proxy:
        proxy.forward_to(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
            waited = Stopwatch()
            client.sendall(b"ping")
            peer, _ = server.accept()
            with peer:
                assert peer.recv(4, socket.MSG_WAITALL) == b"ping"
                assert waited.ms >= 40
                waited.restart()
                peer.sendall(b"pong")
                assert client.recv(4, socket.MSG_WAITALL) == b"pong"
                assert waited.ms >= 40
