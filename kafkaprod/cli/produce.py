"""`kafkaprod produce`: lines of stdin, or files, as records; kcat -P's flags, and the Java console producer's names."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.text.row_splitter import split_keys, split_lines
from kafkaprod.cli.command_producer import check_topic, command_producer
from kafkaprod.cli.main import examples
from kafkaprod.cli.produce_lines import Envelopes, HeaderedLines, LineForm, Rows
from kafkaprod.cli.producer_arguments import add_cluster_arguments, count, read_options
from kafkaprod.compression import CODEC_LIST
from kafkaprod.errors import ConfigError
from kafkaprod.loader.opening.pipes import read_some
from kafkaprod.marks.calls import WriteBlock
from kafkaprod.producer import Producer
from kafkaprod.text import counted, printable

READ_BYTES = 1 << 20
READER_PROPERTIES = (
    *("parse.key", "key.separator", "null.marker"),
    *("parse.headers", "headers.delimiter", "headers.separator", "headers.key.separator"),
)
Blocks = Iterator[Rows]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "produce",
        help="send lines of stdin, or files",
        description="Sends each line of stdin as a record, or each FILE as one record (with -l: each line of it). "
        "The flags are those of kcat -P.",
        epilog=examples(
            "echo 'customer-7:{\"id\": 1}' | kafkaprod produce -t orders -b localhost:9092 -K :",
            "kafkaprod produce -t orders -b localhost:9092 -l -H source=file orders.txt",
            "kafkaprod produce -t orders -b localhost:9092 --property parse.key=true < keyed.txt",
            "kcat -b old:9092 -C -e -J -t orders | kafkaprod produce -t orders -b localhost:9092 -J",
        ),
    )
    add = parser.add_argument
    add("files", nargs="*", metavar="FILE", help="default: stdin, line by line; without -t the first names the topic")
    add("-t", "--topic", help="name of the topic")
    add("-P", action="store_true", help=argparse.SUPPRESS)  # kcat's flag for what this command does
    add("-p", "--partition", type=int, default=-1, metavar="N", help="default: by key, or in turn")
    add("-k", dest="key", metavar="KEY", help="the same key for all records")
    add("-K", dest="key_delimiter", metavar="TEXT", help="parts key and value in a line; wins over -k")
    add("-D", dest="delimiter", default="\\n", metavar="CHAR", help="ends a record (default: %(default)s)")
    add("-l", dest="by_line", action="store_true", help="send the lines of each file, not the whole file")
    add("-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="a header; repeatable")
    add(
        *("-z", "--compression-codec", "--compression-type"),
        dest="codec",
        metavar="CODEC",
        help=CODEC_LIST,
    )
    add("-J", dest="envelopes", action="store_true", help="lines are records of kcat -J or tail --json")
    add("-Z", dest="empty_is_null", action="store_true", help="an empty key or value is null")
    add("-c", dest="count", type=count, metavar="N", help="stop after N records")
    add("-T", dest="tee", action="store_true", help="write what is sent to stdout, too")
    add("-q", "--quiet", action="store_true", help="print only errors")
    add("-v", "--verbose", action="count", default=0, help="print how many records were sent")
    add(
        "--reader-property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"of the console producer: {', '.join(READER_PROPERTIES)}; --property takes them, too",
    )
    add(
        "--write-id",
        metavar="ID",
        help="the name of this input: it is written once, however often the command is run, in one transaction",
    )
    add_cluster_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Send; exit code 0 when every record is acknowledged.

    Raises:
        KafkaError, OSError: A record was not delivered, a file cannot be read.
    """
    _take_topic(options)
    _move_reader_properties(options)
    settings = _Settings(options)
    sent = 0
    producer_options = read_options(options, compression_type=options.codec)
    check_topic(options, producer_options, options.topic, options.partition)
    with command_producer(producer_options) as producer, _sender(producer, options.write_id) as sender:
        for rows in _limited(settings.blocks(), options.count):
            sender.send_columns(
                options.topic,
                rows.value,
                rows.key,
                rows.headers,
                rows.timestamps_ms,
                partition=None if options.partition < 0 else options.partition,
                row_count=rows.row_count,
            )
            sent += rows.row_count
            if options.tee:
                _tee(rows.value, rows.row_count, settings.delimiter)
    if isinstance(sender, WriteBlock) and sender.already_written and not options.quiet:
        print(f"already written: {counted(sent, 'record')} of {printable(options.write_id)}", file=sys.stderr)
    elif options.verbose and not options.quiet:
        print(f"{counted(sent, 'record')} sent to {printable(options.topic)}", file=sys.stderr)
    return 0


@contextmanager
def _sender(producer: Producer, write_id: str | None) -> Iterator[Producer | WriteBlock]:
    """Yield what sends: the producer, or the block of a write, which is committed at the end."""
    if write_id is None:
        yield producer
        return
    with producer.transaction(write_id=write_id) as block:
        yield block


def _take_topic(options: argparse.Namespace) -> None:
    """Take the first argument for the topic where -t does not name it. Raises ConfigError: it is a file, or missing."""
    if options.topic is not None:
        return
    if not options.files:
        raise ConfigError("name one topic: kafkaprod produce TOPIC")
    if os.path.exists(options.files[0]):
        raise ConfigError(
            f"which topic? {options.files[0]!r} is a file; name the topic first: kafkaprod produce TOPIC FILE"
        )
    options.topic = options.files.pop(0)


def _move_reader_properties(options: argparse.Namespace) -> None:
    """Take the reader's options out of --property, where kafka-console-producer has them."""
    for text in [text for text in options.producer_property if text.partition("=")[0] in READER_PROPERTIES]:
        options.producer_property.remove(text)
        options.reader_property.append(text)


class _Settings:
    """Holds the parsed arguments."""

    def __init__(self, options: argparse.Namespace) -> None:
        reader = dict(_reader_property(text) for text in options.reader_property)
        self.delimiter = _bytes(options.delimiter)
        if len(self.delimiter) != 1:
            raise ConfigError(f"-D {options.delimiter!r} is not one byte")
        self.separator = None if options.key_delimiter is None else _bytes(options.key_delimiter)
        if reader.pop("parse.key", "false") == "true" and self.separator is None:
            self.separator = _bytes(reader.get("key.separator", "\t"))
        reader.pop("key.separator", None)
        marker = reader.pop("null.marker", None)
        self.null_marker = b"" if options.empty_is_null else None if marker is None else marker.encode()
        self.key = None if options.key is None else options.key.encode()
        pairs = [(name, value.encode()) for name, _, value in (text.partition("=") for text in options.header)]
        self.headers = Headers.from_python(pairs) if pairs else None
        self._form = self._line_form(options, reader, pairs)
        if reader:
            raise ConfigError(
                f"unknown --reader-property {min(reader)}: the known ones are {', '.join(READER_PROPERTIES)}"
            )
        self._files = options.files
        for path in self._files:
            _check_readable(path)
        self._by_line = options.by_line

    def _line_form(
        self, options: argparse.Namespace, reader: dict[str, str], pairs: list[tuple[str, bytes]]
    ) -> LineForm | None:
        """Return what lines are, if they are more than key and value; takes its properties out of `reader`."""
        delimiter = _bytes(reader.pop("headers.delimiter", "\t"))
        separator = _bytes(reader.pop("headers.separator", ","))
        key_separator = _bytes(reader.pop("headers.key.separator", ":"))
        has_headers = reader.pop("parse.headers", "false") == "true"
        if options.envelopes:
            others = {"parse.headers": has_headers, "-K": self.separator is not None, "-k": self.key is not None}
            other = next((name for name, is_given in others.items() if is_given), None)
            if other is not None:
                raise ConfigError(f"-J and {other} exclude each other: the lines have keys and headers of their own")
            return Envelopes(pairs)
        if not has_headers:
            return None
        if not (delimiter and separator and key_separator):
            raise ConfigError("headers.delimiter, headers.separator and headers.key.separator must not be empty")
        if self.key is not None:
            raise ConfigError("-k and parse.headers exclude each other: use parse.key=true")
        return HeaderedLines(delimiter, separator, key_separator, self.separator, self.null_marker, pairs)

    def blocks(self) -> Blocks:
        """Yield what is read."""
        if self._files and not self._by_line and self._form is None:
            for path in self._files:
                yield Rows(self._fixed_key(), self._column([Path(path).read_bytes()]), self.headers, None, 1)
            return
        if not self._files:
            buffer: Any = sys.stdin.buffer
            yield from self._lines(getattr(buffer, "raw", buffer))  # a buffer takes "nothing now" for the end
        for path in self._files:
            with open(path, "rb", buffering=0) as file:
                yield from self._lines(file)

    def _lines(self, stream: Any) -> Blocks:
        rest = b""
        line_number = 1
        while True:
            data = read_some(stream, READ_BYTES)
            text = rest + data
            views, line_count, used = split_lines(text, self.delimiter[0], False, not data)
            if self._form is not None:
                yield from self._formed(self._form, Column.from_views(views, [text]), line_number)
                line_number += line_count
            else:
                rows = np.frombuffer(views, dtype=np.uint8).reshape(-1, 16)
                rows = rows[np.frombuffer(views, dtype=np.int32)[::4] > 0]  # kcat sends nothing for an empty line
                if len(rows):
                    yield self._split(text, rows.tobytes(), len(rows))
            if not data:
                return
            rest = text[used:]

    def _formed(self, form: LineForm, column: Column, line_number: int) -> Blocks:
        """Yield the records of lines, run after run without an empty line between."""
        lines: list[bytes] = []
        for number, line in enumerate(column.rows(0, len(column)), line_number):
            if line:
                lines.append(line)
            elif lines:
                yield form.rows(lines, number - len(lines), time.time_ns() // 1_000_000)
                lines = []
        if lines:
            yield form.rows(lines, line_number + len(column) - len(lines), time.time_ns() // 1_000_000)

    def _split(self, text: bytes, views: bytes, count: int) -> Rows:
        if self.separator is None:
            return Rows(self._fixed_key(), self._from_views(views, text, None), self.headers, None, count)
        keys, values, has_key = split_keys(text, views, self.separator)
        key = self._from_views(keys, text, np.frombuffer(has_key, dtype=np.bool_))
        return Rows(key, self._from_views(values, text, None), self.headers, None, count)

    def _from_views(self, views: bytes | bytearray, text: bytes, valid: NDArray[np.bool_] | None) -> Column:
        if self.null_marker == b"":
            filled = np.frombuffer(views, dtype=np.int32)[::4] > 0
            valid = filled if valid is None else valid & filled
        validity = None if valid is None else np.packbits(valid, bitorder="little").data
        column = Column.from_views(views, [text], validity)
        return self._column([column[i] for i in range(len(column))]) if self.null_marker else column

    def _column(self, rows: list[bytes | None]) -> Column:
        return Column.from_list([None if row == self.null_marker else row for row in rows])

    def _fixed_key(self) -> Column | None:
        return None if self.key is None else Column.constant(self.key)


def _check_readable(path: str) -> None:
    """Check, before anything is sent, that a file can be read. Raises ConfigError."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))  # of a FIFO, too, which need not have a writer yet
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if os.path.isdir(path):
        raise ConfigError(f"{path}: it is a directory; name its files")


def _limited(blocks: Blocks, limit: int | None) -> Blocks:
    """Yield the blocks up to a limit of rows in all."""
    left = limit
    for rows in blocks:
        if left is not None and rows.row_count >= left:
            yield rows.first(left)
            return
        left = None if left is None else left - rows.row_count
        yield rows


def _tee(value: Column, count: int, delimiter: bytes) -> None:
    for i in range(count):
        sys.stdout.buffer.write((value[i] or b"") + delimiter)
    sys.stdout.buffer.flush()


def _reader_property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--reader-property {text!r} is not NAME=VALUE")
    return name, value


def _bytes(text: str) -> bytes:
    return os.fsencode(text).decode("unicode_escape").encode("latin-1")
