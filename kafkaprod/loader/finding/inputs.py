"""Find the inputs of a load, and recognize what they are."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kafkaprod.loader.finding.delta_tables import delta_files, is_delta_table
from kafkaprod.loader.finding.folders import check_same_columns, folder_columns, is_hidden, typed_columns
from kafkaprod.loader.finding.iceberg_tables import iceberg_files, is_iceberg_table
from kafkaprod.loader.finding.paths import find_paths
from kafkaprod.loader.opening.archives import ZipArchive
from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.loader.opening.opening import open_source, zip_members
from kafkaprod.loader.opening.pipes import STDIN, is_pipe_name, open_pipe, open_stdin_file, pipe_identity
from kafkaprod.loader.opening.remote.access import Access
from kafkaprod.loader.opening.remote.addresses import is_address, path_of
from kafkaprod.loader.opening.source import BINARY_FORMATS, Source

FORMATS: Final = ("lines", "jsonl", "json", "documents", "csv", "tsv", "parquet", "arrow", "orc", "avro")
HEAD_BYTES: Final = 8  # that tell compression and format
SHOWN_BYTES: Final = 512  # that tell text from other content, as far as they are there
COMPRESSIONS: Final = ("none", "gzip", "zstd", "lz4", "bz2", "xz", "zip")

_FORMAT_OF_SUFFIX: Final = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".geojson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".orc": "orc",
    ".avro": "avro",
    ".txt": "lines",
    ".log": "lines",
}
_COMPRESSION_OF_SUFFIX: Final = {
    ".gz": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".lz4": "lz4",
    ".bz2": "bz2",
    ".xz": "xz",
    ".zip": "zip",
}
_COMPRESSION_OF_MAGIC: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\0": "xz",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",  # an empty one
}
_LONGEST_MAGIC: Final = max(map(len, _COMPRESSION_OF_MAGIC))
# What would be read as lines of rubbish.
_NOT_READ: Final = {
    b"\xff\x06\0\0sNaP": "snappy frames",
    b"\x02\x21\x4c\x18": "lz4 of the old format",
    b"\x1f\x9d": "the output of compress",
    b"\x1f\xa0": "the output of compress",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"\x89LZO": "the output of lzop",
    b"PARE": "an encrypted Parquet file",
    b"FEA1": "a Feather file of version 1: write it again with a newer pyarrow or pandas",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "a document of Excel or Word",
}
_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_AT: Final = 257  # behind a name that ends with zeros
_SUFFIXES_OF_TAR: Final = (".tgz", ".tbz", ".tbz2", ".txz", ".tzst")
_WORKBOOK: Final = "[Content_Types].xml"  # every .xlsx is a zip archive that has it
_OPEN_DOCUMENT: Final = frozenset({"mimetype", "content.xml"})
_CONTROLS: Final = frozenset(
    {*range(1, 7), *range(14, 27), *range(28, 32)}
)  # that texts do not have, with few exceptions
_SKIPPABLE_FRAME: Final = b"\x2a\x4d\x18"  # behind 50 to 5F: of zstd or of lz4
_FORMAT_OF_MAGIC: Final = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"Obj\x01": "avro",
    b"ORC": "orc",
}
_IN_TEXTS: Final = (b"PAR1", b"PARE", b"ORC", b"FEA1", b"ARROW1")  # also begins a text such as `ORCID,name`
_BZ2_BLOCKS: Final = (b"1A", b"\x17r")  # begin the first block, and the end of an empty one


@dataclass(frozen=True, slots=True)
class InputOptions:
    """Holds what the user gave for all inputs.

    Attributes:
        format: None: recognized by each name or its first bytes.
        compression: None: recognized by the first bytes.
        encoding: See Source.
    """

    format: str | None = None
    compression: str | None = None
    encoding: str | None = None


def find_sources(
    names: Sequence[str],
    format_name: str | None = None,
    compression: str | None = None,
    encoding: str | None = None,
    column_types: Mapping[str, str] = MappingProxyType({}),
    table_version: int | None = None,
    access: Access | None = None,
) -> list[Source]:
    """Find the inputs that names, globs and directories stand for, in order. Pipes are opened.

    Args:
        names: Paths, patterns, directories (all their files, by name), or `-`.
        format_name: Their format; None: recognized by each name or its first bytes.
        compression: Their compression; None: recognized by the first bytes.
        encoding: The encoding of all their texts; None: UTF-8.
        column_types: The types of columns, which those of folders' names have, too.
        table_version: The version of Delta tables, or the snapshot of Iceberg tables, to read; None: the newest.
        access: How to read objects of other machines; None: without more headers.

    Raises:
        LoadRefusedError: Nothing matches, a format cannot be recognized, a pipe is named twice, or a table cannot be
            read as files.
        OSError: A file cannot be read.
    """
    options = InputOptions(format_name, compression, encoding)
    sources: list[Source] = []
    pipes: set[tuple[int, int]] = set()
    access = access or Access()
    found: list[Source]
    for name in names:
        if is_address(name):
            found = list(_sources_of_address(name, options, access))
            check_same_columns(found)
            sources += found
            continue
        if is_delta_table(name):
            sources += _sources_of_delta_table(name, options, table_version)
            continue
        if is_iceberg_table(name):
            sources += _sources_of_iceberg_table(name, options, table_version)
            continue
        found = []
        for path, below in find_paths([name]):
            if is_pipe_name(path):
                identity = pipe_identity(path)
                if identity in pipes:
                    raise LoadRefusedError(
                        f"{'stdin (-)' if path == STDIN else path} can be read only once, and is named twice"
                    )
                pipes.add(identity)
                found += _sources_of_pipe(path, options)
            else:
                columns = folder_columns(below)
                found += [replace(source, folder_columns=columns) for source in _sources_at(path, options)]
        check_same_columns(found)
        sources += found
    if not sources:
        raise LoadRefusedError(f"no input: there is no file in {', '.join(names)}")
    return typed_columns(sources, column_types)


def _sources_of_delta_table(name: str, options: InputOptions, version: int | None) -> Iterator[Source]:
    for path, missing, columns, found in delta_files(name, version):
        for source in _sources_at(path, options):
            yield replace(source, folder_columns=missing, table_version=found, table_columns=columns)


def _sources_of_iceberg_table(name: str, options: InputOptions, snapshot_id: int | None) -> Iterator[Source]:
    for path, missing, columns, found in iceberg_files(name, snapshot_id):
        for source in _sources_at(path, options):
            yield replace(source, folder_columns=missing, table_version=found, table_columns=columns)


def _sources_of_address(address: str, options: InputOptions, access: Access) -> Iterator[Source]:
    from kafkaprod.loader.finding.object_folders import find_objects  # what reads objects is loaded for addresses alone

    for remote, head, below in find_objects(address, access, SHOWN_BYTES):
        suffixes = _suffixes(path_of(remote.name))
        _check_no_tar(remote.name, suffixes, head)
        codec = options.compression or _compression(remote.name, suffixes, head)
        base = Source(remote.name, "", codec, size=remote.size, encoding=options.encoding, remote=remote)
        columns = folder_columns(below)
        yield from (replace(source, folder_columns=columns) for source in _with_formats(base, suffixes, head, options))


def _sources_of_pipe(path: str, options: InputOptions) -> Iterator[Source]:
    pipe = open_pipe(path)
    base = Source(path, "", encoding=options.encoding, pipe=pipe)
    if pipe is None:
        stream = open_stdin_file()
        head = stream.read(SHOWN_BYTES) or b""
        status = os.fstat(stream.fileno())
        base = replace(base, size=status.st_size, mtime_ns=status.st_mtime_ns, inode=(status.st_dev, status.st_ino))
    else:
        head = pipe.head(HEAD_BYTES, SHOWN_BYTES)
        if b"\0" in head:  # no text, which may come slowly
            head = pipe.head(SHOWN_BYTES, SHOWN_BYTES)
    suffixes = _suffixes(path)
    base = replace(base, compression=options.compression or _compression(base.name, suffixes, head))
    inner = head
    if base.compression not in ("none", "zip"):
        with open_source(replace(base, encoding=None)) as content:
            inner = content.head(HEAD_BYTES, SHOWN_BYTES)
    _check_no_tar(base.name, [], inner)
    if path == STDIN:
        suffixes = [".txt"]
        if base.compression not in ("none", "zip") and options.format is None:
            suffixes = [f".{kind}" for magic, kind in _FORMAT_OF_MAGIC.items() if _begins(inner, magic)] or suffixes
    for source in _with_formats(base, suffixes, head, options):
        if source.compression == "none" and options.compression is None and options.encoding is None:
            _check_text(source, head)
        yield source


def _sources_at(path: str, options: InputOptions) -> Iterator[Source]:
    try:
        with open(path, "rb") as file:
            head = file.read(SHOWN_BYTES)
            status = os.fstat(file.fileno())
    except OSError as error:
        raise LoadRefusedError(f"{path}: {error.strerror}") from error
    suffixes = _suffixes(path)
    _check_no_tar(path, suffixes, head)
    codec = options.compression or _compression(path, suffixes, head)
    identity = status.st_dev, status.st_ino
    base = Source(path, "", codec, "", status.st_size, status.st_mtime_ns, options.encoding, identity)
    yield from _with_formats(base, suffixes, head, options)


def _with_formats(base: Source, suffixes: list[str], head: bytes, options: InputOptions) -> Iterator[Source]:
    if base.compression == "zip":
        base = replace(base, archive=ZipArchive())
        yield from _members(base, zip_members(base), options)
        return
    kind = options.format or _format(base.name, _without_codec(suffixes), head, base.compression)
    yield replace(base, format=kind)


def _check_no_tar(name: str, suffixes: list[str], head: bytes) -> None:
    """Refuse an archive whose headers would be read as rows between those of its files."""
    is_named = _without_codec(suffixes)[-1:] == [".tar"] or (bool(suffixes) and suffixes[-1] in _SUFFIXES_OF_TAR)
    if is_named or (head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC) and b"\0" in head[:_TAR_MAGIC_AT]):
        raise LoadRefusedError(
            f"{name} is a tar archive, which a load cannot read: unpack it and load the files, or the one that is in "
            "it with `tar xOf`"
        )


def _check_text(source: Source, head: bytes) -> None:
    """Refuse a pipe that is taken for text only because nothing else is known of it, and is not text."""
    if source.format in BINARY_FORMATS or not _CONTROLS.intersection(head):
        return
    try:
        head[: len(head) - 3].decode()  # the last character may be cut
    except UnicodeDecodeError as error:
        raise LoadRefusedError(
            f"{source.name} is neither text nor of a format that its first bytes show: name its --format and its "
            "--compression, which may be none"
        ) from error


def _members(base: Source, members: Sequence[zipfile.ZipInfo], options: InputOptions) -> Iterator[Source]:
    names = {info.filename for info in members}
    if _WORKBOOK in names:
        raise LoadRefusedError(f"{base.name} is a document of Excel or Word: save its sheet as CSV")
    if names >= _OPEN_DOCUMENT:
        raise LoadRefusedError(f"{base.name} is a document of LibreOffice (.ods): save its sheet as CSV")
    for info in members:
        if any(is_hidden(part) for part in info.filename.split("/") if part not in (".", "..")):  # __MACOSX, .DS_Store
            continue
        source = replace(base, member=info.filename)
        kind = options.format or _format(source.name, _suffixes(info.filename), b"", base.compression)
        yield replace(source, format=kind)


def _suffixes(name: str) -> list[str]:
    return [suffix.lower() for suffix in Path(name).suffixes]


def _without_codec(suffixes: list[str]) -> list[str]:
    return suffixes[:-1] if suffixes and suffixes[-1] in _COMPRESSION_OF_SUFFIX else suffixes


def _compression(name: str, suffixes: list[str], head: bytes) -> str:
    what = next((what for magic, what in _NOT_READ.items() if _begins(head, magic)), None)
    if what is not None:
        raise LoadRefusedError(f"{name} is {what}, which a load cannot read: convert it first")
    for magic, codec in _COMPRESSION_OF_MAGIC.items():
        if head.startswith(magic):
            return codec
    if head.startswith(b"BZh") and head[3:4].isdigit() and head[4:6] in _BZ2_BLOCKS:
        return "bz2"
    begins_to_skip = head[1:4] == _SKIPPABLE_FRAME and head[0] >> 4 == 5
    named = _COMPRESSION_OF_SUFFIX.get(suffixes[-1]) if suffixes else None
    if named is not None:
        is_other = len(head) > _LONGEST_MAGIC and named != "zip" and not begins_to_skip and not head.startswith(b"BZh")
        if is_other:
            raise LoadRefusedError(
                f"{name} has the name of {named} and does not begin as {named} does: if it is not compressed, use "
                "--compression none"
            )
        return named
    if begins_to_skip:
        raise LoadRefusedError(f"{name} begins with a frame to skip, of zstd or lz4: use --compression zstd or lz4")
    return "none"


def _begins(head: bytes, magic: bytes) -> bool:
    """Return whether a file has these first bytes, and is not a text that happens to begin with them."""
    return head.startswith(magic) and (magic not in _IN_TEXTS or b"\0" in head or not _CONTROLS.isdisjoint(head))


def _format(name: str, suffixes: list[str], head: bytes, codec: str) -> str:
    if codec == "none":
        for magic, kind in _FORMAT_OF_MAGIC.items():
            if _begins(head, magic):
                return kind
    if suffixes and suffixes[-1] in _FORMAT_OF_SUFFIX:
        return _FORMAT_OF_SUFFIX[suffixes[-1]]
    raise LoadRefusedError(f"{name}: the format cannot be recognized by its name; use --format {'|'.join(FORMATS)}")
