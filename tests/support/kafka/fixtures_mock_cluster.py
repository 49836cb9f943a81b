"""librdkafka's mock cluster: a second, independent broker that starts in a millisecond.

It lives inside this process, in the librdkafka that comes with confluent-kafka, and is reached over TCP by any client.
It validates nothing (a wrong CRC is acknowledged) and keeps about 5 MB a partition, so a test must read back what it
wrote. No topics are created by admin requests, no SASL, no TLS.

Source of the calls: librdkafka ``rdkafka_mock.h`` (experimental there).
"""

import ctypes
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

import confluent_kafka
import pytest

_PRODUCER = 0
_ERROR_BYTES = 512


class MockCluster:
    """A mock cluster, from construction to `close`. Broker ids count from 1.

    Args:
        brokers: how many.
    """

    def __init__(self, brokers: int = 1) -> None:
        library = _library()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        self._owner = library.rd_kafka_new(_PRODUCER, library.rd_kafka_conf_new(), error, len(error))
        if not self._owner:
            raise RuntimeError(error.value.decode())
        self._cluster = library.rd_kafka_mock_cluster_new(self._owner, brokers)
        self.bootstrap: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the cluster; may be called twice."""
        if self._cluster:
            _library().rd_kafka_mock_cluster_destroy(self._cluster)
            _library().rd_kafka_destroy(self._owner)
            self._cluster = self._owner = None

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = 1) -> None:
        """Create a topic; unknown ones appear on first use with 4 partitions."""
        self._call("topic_create", name.encode(), partitions, replication_factor)

    def push_errors(self, api_key: int, codes: Sequence[int]) -> None:
        """Answer the next requests of this api with these error codes, one each (0: none)."""
        array = (ctypes.c_int * len(codes))(*codes)
        _library().rd_kafka_mock_push_request_errors_array(self._cluster, api_key, len(codes), array)

    def clear_errors(self, api_key: int) -> None:
        """Forget the errors not used yet."""
        _library().rd_kafka_mock_clear_request_errors(self._cluster, api_key)

    def set_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Move a partition; -1: no leader."""
        self._call("partition_set_leader", topic.encode(), partition, broker_id)

    def set_down(self, broker_id: int) -> None:
        """Disconnect a broker's clients and refuse new ones."""
        self._call("broker_set_down", broker_id)

    def set_up(self, broker_id: int) -> None:
        """Undo `set_down`."""
        self._call("broker_set_up", broker_id)

    def set_round_trip_ms(self, broker_id: int, round_trip_ms: int) -> None:
        """Delay a broker's replies; -1: all brokers."""
        self._call("broker_set_rtt", broker_id, round_trip_ms)

    def set_api_version(self, api_key: int, lowest: int, highest: int) -> None:
        """Advertise and accept only these versions of an api; (-1, -1): none."""
        self._call("set_apiversion", api_key, lowest, highest)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(_library(), f"rd_kafka_mock_{name}")(self._cluster, *arguments)
        if code:
            raise RuntimeError(f"rd_kafka_mock_{name}{arguments} failed with {code}")


@pytest.fixture
def mock_cluster() -> Iterator[MockCluster]:
    """A new mock cluster of three brokers."""
    with MockCluster(3) as cluster:
        yield cluster


@cache
def _library() -> ctypes.CDLL:
    """The librdkafka of the confluent-kafka wheel, with the signatures ctypes cannot guess."""
    directory = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    (path,) = directory.glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    pointer, text, number, short = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int16
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "conf_new": (pointer, []),
        "new": (pointer, [number, pointer, text, ctypes.c_size_t]),
        "destroy": (None, [pointer]),
        "mock_cluster_new": (pointer, [pointer, number]),
        "mock_cluster_destroy": (None, [pointer]),
        "mock_cluster_bootstraps": (text, [pointer]),
        "mock_push_request_errors_array": (None, [pointer, short, ctypes.c_size_t, ctypes.POINTER(number)]),
        "mock_clear_request_errors": (None, [pointer, short]),
        "mock_topic_create": (number, [pointer, text, number, number]),
        "mock_partition_set_leader": (number, [pointer, text, ctypes.c_int32, ctypes.c_int32]),
        "mock_broker_set_down": (number, [pointer, ctypes.c_int32]),
        "mock_broker_set_up": (number, [pointer, ctypes.c_int32]),
        "mock_broker_set_rtt": (number, [pointer, ctypes.c_int32, number]),
        "mock_set_apiversion": (number, [pointer, short, short, short]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"rd_kafka_{name}")
        function.restype = result
        function.argtypes = arguments
    return library
