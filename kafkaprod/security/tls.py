"""An `ssl.SSLContext` from options: PEM files, TLS 1.2 or later, chain and host name verified.

A context that the user made is used unchanged and never passes through here. New files (rotated certificates) take
effect with the next connection, by a new context; connections that are open keep theirs. The system's store of
authorities counts as such a file.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
import threading
from collections.abc import Callable
from typing import Final

from kafkaprod.config.connection_options import ConnectionOptions
from kafkaprod.config.oauth_options import OAuthOptions
from kafkaprod.errors import ConfigError

_FILES: Final = ("ssl_cafile", "ssl_crlfile", "ssl_certfile", "ssl_keyfile")
_TEXTS: Final = ("ssl_ca_pem", "ssl_certificate_pem", "ssl_key_pem", "ssl_password")

logger = logging.getLogger("kafkaprod.security")


class CertificateFiles:
    """The context of a client, made again when one of the files behind it has changed. Thread-safe.

    While new files cannot be used, as for a moment when the certificate is new and its key is not there yet, it is the
    last one that could be made.

    Args:
        options: The `ssl_` options.
        check_use: Raises ConfigError if the files may no longer be read; called before they are read again.

    Attributes:
        context: The last one made.

    Raises:
        ConfigError: As `client_context`.
    """

    def __init__(self, options: ConnectionOptions, check_use: Callable[[], None] = lambda: None) -> None:
        self._options = options
        self._check_use = check_use
        self._lock = threading.Lock()
        self._seen = self._look()
        self.context = client_context(options)

    @property
    def can_change(self) -> bool:
        """Whether there is a file, a text in one or in a variable, or the system's store."""
        options = self._options
        texts = (getattr(options, name) for name in _TEXTS)
        return bool(self._paths()) or any(text is not None and text.is_live for text in texts)

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection. Blocks: it looks at the files, and reads them if they changed.

        While another thread does so, which may take long where a file system hangs, it is the last one.
        """
        if not self._lock.acquire(blocking=False):
            return self.context
        try:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                try:
                    self._check_use()
                    self.context = client_context(self._options)
                except ConfigError as error:
                    logger.warning("the changed certificate files are not used: %s", error)
                else:
                    logger.info("the certificate files have changed: new connections use them")
            return self.context
        finally:
            self._lock.release()

    def _look(self) -> list[object]:
        """Return what is another when a file was written or replaced."""
        texts = (getattr(self._options, name) for name in _TEXTS)
        seen: list[object] = [text.reveal() for text in texts if text is not None and text.is_live]
        for path in self._paths():
            try:
                found = os.stat(path)
            except OSError:
                seen.append(None)
            else:
                seen.append((found.st_ino, found.st_size, found.st_mtime_ns))
        return seen

    def _paths(self) -> list[str | os.PathLike[str]]:
        """Return the files, and the system's file and directory of authorities where those are used."""
        named = [getattr(self._options, name) for name in _FILES]
        if self._options.ssl_cafile is None and self._options.ssl_ca_pem is None:
            store = ssl.get_default_verify_paths()
            named += [store.cafile, store.capath]
        return [path for path in named if path is not None]


def client_context(options: ConnectionOptions) -> ssl.SSLContext:
    """Build the context of a client from the `ssl_` options, `ssl_context` apart.

    Raises:
        ConfigError: A file is missing or not PEM, the key does not fit, or its password is wrong or absent.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies chain and host name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = options.ssl_check_hostname
    context.hostname_checks_common_name = False  # only subject alternative names count (RFC 6125)
    _load_authorities(context, options)
    _load_own_certificate(context, options)
    if options.ssl_ciphers is not None:
        try:
            context.set_ciphers(options.ssl_ciphers)
        except ssl.SSLError as error:
            raise ConfigError(f"ssl_ciphers={options.ssl_ciphers!r} selects no cipher OpenSSL knows") from error
    return context


def endpoint_context(options: OAuthOptions) -> ssl.SSLContext | None:
    """Build the context for a token endpoint; None if the system's authorities are used.

    Raises:
        ConfigError: `https_ca_location` or `https_ca_pem` cannot be loaded.
    """
    if options.https_ca_location is None and options.https_ca_pem is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    if options.https_ca_location is not None:
        _load_pem(context, "https_ca_location", options.https_ca_location)
    if options.https_ca_pem is not None:
        _load_pem_text(context, "https_ca_pem", options.https_ca_pem)
    return context


def _load_pem_text(context: ssl.SSLContext, option: str, text: str) -> None:
    try:
        context.load_verify_locations(cadata=text)
    except (ValueError, ssl.SSLError) as error:
        raise ConfigError(f"{option} of {len(text)} characters cannot be loaded as PEM: {error}") from error


def _load_authorities(context: ssl.SSLContext, options: ConnectionOptions) -> None:
    if options.ssl_ca_pem is not None:
        _load_pem_text(context, "ssl_ca_pem", options.ssl_ca_pem.reveal())
    elif options.ssl_cafile is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_pem(context, "ssl_cafile", options.ssl_cafile)
    if options.ssl_crlfile is not None:
        _load_pem(context, "ssl_crlfile", options.ssl_crlfile)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def _load_pem(context: ssl.SSLContext, option: str, path: str | os.PathLike[str]) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{option}={os.fspath(path)!r} cannot be loaded as PEM: {error}") from error


def _load_own_certificate(context: ssl.SSLContext, options: ConnectionOptions) -> None:
    if options.ssl_certificate_pem is not None:
        _load_own_pem(context, options)
        return
    if options.ssl_certfile is None:
        if options.ssl_keyfile is not None:
            raise ConfigError("ssl_keyfile is given without ssl_certfile")
        return
    try:
        context.load_cert_chain(options.ssl_certfile, options.ssl_keyfile, _password_of(options))
    except (OSError, ssl.SSLError) as error:
        files = f"ssl_certfile={os.fspath(options.ssl_certfile)!r}"
        if options.ssl_keyfile is not None:
            files += f", ssl_keyfile={os.fspath(options.ssl_keyfile)!r}"
        raise ConfigError(
            f"{files} cannot be loaded (not PEM, key does not fit, or wrong password): {error}"
        ) from error


def _load_own_pem(context: ssl.SSLContext, options: ConnectionOptions) -> None:
    """Load certificate and key from text. OpenSSL reads them from files only: a private one that is removed at once."""
    parts = [part.reveal().strip() for part in (options.ssl_key_pem, options.ssl_certificate_pem) if part is not None]
    with tempfile.TemporaryDirectory(prefix="kafkaprod-") as directory:  # mode 0700
        path = os.path.join(directory, "own.pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write("\n".join([*parts, ""]))
        try:
            context.load_cert_chain(path, None, _password_of(options))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"ssl_certificate_pem and ssl_key_pem cannot be loaded (not PEM, key does not fit, or wrong password): "
                f"{error}"
            ) from None


def _password_of(options: ConnectionOptions) -> Callable[[], str]:
    """Return what gives OpenSSL the key's password: without a callback it would read one from the terminal."""
    password = options.ssl_password

    def give_password() -> str:  # called for an encrypted key only
        if password is None:
            raise ConfigError("the private key is encrypted and ssl_password is not given")
        return password.reveal()

    return give_password
