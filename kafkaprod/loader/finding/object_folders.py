"""Find the objects of a store that an address, a folder of it or a pattern stands for.

A store has no folders, only keys with slashes. `s3://bucket/day/` is all that begins so; `s3://bucket/day` is the
object of that name, or else the same folder. What programs write so that a folder seems to be there is left out: keys
that end with a slash, empty objects that are named as a folder, and `…_$folder$`.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

from kafkaprod.loader.finding.folders import is_hidden
from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.loader.opening.remote.access import Access
from kafkaprod.loader.opening.remote.addresses import WEB, identity, scheme_of
from kafkaprod.loader.opening.remote.finding import find_object
from kafkaprod.loader.opening.remote.objects import RemoteObject
from kafkaprod.loader.opening.remote.store_objects import (
    EXTRAS,
    MissingObjectError,
    errors_of_store,
    head_of,
    key_of,
    open_bucket,
)

MOST_KEYS: Final = 100_000
_MARKER: Final = "_$folder$"
_LOGS: Final = ("_delta_log", ".hoodie", "_spark_metadata")


def find_objects(address: str, access: Access, size: int) -> Iterator[tuple[RemoteObject, bytes, str]]:
    """Yield the objects of an address, in the order of their keys.

    Args:
        address: As the user gave it.
        access: How to read them.
        size: How many bytes of each to read now.

    Yields:
        An object, its first bytes, and the part of its key that the user did not name.

    Raises:
        LoadRefusedError, LoadError: There is none, or it cannot be read.
    """
    if scheme_of(address) in WEB:
        yield *find_object(address, access, size), ""
        return
    if scheme_of(address) not in EXTRAS:
        raise LoadRefusedError(
            f"{identity(address)}: a load reads no {scheme_of(address)}:// addresses: copy the object to a file first"
        )
    meta = _meta_of(address, access)
    if meta is not None:
        yield *find_object(address, access, size, meta), ""
        return
    found = list_objects(address, access)
    if not found:
        raise LoadRefusedError(f"{identity(address)}: there is no such object, and nothing below it")
    for place, below, listed in found:
        yield *find_object(place, access, size, listed), below


def is_listed(address: str, access: Access) -> bool:
    """Return whether an address stands for all objects that are below it, or match it. Raises as `find_objects`."""
    return scheme_of(address) in EXTRAS and _meta_of(address, access) is None


def list_objects(address: str, access: Access) -> list[tuple[str, str, Any]]:
    """Return the address of each object of a folder or pattern, its part that the user did not name, and its status.

    Raises:
        LoadRefusedError: There are too many, or they are parts of a table.
    """
    key = key_of(address)
    bucket_address = f"{address[: len(address) - len(key)].rstrip('/')}/"
    if glob.has_magic(key):
        parts = key.split("/")
        named = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        prefix = "/".join(parts[:named])
    else:
        prefix, parts = key.rstrip("/"), ["**"]
    listed = _list(f"{bucket_address}{prefix}", prefix, access)
    _check_is_no_table(address, [meta["path"] for meta in listed])
    folders = {meta["path"][:at] for meta in listed for at in _slashes(meta["path"])}
    start = len(prefix) + 1 if prefix else 0
    return [
        (f"{bucket_address}{path}", path[start:], meta)
        for meta in sorted(listed, key=lambda meta: str(meta["path"]))
        if _fits((path := meta["path"]).split("/"), parts)
        and path != prefix
        and not path.endswith((_MARKER, "/"))
        and not (meta["size"] == 0 and path in folders)
        and not any(is_hidden(part) for part in path[start:].split("/"))
    ]


def _meta_of(address: str, access: Access) -> Any:
    """Return what the store says of the object that has just this address; None: there is none, or a folder's mark."""
    key = key_of(address)
    if not key or key.endswith("/"):
        return None
    try:
        meta = head_of(address, access)
    except MissingObjectError:
        return None
    is_mark = meta["size"] == 0 and bool(_list(address, key, access, most=1))
    return None if is_mark else meta


def _list(address: str, prefix: str, access: Access, most: int = MOST_KEYS) -> list[Any]:
    bucket = open_bucket(address, access)
    import obstore

    def once() -> list[Any]:
        found: list[Any] = []
        with errors_of_store(address, access, is_begun=False):
            for page in obstore.list(bucket, prefix=prefix or None):
                found += page
                if len(found) > most:
                    break
        return found

    found = access.first_tries(identity(address)).until_done(once)
    if most == MOST_KEYS < len(found):
        raise LoadRefusedError(
            f"{identity(address)} has more than {MOST_KEYS:,} objects below it: name folders that have fewer"
        )
    return found


def _check_is_no_table(address: str, keys: list[str]) -> None:
    """Refuse a table, whose files are rows only together with its log."""
    for key in keys:
        parts = key.split("/")[:-1]
        log = next((part for part in parts if part in _LOGS), None)
        if log is None and parts[-1:] == ["metadata"] and key.endswith(".metadata.json"):
            log = "metadata"
        if log is not None:
            raise LoadRefusedError(
                f"{identity(address)} is a table: {key} is of its log, which a load reads only from a folder of this "
                "machine. Its files alone would bring rows that were deleted or never committed: read it with a "
                "library for such tables, and send it with send_table"
            )


def _fits(names: list[str], parts: list[str]) -> bool:
    """Return whether the parts of a key match those of a pattern, `**` any number of them."""
    if not parts:
        return not names
    if parts[0] == "**":
        return any(_fits(names[i:], parts[1:] or ["*"]) for i in range(len(names)))
    return bool(names) and fnmatchcase(names[0], parts[0]) and _fits(names[1:], parts[1:])


def _slashes(path: str) -> list[int]:
    return [at for at, character in enumerate(path) if character == "/"]
