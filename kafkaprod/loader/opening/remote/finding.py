"""Find an object by its address: what it is now, with its first bytes."""

from __future__ import annotations

from typing import Any

from kafkaprod.loader.opening.remote.access import Access
from kafkaprod.loader.opening.remote.addresses import WEB, checked_web_address, scheme_of
from kafkaprod.loader.opening.remote.objects import RemoteObject
from kafkaprod.loader.opening.remote.spooled_objects import SpooledObject
from kafkaprod.loader.opening.remote.store_objects import find_store_object
from kafkaprod.loader.opening.remote.web_objects import (
    Asker,
    WebObject,
    first_answer,
    found_of,
    is_identity,
)


def find_object(address: str, access: Access, size: int, meta: Any = None) -> tuple[RemoteObject, bytes]:
    """Return the object of an address, and its first bytes.

    Args:
        address: As the user gave it.
        access: How to ask.
        size: How many bytes.
        meta: What its store says of it; None: it is not known, or no object of a store.

    Raises:
        LoadRefusedError, LoadError: There is none, or it cannot be read.
    """
    if scheme_of(address) not in WEB:
        return find_store_object(address, access, size, meta)
    address = checked_web_address(address)
    asker = Asker(address, access)
    found = access.first_tries(asker.name).until_done(lambda: _find_once(asker, access, size))
    if found is not None:
        return found
    spooled = SpooledObject(address, access)
    return spooled, bytes(spooled.read_range(0, min(size, spooled.size), None))


def _find_once(asker: Asker, access: Access, size: int) -> tuple[WebObject, bytes] | None:
    """Return the object and its first bytes; None: it must be copied. Raises PassingError, LoadError."""
    answer = first_answer(asker, size)
    found = found_of(answer, answer.total)
    has_ranges = answer.status == 206 or (answer.status == 416 and found.size == 0)
    if not has_ranges or not is_identity(found, answer):
        asker.drop(answer)
        return None
    remote = WebObject(asker.address, access, found, asker)
    room = bytearray(min(size, found.size))
    if room:
        remote.take(answer, 0, memoryview(room))
    else:
        asker.drop(answer)
    return remote, bytes(room)
