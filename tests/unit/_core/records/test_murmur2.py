"""Values of org.apache.kafka.common.utils.Utils.murmur2."""

import pytest

from tests.support.core.faces import hash_key, partition_of_key

JAVA = [
    (b"", 275646681, 0, 1),
    (b"21", -973932308, 0, 0),
    (b"foobar", -790332482, 0, 6),
    (b"abc", 479470107, 0, 7),
    (b"key-1", 193331640, 0, 0),
    (b"a-little-bit-long-string", -985981536, 2, 2),
    (b"a-little-bit-longer-string", -1486304829, 2, 9),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 2, 7),
]


@pytest.mark.parametrize(("key", "java_hash", "modulo_3", "modulo_10"), JAVA)
def test_hash_equals_javas(key, java_hash, modulo_3, modulo_10):
    assert hash_key(key) == java_hash
    assert partition_of_key(key, 3) == modulo_3
    assert partition_of_key(key, 10) == modulo_10


@pytest.mark.parametrize("key", [bytearray(b"foobar"), memoryview(b"xfoobarx")[1:7]])
def test_any_contiguous_buffer_is_hashed(key):
    assert hash_key(key) == -790332482


def test_one_partition_takes_every_key():
    assert {partition_of_key(str(i).encode(), 1) for i in range(100)} == {0}
