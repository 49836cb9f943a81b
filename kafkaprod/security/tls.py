"""An `ssl.SSLContext` from options: PEM files, TLS 1.2 or later, chain and host name verified.

A context that the user made is used unchanged and never passes through here. New files (rotated certificates) take
effect with a new context; connections that are open keep theirs.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable

from kafkaprod.config.connection_options import ConnectionOptions
from kafkaprod.config.oauth_options import OAuthOptions
from kafkaprod.errors import ConfigError


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
