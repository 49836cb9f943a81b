"""The fault proxy does to a frame what the rule says, and nothing to any other."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.kafka import proxy_actions as actions
from tests.kafka.cluster import KafkaCluster, wait_until
from tests.kafka.proxy import METADATA, PRODUCE, Direction, FaultProxy
from tests.kafka.reading import read_all


class EchoServer:
    """Answers each request frame with its correlation id and body, in order."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(peer,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            try:
                while prefix := receive(peer, 4):
                    data = receive(peer, int.from_bytes(prefix))
                    self.received.append(prefix + data)
                    peer.sendall(struct.pack(">i", len(data) - 4) + data[4:])
            except (EOFError, ConnectionResetError):
                pass


@pytest.fixture
def server() -> Iterator[EchoServer]:
    echo = EchoServer()
    yield echo
    echo.close()


@pytest.fixture
def proxy(server: EchoServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.address) as running:
        yield running


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[socket.socket]:
    with socket.create_connection(proxy.address, timeout=10) as connection:
        yield connection


def receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError(f"closed after {len(data)} of {count} bytes")
        data += part
    return data


def request(correlation_id: int, body: bytes = b"body", api_key: int = PRODUCE) -> bytes:
    return struct.pack(">ihhi", 8 + len(body), api_key, 9, correlation_id) + body


def reply(correlation_id: int, body: bytes = b"body") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def test_frames_pass_unchanged_and_are_noted(proxy: FaultProxy, client: socket.socket) -> None:
    big = bytes(range(256)) * 4000
    client.sendall(request(7, big) + request(8, b"", api_key=METADATA))
    assert receive(client, len(big) + 16) == reply(7, big) + reply(8, b"")
    seen = [(frame.direction, frame.api_key, frame.version, frame.correlation_id) for frame in proxy.frames]
    assert sorted(seen, key=str) == sorted(
        [
            (direction, key, 9, correlation_id)
            for direction in Direction
            for key, correlation_id in ((PRODUCE, 7), (METADATA, 8))
        ],
        key=str,
    )


def test_rule_takes_only_its_api_key_after_its_skips_and_as_often_as_told(
    proxy: FaultProxy, client: socket.socket
) -> None:
    rule = proxy.on_reply(PRODUCE, actions.Drop(), skip=1, times=2)
    for correlation_id in range(5):
        client.sendall(request(correlation_id) + request(100 + correlation_id, api_key=METADATA))
    expected = [0, 100, 101, 102, 3, 103, 4, 104]
    assert receive(client, 12 * len(expected)) == b"".join(map(reply, expected))
    assert rule.hits == 2


@pytest.mark.parametrize(
    ("action", "received"),
    [
        (actions.Forward(), reply(1)),
        (actions.Delay(0.01), reply(1)),
        (actions.Duplicate(), reply(1) + reply(1)),
        (actions.Replay(), reply(0) + reply(1)),
        (actions.FlipBit(95), reply(1, b"bodx")),
        (actions.RewriteLength(1 << 30), struct.pack(">i", 1 << 30) + reply(1)[4:]),
        (actions.RewriteCorrelationId(41), reply(42)),
        (actions.Replace(b"HTTP/1.1 400\r\n"), b"HTTP/1.1 400\r\n"),
        (actions.Dribble(5), reply(1)),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bytes) else "",
)
def test_reply_is_changed_as_the_action_says(
    proxy: FaultProxy, client: socket.socket, action: actions.Action, received: bytes
) -> None:
    client.sendall(request(0))
    assert receive(client, 12) == reply(0)
    proxy.on_reply(PRODUCE, action)
    client.sendall(request(1) + request(2))
    assert receive(client, len(received) + 12) == received + reply(2)


def test_swapped_replies_change_places(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.on_reply(PRODUCE, actions.Swap())
    client.sendall(request(1) + request(2) + request(3))
    assert receive(client, 36) == reply(2) + reply(1) + reply(3)


def test_held_reply_comes_only_after_release(proxy: FaultProxy, client: socket.socket) -> None:
    hold = actions.Hold()
    proxy.on_reply(PRODUCE, hold)
    client.sendall(request(1) + request(2))
    hold.wait_until_held()
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(1)
    client.settimeout(10)
    hold.release()
    assert receive(client, 24) == reply(1) + reply(2)


@pytest.mark.parametrize("at_byte", [0, 1, 4, 11])
def test_cut_reply_ends_at_the_byte_asked_for(proxy: FaultProxy, client: socket.socket, at_byte: int) -> None:
    proxy.on_reply(PRODUCE, actions.Cut(at_byte, reset=False))
    client.sendall(request(1))
    assert receive(client, at_byte) == reply(1)[:at_byte]
    assert client.recv(1) == b""


def test_cut_request_reaches_the_server_in_part(proxy: FaultProxy, client: socket.socket, server: EchoServer) -> None:
    proxy.on_request(PRODUCE, actions.Cut(9), skip=1)
    client.sendall(request(1) + request(2))
    with pytest.raises((ConnectionResetError, EOFError)):
        receive(client, 24)
    wait_until(lambda: server.received == [request(1)], 10, "the server to see the first request")


def test_reset_is_seen_as_a_reset(proxy: FaultProxy, client: socket.socket, server: EchoServer) -> None:
    rule = proxy.on_reply(PRODUCE, actions.DropAndReset())
    client.sendall(request(1))
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert rule.hits == 1
    wait_until(lambda: server.received == [request(1)], 10, "the server to see the first request")


def test_random_draws_repeat_with_the_seed(server: EchoServer) -> None:
    def damaged(seed: int) -> bytes:
        with FaultProxy(server.address, seed=seed) as proxy:
            proxy.on_reply(None, actions.FlipBit(), times=None, probability=0.5)
            with socket.create_connection(proxy.address, timeout=10) as connection:
                connection.sendall(b"".join(request(index) for index in range(20)))
                return receive(connection, 240)

    assert damaged(1) == damaged(1)
    assert damaged(1) != damaged(2)
    assert damaged(1) != b"".join(map(reply, range(20)))


def test_limited_direction_is_read_no_faster_than_told(server: EchoServer) -> None:
    with (
        FaultProxy(server.address, receive_buffer_bytes=4096) as proxy,
        socket.create_connection(proxy.address) as connection,
    ):
        proxy.limit(Direction.REQUEST, 1.0)
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):  # a frame of 64 MiB at one byte a second: the buffers fill and stay full
            connection.sendall(struct.pack(">i", 1 << 26) + bytes(1 << 26))


def test_refused_and_accepted_again(proxy: FaultProxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(proxy.address, timeout=10)
    proxy.accept()
    socket.create_connection(proxy.address, timeout=10).close()


def test_cut_all_ends_open_connections(proxy: FaultProxy, client: socket.socket) -> None:
    client.sendall(request(1))
    assert receive(client, 12) == reply(1)
    assert proxy.cut_all() == 1
    with pytest.raises(ConnectionResetError):
        client.recv(1)


@pytest.mark.external
def test_lost_produce_reply_is_retried_without_a_duplicate(
    kafka: KafkaCluster, kafka_proxy: FaultProxy, topic_name: str
) -> None:
    kafka.create_topic(topic_name)
    lost = kafka_proxy.on_reply(PRODUCE, actions.DropAndReset(), times=1)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap("PROXIED"), "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )
    producer.produce(topic_name, b"value")
    assert producer.flush(20) == 0
    assert lost.hits == 1
    assert [record.value for record in read_all(kafka.bootstrap(), topic_name)[0]] == [b"value"]
