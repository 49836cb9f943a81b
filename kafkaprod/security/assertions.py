"""Assertions: signed JSON web tokens by which a client proves who it is to an identity provider (RFC 7523, KIP-1139).

A ready one comes from a file. Signing one needs RSA or ECDSA, which Python's standard library does not have: the
package `cryptography` does it, the extra `oauth`.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from typing import Any

from kafkaprod.config.oauth_options import OAuthOptions
from kafkaprod.config.secret import read_secret_file
from kafkaprod.errors import ConfigError


def assertion(options: OAuthOptions, now_s: float) -> str | None:
    """Return an assertion by the options `sasl_oauthbearer_assertion_*`; None if they name neither file nor key.

    Args:
        options: The options of the client.
        now_s: Seconds since 1970.

    Raises:
        ConfigError: A file cannot be read, or the key cannot be used.
    """
    if options.sasl_oauthbearer_assertion_file is not None:
        return _read("sasl_oauthbearer_assertion_file", options.sasl_oauthbearer_assertion_file).strip()
    pem = _private_key_pem(options)
    if pem is None:
        return None
    header, claims = _template(options)
    header = {"typ": "JWT", **header, "alg": options.sasl_oauthbearer_assertion_algorithm}
    signed = f"{_encoded(header)}.{_encoded(claims | _claims(options, now_s))}"
    return f"{signed}.{_base64(_signature(options, pem, signed.encode()))}"


def _private_key_pem(options: OAuthOptions) -> bytes | None:
    if options.sasl_oauthbearer_assertion_private_key_pem is not None:
        return options.sasl_oauthbearer_assertion_private_key_pem.reveal().encode()
    path = options.sasl_oauthbearer_assertion_private_key_file
    return None if path is None else _read("sasl_oauthbearer_assertion_private_key_file", path).encode()


def _claims(options: OAuthOptions, now_s: float) -> dict[str, Any]:
    now = int(now_s)
    named = {
        "aud": options.sasl_oauthbearer_assertion_claim_aud,
        "iss": options.sasl_oauthbearer_assertion_claim_iss,
        "sub": options.sasl_oauthbearer_assertion_claim_sub,
        "jti": str(uuid.uuid4()) if options.sasl_oauthbearer_assertion_claim_jti_include else None,
    }
    times = {
        "iat": now,
        "nbf": now - options.sasl_oauthbearer_assertion_claim_nbf_seconds,
        "exp": now + options.sasl_oauthbearer_assertion_claim_exp_seconds,
    }
    return {name: value for name, value in named.items() if value is not None} | times


def _template(options: OAuthOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of header and payload that the template adds."""
    path = options.sasl_oauthbearer_assertion_template_file
    if path is None:
        return {}, {}
    try:
        template = json.loads(_read("sasl_oauthbearer_assertion_template_file", path))
        return dict(template.get("header", {})), dict(template.get("payload", {}))
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise ConfigError(
            f"sasl_oauthbearer_assertion_template_file={path!r} is not a JSON object with header and payload"
        ) from None


def _signature(options: OAuthOptions, pem: bytes, signed: bytes) -> bytes:
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    except ImportError:
        raise ConfigError("signing an assertion needs a package: pip install 'kafkaprod[oauth]'") from None
    passphrase = options.sasl_oauthbearer_assertion_private_key_passphrase
    try:
        key = serialization.load_pem_private_key(pem, None if passphrase is None else passphrase.reveal().encode())
    except (ValueError, TypeError) as error:  # neither names a byte of the key
        raise ConfigError(f"the private key of assertions cannot be used: {error}") from None
    algorithm = options.sasl_oauthbearer_assertion_algorithm
    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        halves = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
        return b"".join(half.to_bytes(32, "big") for half in halves)
    raise ConfigError(f"sasl_oauthbearer_assertion_algorithm={algorithm} does not fit the private key's kind")


def _read(option: str, path: str) -> str:
    try:
        return read_secret_file(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option}={path!r} cannot be read: {error}") from None


def _encoded(fields: Mapping[str, Any]) -> str:
    return _base64(json.dumps(fields, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
