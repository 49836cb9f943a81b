"""The broker's side of TLS as an `ssl.SSLContext`."""

from __future__ import annotations

import ssl

from kafkaprod.errors import ConfigError


def server_context(certificate: str, key: str, client_authority: str | None = None) -> ssl.SSLContext:
    """TLS 1.2 or later, with the certificate chain and key in these PEM files.

    Args:
        certificate: Path of the chain, the broker's own first.
        key: Path of its private key, without a password.
        client_authority: Path of the authorities of clients' certificates; None: clients need none.

    Raises:
        ConfigError: A file cannot be read or does not fit.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
        if client_authority is not None:
            context.load_verify_locations(client_authority)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"TLS files {certificate}, {key}, {client_authority}: {error}") from error
    return context


def _no_password() -> str:
    """Instead of asking on the terminal."""
    raise ssl.SSLError("the private key has a password")
