"""Which files to load, what they are, and their bytes without compression."""

from __future__ import annotations

import bz2
import contextlib
import glob
import gzip
import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

import lz4.frame
import zstandard

from kafkaprod.loader.errors import LoadError
from kafkaprod.loader.stdin import open_stdin
from kafkaprod.loader.zstd_frames import WholeFrames

STDIN: Final = "-"
FORMATS: Final = ("lines", "jsonl", "json", "csv", "tsv", "parquet", "arrow")
COMPRESSIONS: Final = ("none", "gzip", "zstd", "lz4", "bz2", "zip")

_FORMAT_OF_SUFFIX: Final = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".txt": "lines",
    ".log": "lines",
}
_COMPRESSION_OF_SUFFIX: Final = {
    ".gz": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".lz4": "lz4",
    ".bz2": "bz2",
    ".zip": "zip",
}
_COMPRESSION_OF_MAGIC: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"BZh": "bz2",
    b"PK\x03\x04": "zip",
}
_FORMAT_OF_MAGIC: Final = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}


@dataclass(frozen=True, slots=True)
class Source:
    """One input: a file, a member of a zip archive, or stdin (`-`).

    Attributes:
        size: Bytes of the file as it is on disk; None where that is not known.
        mtime_ns: When it was last changed; 0 for stdin.
    """

    path: str
    format: str
    compression: str = "none"
    member: str = ""
    size: int | None = None
    mtime_ns: int = 0

    @property
    def name(self) -> str:
        """For people."""
        if self.path == STDIN:
            return "stdin"
        return f"{self.path}:{self.member}" if self.member else self.path


def find_sources(names: Sequence[str], format_name: str | None = None, compression: str | None = None) -> list[Source]:
    """The inputs that names, globs and directories stand for, in order.

    Args:
        names: Paths, patterns, directories (all their files, by name), or `-`.
        format_name: Of all of them; None: told by each name or its first bytes.
        compression: Likewise.

    Raises:
        LoadError: Nothing matches, or what it is cannot be told.
        OSError: A file cannot be read.
    """
    if list(names).count(STDIN) > 1:
        raise LoadError("stdin (-) can be loaded once, and is named twice")
    sources = [source for path in _paths(names) for source in _sources_at(path, format_name, compression)]
    if not sources:
        raise LoadError(f"no input: {', '.join(names)} holds no file")
    return sources


def _paths(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name == STDIN:
            yield name
        elif os.path.isdir(name):
            files = sorted(path for path in Path(name).rglob("*") if path.is_file())
            yield from (str(path) for path in files if not path.name.startswith((".", "_")) and not _is_ours(path))
        elif os.path.exists(name) or not glob.has_magic(name):
            yield name
        else:
            matches = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
            if not matches:
                raise LoadError(f"no file matches {name}")
            yield from matches


def _is_ours(path: Path) -> bool:
    return path.name.endswith(".load.json")


def _sources_at(path: str, format_name: str | None, compression: str | None) -> Iterator[Source]:
    if path == STDIN:
        yield Source(path, format_name or "lines", compression or "none")
        return
    with open(path, "rb") as file:
        head = file.read(8)
        status = os.fstat(file.fileno())
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    codec = compression or _compression(suffixes, head)
    if suffixes and suffixes[-1] in _COMPRESSION_OF_SUFFIX:
        suffixes.pop()
    if codec != "zip":
        yield Source(
            path, format_name or _format(path, suffixes, head, codec), codec, "", status.st_size, status.st_mtime_ns
        )
        return
    for info in _zip_members(path):
        member_suffixes = [suffix.lower() for suffix in Path(info.filename).suffixes]
        kind = format_name or _format(f"{path}:{info.filename}", member_suffixes, b"", codec)
        yield Source(path, kind, codec, info.filename, status.st_size, status.st_mtime_ns)


def _zip_members(path: str) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as archive:
            return [info for info in archive.infolist() if not info.is_dir()]
    except zipfile.BadZipFile as error:
        raise LoadError(f"{path} is not a whole zip archive: {error}") from error


def _compression(suffixes: list[str], head: bytes) -> str:
    for magic, codec in _COMPRESSION_OF_MAGIC.items():
        if head.startswith(magic):
            return codec
    if suffixes and suffixes[-1] in _COMPRESSION_OF_SUFFIX and head:
        return _COMPRESSION_OF_SUFFIX[suffixes[-1]]
    return "none"


def _format(name: str, suffixes: list[str], head: bytes, codec: str) -> str:
    if codec == "none":
        for magic, kind in _FORMAT_OF_MAGIC.items():
            if head.startswith(magic):
                return kind
    if suffixes and suffixes[-1] in _FORMAT_OF_SUFFIX:
        return _FORMAT_OF_SUFFIX[suffixes[-1]]
    raise LoadError(f"{name}: its name does not tell the format; say --format {'|'.join(FORMATS)}")


@contextlib.contextmanager
def open_source(source: Source) -> Iterator[IO[bytes]]:
    """The bytes of an input, decompressed; closed at the end. Raises OSError, LoadError."""
    with contextlib.ExitStack() as stack:
        if source.path == STDIN:
            raw: Any = open_stdin()
            yield raw if source.compression == "none" else _decompressed(io.BufferedReader(raw), source.compression)
        elif source.compression == "zip":
            archive = stack.enter_context(zipfile.ZipFile(source.path))
            yield stack.enter_context(archive.open(source.member))
        else:
            file = stack.enter_context(open(source.path, "rb", buffering=0))
            stream = _decompressed(file, source.compression)
            stack.callback(stream.close)
            yield stream


def _decompressed(raw: Any, compression: str) -> Any:
    if compression == "gzip":
        return _gzip_module().open(raw, "rb")
    if compression == "zstd":
        whole = cast(IO[bytes], WholeFrames(raw))
        return zstandard.ZstdDecompressor().stream_reader(whole, read_across_frames=True, closefd=False)
    if compression == "lz4":
        return lz4.frame.open(raw, "rb")
    if compression == "bz2":
        return bz2.open(raw, "rb")
    if compression == "zip":
        archive = zipfile.ZipFile(io.BytesIO(raw.read()))
        return archive.open(archive.namelist()[0])
    return raw


def _gzip_module() -> Any:
    try:
        from isal import igzip
    except ImportError:
        return gzip
    return igzip
