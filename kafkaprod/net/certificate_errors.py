"""Which side refused whose certificate, by OpenSSL's error. No I/O.

With TLS 1.3 a client's handshake is complete before the server has looked at the client's certificate: the refusal
comes as an alert, with the first read.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

_ALERTS: Final[Mapping[str, str]] = {  # by what OpenSSL calls them, after SSLV3_, TLSV1_ or TLSV13_ALERT_
    "CERTIFICATE_EXPIRED": ": it has expired",
    "CERTIFICATE_REVOKED": ": it is revoked",
    "CERTIFICATE_REQUIRED": ", which is missing: give ssl_certfile and ssl_keyfile",
    "UNKNOWN_CA": ": the broker does not trust its authority",
    "BAD_CERTIFICATE": ", or misses it (ssl_certfile, ssl_keyfile)",
    "CERTIFICATE_UNKNOWN": "",
    "UNSUPPORTED_CERTIFICATE": "",
}


def is_certificate_error(error: BaseException | None) -> bool:
    """Return whether one side refused the other's certificate."""
    return _is_refused_here(error) or refusal_of_own(error) is not None


def refusal_of_own(error: BaseException | None) -> str | None:
    """Return what to say where the broker refused this client's certificate; None: it did not."""
    reason = getattr(error, "reason", None) if _is_a("SSLError", error) else None
    if not isinstance(reason, str):
        return None
    why = _ALERTS.get(reason.partition("_ALERT_")[2])
    return None if why is None else f"the broker refused this client's certificate{why}"


def _is_refused_here(error: BaseException | None) -> bool:
    return _is_a("SSLCertVerificationError", error)


def _is_a(name: str, error: BaseException | None) -> bool:
    # Loaded, if there was a handshake; else another thread may be in the middle of importing it.
    kind = getattr(sys.modules.get("ssl"), name, None)
    return kind is not None and isinstance(error, kind)
