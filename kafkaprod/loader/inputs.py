"""Find the inputs of a load, recognize what they are, and open them without compression and as UTF-8."""

from __future__ import annotations

import contextlib
import glob
import gzip
import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, cast

import lz4.frame
import zstandard

from kafkaprod.loader import manifest_file
from kafkaprod.loader.encodings import UTF8, Utf8Stream
from kafkaprod.loader.errors import LoadRefusedError
from kafkaprod.loader.pipes import STDIN, Pipe, is_pipe_name, open_pipe, open_stdin_file, pipe_identity
from kafkaprod.loader.zstd_frames import WholeFrames

FORMATS: Final = ("lines", "jsonl", "json", "csv", "tsv", "parquet", "arrow")
_BINARY_FORMATS: Final = ("parquet", "arrow")
HEAD_BYTES: Final = 8  # that tell compression and format
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
    """One input: a file, a member of a zip archive, or a pipe (`-` is stdin).

    Attributes:
        size: Bytes of the file on disk; None where that is not known.
        mtime_ns: When it was last changed; 0 for pipes.
        encoding: The encoding of its text; None: not given, taken for UTF-8 and checked.
        pipe: The open pipe, if it can be read only once.
    """

    path: str
    format: str
    compression: str = "none"
    member: str = ""
    size: int | None = None
    mtime_ns: int = 0
    encoding: str | None = None
    pipe: Pipe | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Return the name for messages; bytes of it that are not UTF-8 are escaped."""
        path = "stdin" if self.path == STDIN else os.fsencode(self.path).decode(errors="backslashreplace")
        return f"{path}:{self.member}" if self.member else path

    @property
    def has_text_offsets(self) -> bool:
        """Return whether offsets in the text are offsets in the file."""
        return self.compression == "none" and self.encoding in (None, UTF8)


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
    names: Sequence[str], format_name: str | None = None, compression: str | None = None, encoding: str | None = None
) -> list[Source]:
    """Find the inputs that names, globs and directories stand for, in order. Pipes are opened.

    Args:
        names: Paths, patterns, directories (all their files, by name), or `-`.
        format_name: Their format; None: recognized by each name or its first bytes.
        compression: Their compression; None: recognized by the first bytes.
        encoding: The encoding of all their texts; None: UTF-8.

    Raises:
        LoadRefusedError: Nothing matches, a format cannot be recognized, or a pipe is named twice.
        OSError: A file cannot be read.
    """
    options = InputOptions(format_name, compression, encoding)
    sources: list[Source] = []
    pipes: set[tuple[int, int]] = set()
    for path in _paths(names):
        if is_pipe_name(path):
            identity = pipe_identity(path)
            if identity in pipes:
                raise LoadRefusedError(
                    f"{'stdin (-)' if path == STDIN else path} can be read only once, and is named twice"
                )
            pipes.add(identity)
            sources += _sources_of_pipe(path, options)
        else:
            sources += _sources_at(path, options)
    if not sources:
        raise LoadRefusedError(f"no input: there is no file in {', '.join(names)}")
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
                raise LoadRefusedError(f"no file matches {name}")
            yield from matches


def _is_ours(path: Path) -> bool:
    return path.name.endswith(manifest_file.SUFFIX)


def _sources_of_pipe(path: str, options: InputOptions) -> Iterator[Source]:
    pipe = open_pipe(path)
    if pipe is None:
        stream = open_stdin_file()
        head = stream.read(HEAD_BYTES)
    else:
        head = pipe.head(HEAD_BYTES)
    suffixes = _suffixes(path)
    codec = options.compression or _compression(suffixes, head)
    if path == STDIN and not suffixes:
        suffixes = [".txt"]
    base = Source(path, "", codec, encoding=options.encoding, pipe=pipe)
    if codec == "zip":
        yield from _members(base, _zip_members(base), options)
    else:
        yield replace(base, format=options.format or _format(base.name, _without_codec(suffixes), head, codec))


def _sources_at(path: str, options: InputOptions) -> Iterator[Source]:
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
            status = os.fstat(file.fileno())
    except OSError as error:
        raise LoadRefusedError(f"{path}: {error.strerror}") from error
    suffixes = _suffixes(path)
    codec = options.compression or _compression(suffixes, head)
    base = Source(path, "", codec, "", status.st_size, status.st_mtime_ns, options.encoding)
    if codec == "zip":
        yield from _members(base, _zip_members(base), options)
    else:
        yield replace(base, format=options.format or _format(base.name, _without_codec(suffixes), head, codec))


def _members(base: Source, members: Sequence[zipfile.ZipInfo], options: InputOptions) -> Iterator[Source]:
    for info in members:
        source = replace(base, member=info.filename)
        kind = options.format or _format(source.name, _suffixes(info.filename), b"", base.compression)
        yield replace(source, format=kind)


def _suffixes(name: str) -> list[str]:
    return [suffix.lower() for suffix in Path(name).suffixes]


def _without_codec(suffixes: list[str]) -> list[str]:
    return suffixes[:-1] if suffixes and suffixes[-1] in _COMPRESSION_OF_SUFFIX else suffixes


def _zip_members(source: Source) -> list[zipfile.ZipInfo]:
    try:
        with _open_archive(source) as archive:
            return [info for info in archive.infolist() if not info.is_dir()]
    except zipfile.BadZipFile as error:
        raise LoadRefusedError(f"{source.name} is not a whole zip archive: {error}") from error


def _open_archive(source: Source) -> zipfile.ZipFile:
    if source.pipe is not None:
        return zipfile.ZipFile(source.pipe.spool())
    return zipfile.ZipFile(cast(IO[bytes], open_stdin_file()) if source.path == STDIN else source.path)


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
    raise LoadRefusedError(f"{name}: the format cannot be recognized by its name; use --format {'|'.join(FORMATS)}")


@contextlib.contextmanager
def open_source(source: Source) -> Iterator[IO[bytes]]:
    """Open an input from its first byte on, decompressed and as UTF-8; it is closed at the end.

    Raises:
        OSError, LoadRefusedError: It cannot be read.
    """
    with contextlib.ExitStack() as stack:
        stream: Any
        if source.compression == "zip":
            stream = stack.enter_context(stack.enter_context(_open_archive(source)).open(source.member))
        else:
            raw = stack.enter_context(_open_raw(source))
            stream = _decompressed(raw, source.compression)
            stack.callback(stream.close)
        if source.encoding is not None and source.encoding != UTF8 and source.format not in _BINARY_FORMATS:
            stream = Utf8Stream(stream, source.encoding, source.name)
        yield stream


def _open_raw(source: Source) -> io.RawIOBase:
    if source.pipe is not None:
        return source.pipe.open()
    return open_stdin_file() if source.path == STDIN else open(source.path, "rb", buffering=0)


def _decompressed(raw: io.RawIOBase, compression: str) -> Any:
    if compression == "none":
        return raw
    # Decompressors take a short read of a pipe for the end.
    whole: Any = raw if raw.seekable() else io.BufferedReader(raw)
    if compression == "gzip":
        return _gzip_module().open(whole, "rb")
    if compression == "zstd":
        frames = cast(IO[bytes], WholeFrames(whole))
        return zstandard.ZstdDecompressor().stream_reader(frames, read_across_frames=True, closefd=False)
    if compression == "lz4":
        return lz4.frame.open(whole, "rb")
    return _bz2_module().open(whole, "rb")


def _gzip_module() -> Any:
    try:
        from isal import igzip
    except ImportError:
        return gzip
    return igzip


def _bz2_module() -> Any:
    try:
        import bz2  # some builds of Python lack it, and nothing but such an input needs it
    except ImportError as error:
        raise LoadRefusedError("this Python was built without bz2: decompress the input first") from error
    return bz2
