"""A sound stream that cannot be read is not called damaged: the message says what reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from kafkaprod.loader.opening.errors import LoadError
from tests.support.loader.reading import values_of

ROWS = b"".join(b"%d\n" % number for number in range(1000))


def with_window(log: int) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=log, enable_ldm=True)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(ROWS) + stream.flush()


def test_a_window_that_is_too_large_is_named_with_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(with_window(27))
    assert len(values_of(path)) == 1000
    path.write_bytes(with_window(28))
    with pytest.raises(
        LoadError, match=r"a window of more than 128 MiB.*: zstd -dc --long=31 .*a.txt.zst \| kafkaprod"
    ):
        values_of(path)


def test_a_dictionary_is_named_with_the_cure(tmp_path: Path) -> None:
    samples: list[bytes | bytearray | memoryview] = [b"a row of number %d and more" % number for number in range(2000)]
    words = zstandard.train_dictionary(4096, samples)
    (tmp_path / "a.txt.zst").write_bytes(zstandard.ZstdCompressor(dict_data=words).compress(ROWS))
    with pytest.raises(LoadError, match=r"was compressed with a dictionary, .*: zstd -dc -D DICTIONARY"):
        values_of(tmp_path / "a.txt.zst")
