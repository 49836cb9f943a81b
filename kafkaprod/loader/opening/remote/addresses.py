"""Recognize addresses, and show them without what is secret in them.

A signed address has a signature in its query, others have a token there, and an address may have a password in front of
its host. None of them may be in a message, a manifest, a report or a log: they have what `identity` returns.
"""

from __future__ import annotations

import hashlib
import os
import re
import urllib.parse
from typing import Final

from kafkaprod.loader.opening.errors import LoadRefusedError

WEB: Final = ("http", "https")
_SCHEME: Final = re.compile(r"(https?|s3|s3a|gs|az|abfss?|hdfs)://", re.IGNORECASE)
# These parts of a query sign an address for some time; with a new signature it leads to the same object.
_SIGNATURE: Final = re.compile(r"x-amz-.*|x-goog-.*|awsaccesskeyid|googleaccessid|expires|signature|sig|se|sp|sv|sr|st|"
                               r"spr|skoid|sktid|skt|ske|sks|skv|key-pair-id|policy", re.IGNORECASE)  # fmt: skip
_PORTS: Final = {"http": 80, "https": 443}


def is_address(name: str) -> bool:
    """Return whether a name is an address, and no file has it."""
    return _SCHEME.match(name) is not None and not os.path.lexists(name)


def scheme_of(address: str) -> str:
    """Return the scheme in lower case."""
    return address.partition(":")[0].lower()


def identity(address: str) -> str:
    """Return the name of what an address leads to: the same in all directories, and without secrets.

    Of a query that is no signature it has a digest, as another query leads to another object.
    """
    if scheme_of(address) not in WEB:
        scheme, _, rest = address.partition("://")
        place, slash, key = rest.partition("/")
        return f"{scheme.lower()}://{place.rpartition('@')[2] if scheme_of(address) == 's3' else place}{slash}{key}"
    try:
        parts = urllib.parse.urlsplit(address)
        origin = origin_of(address)
    except ValueError:
        return f"{scheme_of(address)}://…"
    pairs = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
    others = sorted((name, value) for name, value in pairs if not _SIGNATURE.fullmatch(name))
    digest = hashlib.sha256(repr(others).encode(errors="surrogateescape")).hexdigest()[:8] if others else ""
    return f"{origin}{parts.path or '/'}{f'?query-{digest}' if digest else ''}"


def origin_of(address: str) -> str:
    """Return scheme, host and port of a web address, the port only where it is not the usual one. Raises ValueError."""
    parts = urllib.parse.urlsplit(address)
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}" + ("" if parts.port in (None, _PORTS.get(scheme)) else f":{parts.port}")


def path_of(address: str) -> str:
    """Return the part that has the names of folders and of the object, percent-decoded where the address is."""
    if scheme_of(address) in WEB:
        return urllib.parse.unquote(urllib.parse.urlsplit(address).path)
    return address.partition("://")[2].partition("/")[2]


def checked_web_address(address: str) -> str:
    """Return a web address with everything percent-encoded that a request cannot have.

    Raises:
        LoadRefusedError: It has no host, an impossible port, or a user and a password.
    """
    try:
        parts = urllib.parse.urlsplit(address)
        has_user = parts.username is not None or parts.password is not None
        origin = origin_of(address) if parts.hostname and parts.port != 0 else ""
    except ValueError:
        origin, has_user = "", False
    if has_user:
        raise LoadRefusedError(
            f"{identity(address)}: an address with a user and a password shows them to everybody who lists processes: "
            "leave them out, and give --http-header Authorization=env:VARIABLE"
        )
    if not origin:
        raise LoadRefusedError(f"{identity(address)} has no host, or a port that cannot be: use https://HOST/PATH")
    safe = "%/:@!$&'()*+,;=~-._?"
    path = urllib.parse.quote(parts.path or "/", safe=safe.replace("?", ""))
    query = urllib.parse.quote(parts.query, safe=safe)
    return f"{origin}{path}{f'?{query}' if query else ''}"
