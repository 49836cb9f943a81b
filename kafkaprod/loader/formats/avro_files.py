"""Read Avro container files: each block ends with the file's own mark, so that a cut within a block is noticed.

fastavro decodes the records of whole blocks, which are decompressed here: a few bytes may become any number, and it
does not compare the checksum that snappy's blocks have. Dates and times are taken as the numbers they are stored as,
because Python has no dates beyond the year 9999.
Source: Avro 1.12, Object Container Files.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkaprod.loader.formats.avro_codecs import DamagedBlockError, TooLargeError, decompressor_of
from kafkaprod.loader.formats.avro_types import without_logical_types
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError, missing_package

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC: Final = b"Obj\x01"
MARK_BYTES: Final = 16
LARGE_BLOCK_BYTES: Final = 64 << 10  # compressed: it is decoded by itself
GROUP_ROWS: Final = 65_536
GROUP_BYTES: Final = 2 << 20  # decompressed
MOST_HEADER_BYTES: Final = 16 << 20
MOST_HEADER_ENTRIES: Final = 10_000
MOST_EMPTY_RECORDS: Final = 1 << 20
"""Values of a block beyond one a byte: those of nulls take none, and a few bytes could have any number of them."""
_LONGEST_NUMBER: Final = 10  # bytes


class AvroBlocks:
    """Reads the header of a container file, then its blocks.

    Args:
        stream: The file, at its beginning.
        name: The name of the input.
        max_block_bytes: The size of the largest block, decompressed.

    Raises:
        LoadError: It has no whole header.
        LoadRefusedError: Its codec is not known, or a package of it is not installed.
    """

    def __init__(self, stream: Any, name: str, max_block_bytes: int) -> None:
        self._stream = stream
        self.name = name
        self._max_block_bytes = max_block_bytes
        self._header_bytes = 0
        if self._take(len(MAGIC)) != MAGIC:
            raise LoadError(f"{name} is not an Avro file: its first bytes are not those of one")
        self._metadata: dict[str, bytes] = {}
        entry_count = 0
        while count := self._number():
            if count < 0:  # the bytes of the part follow
                count, _ = -count, self._number()
            entry_count += count
            if entry_count > MOST_HEADER_ENTRIES:
                raise LoadError(
                    f"{name} is damaged: its header has {entry_count:,} entries, more than {MOST_HEADER_ENTRIES:,}"
                )
            for _ in range(count):
                key = self._bytes().decode(errors="backslashreplace")
                self._metadata[key] = self._bytes()
        self._mark = self._take(MARK_BYTES)
        self._decompress = decompressor_of(self._metadata.get("avro.codec", b"null").decode(errors="replace"), name)
        try:
            self.schema: Any = json.loads(self._metadata.get("avro.schema", b""))
        except (ValueError, RecursionError) as error:
            raise LoadError(f"{name} is damaged: its schema is not JSON: {error}") from error

    def header(self) -> bytes:
        """Return a header with the same mark, no codec, and a schema without logical types."""
        schema = json.dumps(without_logical_types(self.schema)).encode()
        pairs = b"".join(_number_bytes(len(part)) + part for part in (b"avro.schema", schema))
        return MAGIC + _number_bytes(1) + pairs + b"\0" + self._mark

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of records of each block, and its data as it is.

        Raises:
            LoadError: The file is cut off or damaged, or a block is too large.
        """
        while (first := self._stream.read(1)) != b"":
            count = self._number(first)
            size = self._number()
            if size < 0 or count < 0:
                raise LoadError(f"{self.name} is damaged: a block has {count:,} records in {size:,} bytes")
            if size > self._max_block_bytes:
                raise self._too_large(size)
            data = self._take(size)
            if self._take(MARK_BYTES) != self._mark:
                raise LoadError(f"{self.name} is damaged: a block of {count:,} records does not end with the mark")
            yield count, data

    def plain(self, count: int, data: bytes) -> bytes:
        """Return a block as a file without a codec has it. Raises LoadError: it is damaged or too large."""
        if self._decompress is not None:
            try:
                data = self._decompress(data, self._max_block_bytes)
            except TooLargeError as error:
                raise self._too_large(self._max_block_bytes + 1) from error
            except DamagedBlockError as error:
                raise LoadError(f"{self.name} is damaged, in a block of {count:,} records: {error}") from error
        if count > len(data) + MOST_EMPTY_RECORDS:
            raise LoadError(f"{self.name} is damaged: a block has {count:,} records in {len(data):,} bytes")
        return _number_bytes(count) + _number_bytes(len(data)) + data + self._mark

    def _too_large(self, size: int) -> LoadError:
        return LoadError(
            f"{self.name} has a block of {size:,} bytes or more, and {self._max_block_bytes:,} may be in one: raise "
            "--max-row-bytes if its blocks are that large"
        )

    def _take(self, size: int) -> bytes:
        data: bytes = self._stream.read(size)
        if len(data) < size:
            raise LoadError(f"{self.name} is cut off: its last block, or its header, does not end")
        return data

    def _bytes(self) -> bytes:
        size = self._number()
        self._header_bytes += max(size, 1)
        if size < 0 or self._header_bytes > MOST_HEADER_BYTES:
            raise LoadError(f"{self.name} is damaged: an entry of its header has {size:,} bytes")
        return self._take(size)

    def _number(self, data: bytes = b"") -> int:
        """Read a number of variable length; `data` is what is read of it already."""
        data = data or self._take(1)
        while data[-1] & 0x80:
            if len(data) == _LONGEST_NUMBER:
                raise LoadError(f"{self.name} is damaged: a number has more than {_LONGEST_NUMBER} bytes")
            data += self._take(1)
        value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data))
        return (value >> 1) ^ -(value & 1)


def _number_bytes(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def read_avro(file: AvroBlocks, whole: pa.Schema, names: list[str], row: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Read batches of a container file; blocks before a row are neither decompressed nor decoded.

    Args:
        file: The file, behind its header.
        whole: Its columns.
        names: The columns to read.
        row: Number of the first row that is needed.

    Yields:
        The number of the first row of a batch, and the batch.

    Raises:
        LoadError: The file is cut off or damaged.
        LoadRefusedError: A package is not installed.
    """
    import pyarrow as pa

    schema = pa.schema([whole.field(each) for each in names])
    header = file.header()
    first = 0
    for count, blocks in _groups(file.blocks()):
        if first + count > row:
            rows = _records(header + b"".join(file.plain(*block) for block in blocks), file.name)
            if len(rows) != count:
                raise LoadError(f"{file.name} is damaged: blocks have {len(rows):,} records, and count {count:,}")
            yield first, _batch(rows, schema)
        first += count


def _groups(blocks: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, list[tuple[int, bytes]]]]:
    """Join small blocks."""
    total, parts, size = 0, list[tuple[int, bytes]](), 0
    for count, data in blocks:
        total, size = total + count, size + len(data)
        parts.append((count, data))
        if total >= GROUP_ROWS or size >= GROUP_BYTES or len(data) >= LARGE_BLOCK_BYTES:
            yield total, parts
            total, parts, size = 0, [], 0
    if parts:
        yield total, parts


def _batch(rows: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))


def _records(data: bytes, name: str) -> list[Any]:
    try:
        import fastavro
    except ImportError as error:
        raise missing_package("fastavro", "Avro", "avro") from error
    try:
        return list(fastavro.reader(io.BytesIO(data)))
    except Exception as error:  # a damaged block leads it to errors of every kind
        if "need to install" in str(error):
            raise LoadRefusedError(f"{name}: {error}") from error
        raise LoadError(f"{name} is damaged, in a block of its rows: {type(error).__name__}: {error}") from error
