"""Objects of S3, Google Cloud Storage and Azure, by obstore: credentials and endpoints are those of the environment.

Each range is read under the ETag of the object that was found, and each answer is compared with it, as some stores
ignore the condition. obstore tries nothing again: it would not say so, nor prove what it continues.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from kafkaprod.config.secret_sources import URL_VARIABLE, is_url_allowed
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError, missing_package
from kafkaprod.loader.opening.remote.access import Access
from kafkaprod.loader.opening.remote.addresses import identity, scheme_of
from kafkaprod.loader.opening.remote.objects import Closing, PassingError, gone, refused, replaced

EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure"}
_STATUS: Final = re.compile(r"status code: ([0-9]{3}[A-Za-z ]*)")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_LASTING: Final = re.compile(r"status code: (?:400|404|405|409|411|416|501)")
_EXPIRED: Final = ("ExpiredToken", "TokenExpired", "RequestExpired", "InvalidToken", "AuthenticationFailed")
_PANIC: Final = "PanicException"  # what a bug of a library in Rust raises
_CHUNK_BYTES: Final = 1 << 20


class MissingObjectError(LoadRefusedError):
    """A store has no object of this name."""


class StoreFound(NamedTuple):
    """What an object was when it was found."""

    size: int
    etag: str
    version: str

    @classmethod
    def of(cls, meta: Any) -> StoreFound:
        """Return what an answer of the store says."""
        etag = meta["e_tag"] or ""
        return cls(meta["size"], "" if etag.startswith("W/") else etag, meta["version"] or "")


class StoreObject:
    """An object of a store. See `RemoteObject`."""

    is_near = False
    note = ""

    def __init__(self, address: str, access: Access, found: StoreFound) -> None:
        self.name = identity(address)
        self.size = found.size
        is_google = scheme_of(address) == "gs" and bool(found.version)
        self.validator = f"version:{found.version}" if is_google else f"etag:{found.etag}"
        self.counts = access.counts
        self._address = address
        self._access = access
        self._found = found
        self._bucket: Any = None

    def __reduce__(self) -> Any:
        return StoreObject, (self._address, self._access, self._found)

    def read_range(self, start: int, end: int, closing: Closing | None) -> bytes | bytearray:
        """Read them from the store, in as many requests as it takes."""
        room = bytearray(end - start)
        tries = self._access.tries(self.name, closing)
        filled = 0

        def once() -> None:
            nonlocal filled
            for chunk in self._chunks(start + filled, end):
                room[filled : filled + len(chunk)] = chunk
                filled += len(chunk)
                tries.came(len(chunk))
            if filled < len(room):
                raise PassingError(f"an answer ended {len(room) - filled:,} bytes before the end of its range")

        tries.until_done(once)
        return room

    def check_end(self) -> None:
        """Return: every range was proven."""

    def _chunks(self, start: int, end: int) -> Iterator[Any]:
        """Yield the bytes of a range, compared with what the object was. Raises PassingError, LoadError."""
        import obstore

        if self._bucket is None:
            self._bucket = open_bucket(self._address, self._access)
        options: Any = {"range": (start, end)}
        if self._found.etag:
            options["if_match"] = self._found.etag
        with errors_of_store(self._address, self._access, is_begun=True):
            answer = obstore.get(self._bucket, key_of(self._address), options=options)
            now = StoreFound.of(answer.meta)
            if (now.size, now.etag) != (self._found.size, self._found.etag) or (
                self.validator.startswith("version:") and now.version != self._found.version
            ):
                raise replaced(self.name, _shown(self._found), _shown(now))
            if tuple(answer.range) != (start, end):
                raise LoadError(
                    f"{self.name}: the store was sent a request for bytes {start:,} to {end - 1:,} and answers with "
                    f"others: copy the object to a file, and load that"
                )
            left = end - start
            for chunk in answer.stream(min_chunk_size=_CHUNK_BYTES):
                if len(chunk) > left:
                    raise LoadError(f"{self.name}: the store sends more than the range that was requested")
                left -= len(chunk)
                yield chunk


@contextlib.contextmanager
def errors_of_store(address: str, access: Access, *, is_begun: bool) -> Iterator[None]:
    """Turn obstore's errors into ours, with nothing of their texts but status and code: they have addresses.

    Args:
        address: The object's, or the folder's.
        access: Counts the request.
        is_begun: The object was found before.

    Raises:
        PassingError: Another try may succeed.
        LoadError: It will not.
    """
    import obstore.exceptions as store_errors

    access.counts.add(requests=1)
    try:
        yield
    except (store_errors.BaseError, FileNotFoundError, PermissionError, TimeoutError) as error:
        raise _error_of(error, identity(address), is_begun=is_begun) from None
    except LoadError:
        raise
    except ValueError as error:
        raise LoadRefusedError(
            f"{identity(address)}: obstore takes no key with empty parts, `.`, `..` or control characters: copy the "
            "object to another key, or to a file"
        ) from error
    except BaseException as error:
        if type(error).__name__ == _PANIC:  # is no Exception
            raise LoadRefusedError(f"{identity(address)} cannot be requested by obstore: {error!s:.200}") from None
        raise


def _error_of(error: BaseException, name: str, *, is_begun: bool) -> Exception:
    """Return our error for one of obstore's."""
    import obstore.exceptions as store_errors

    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    shown = " ".join(found[1].strip() for found in (status, code) if found) or type(error).__name__
    is_expired = code is not None and code[1] in _EXPIRED
    denied = (store_errors.PermissionDeniedError, store_errors.UnauthenticatedError, PermissionError)
    if isinstance(error, denied) or is_expired:
        return refused(name, shown) if is_begun else LoadRefusedError(str(refused(name, shown)))
    if isinstance(error, store_errors.NotFoundError | FileNotFoundError):
        return gone(name, shown) if is_begun else MissingObjectError(f"{name}: the store answers {shown}")
    if isinstance(error, store_errors.PreconditionError):
        return replaced(name, "another ETag", f"one for which the store answers {shown}")
    if "non-partial response" in text:
        return LoadError(f"{name}: the store gives no ranges: copy the object to a file, and load that")
    if "169.254." in text:
        return LoadRefusedError(
            f"{name}: the environment has no credentials for it, and this machine has no role of its own. "
            "AWS_SKIP_SIGNATURE=true reads public buckets"
        )
    if _LASTING.search(text) or isinstance(error, store_errors.InvalidPathError | store_errors.NotSupportedError):
        return LoadRefusedError(f"{name} cannot be read: the store answers {shown}")
    return PassingError(f"the store answers {shown}")


def open_bucket(address: str, access: Access) -> Any:
    """Return obstore's store of an address.

    Raises:
        LoadRefusedError: The package is missing, the address may not be read, or the environment does not say enough.
    """
    scheme = scheme_of(address)
    try:
        from obstore import store
    except ImportError as error:
        raise missing_package("obstore", f"{scheme}://", EXTRAS[scheme]) from error
    name = address.partition("://")[2].partition("/")[0]
    if not name:
        raise LoadRefusedError(f"{identity(address)} names no bucket: use {scheme}://BUCKET/KEY")
    url = _web_address_of(address)
    if not is_url_allowed(url, access.allowed_urls):
        raise LoadRefusedError(
            f"{identity(address)} is not allowed: allowed_urls, or the variable {URL_VARIABLE}, does not name {url}, "
            "where it is"
        )
    options: dict[str, Any] = {"retry_config": {"max_retries": 0}, "client_options": {}}
    endpoint = _endpoint_of(scheme)
    if endpoint.startswith("http://"):
        options["client_options"] = {"allow_http": True}
    kinds: dict[str, Callable[[], Any]] = {
        "s3": lambda: store.S3Store(name, **options),
        "gcs": lambda: store.GCSStore(name, **options),
        "azure": lambda: store.AzureStore.from_url(f"{scheme}://{name}/", **options),
    }
    try:
        return kinds[EXTRAS[scheme]]()
    except Exception as error:  # obstore has no class of its own for them; texts may have what the environment has
        raise LoadRefusedError(
            f"{identity(address)}: the environment does not say how to reach it ({type(error).__name__}): see the "
            "variables of the store's own tools, such as AWS_REGION or AZURE_STORAGE_ACCOUNT_NAME"
        ) from None


def key_of(address: str) -> str:
    """Return the key: literally what is behind the bucket."""
    return address.partition("://")[2].partition("/")[2]


def find_store_object(address: str, access: Access, size: int, meta: Any = None) -> tuple[StoreObject, bytes]:
    """Return an object and its first bytes.

    Args:
        address: The object's.
        access: How to read it.
        size: How many bytes.
        meta: What a listing or an earlier answer says of it; None: it is not known.

    Raises:
        LoadRefusedError, LoadError: There is none, it cannot be read, or has nothing to know it by.
    """
    if meta is None:
        meta = head_of(address, access)
    found = StoreFound.of(meta)
    if not found.etag and not found.version:
        raise LoadRefusedError(
            f"{identity(address)}: the store gives no ETag, so another object would not be noticed: copy it to a file, "
            "and load that"
        )
    remote = StoreObject(address, access, found)
    return remote, bytes(remote.read_range(0, min(size, found.size), None)) if found.size else b""


def head_of(address: str, access: Access) -> Any:
    """Return what the store says of an object. Raises as `find_store_object`."""
    bucket = open_bucket(address, access)
    import obstore

    def once() -> Any:
        with errors_of_store(address, access, is_begun=False):
            return obstore.head(bucket, key_of(address))

    return access.first_tries(identity(address)).until_done(once)


def _endpoint_of(scheme: str) -> str:
    """Return the endpoint that the environment names; empty: the provider's."""
    names = {"s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"), "azure": ("AZURE_STORAGE_ENDPOINT",)}
    return next((os.environ[name] for name in names.get(EXTRAS[scheme], ()) if os.environ.get(name)), "")


def _web_address_of(address: str) -> str:
    """Return where an object is on the web, for `allowed_urls`."""
    scheme, rest = scheme_of(address), address.partition("://")[2]
    kind = EXTRAS[scheme]
    if kind == "azure":
        container, _, key = rest.partition("/")
        container, _, host = container.partition("@")
        account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
        host = host or f"{account}.blob.core.windows.net"
        return f"{_endpoint_of(scheme).rstrip('/') or f'https://{host}'}/{container}/{key}"
    default = "https://s3.amazonaws.com" if kind == "s3" else "https://storage.googleapis.com"
    return f"{(_endpoint_of(scheme) or default).rstrip('/')}/{rest}"


def _shown(found: StoreFound) -> str:
    etag = f"the ETag {found.etag:.80}" if found.etag else "no ETag"
    return f"{found.size:,} bytes, {etag}" + (f", version {found.version:.80}" if found.version else "")
