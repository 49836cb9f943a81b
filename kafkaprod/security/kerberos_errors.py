"""What failed of a login with Kerberos, with its remedy. Codes: krb5.h of MIT Kerberos, RFC 4120 section 7.5.9."""

from __future__ import annotations

from typing import Any, Final

from kafkaprod.errors import AuthenticationError, ConnectionLostError, KafkaError

_FIRST: Final = -1765328384  # KRB5KDC_ERR_NONE
_KEYTAB: Final = "write the keytab again (ktutil, or ktadd of kadmin), and name it in sasl_kerberos_keytab"
_NO_TICKET: Final = "run kinit, or give sasl_kerberos_keytab and sasl_kerberos_principal"
_NETWORK: Final = "is the KDC up, and does krb5.conf name its host and port in [realms]?"

_BROKERS_KEYTAB: Final = "the broker's keytab lacks the key of that principal: write it there again"
_NO_KEY: Final = "check sasl_kerberos_principal: has the keytab a key for it? klist -k shows what it has"

_REMEDIES: Final[dict[int, str]] = {
    1: "the client's entry in the Kerberos database has expired: renew it there",
    6: "check sasl_kerberos_principal and its realm; the Kerberos database has no such client",
    7: "check sasl_kerberos_service_name, and that the brokers' principals have the names that clients connect to "
    "(sasl_kerberos_domain_name is another one)",
    12: "the KDC's policy forbids it: see the KDC's log",
    14: "the KDC and this machine share no encryption type: see permitted_enctypes in krb5.conf",
    18: "the KDC has locked the client's principal: unlock it there",
    23: "the client's password has expired: change it, and " + _KEYTAB,
    24: "the keytab's key is not the client's any more: " + _KEYTAB,
    31: "the keytab's key is not the client's any more: " + _KEYTAB,
    32: "the ticket has ended: " + _NO_TICKET,
    35: _BROKERS_KEYTAB,
    36: "the ticket is for another principal: check sasl_kerberos_principal, or run kinit for it",
    37: "this machine's clock differs from the KDC's or the broker's: set it by NTP",
    41: _BROKERS_KEYTAB,
    44: _BROKERS_KEYTAB,
    45: _BROKERS_KEYTAB,
    154: "krb5.conf has no such realm: add it, or check the domain_realm section",
    156: _NETWORK,
    179: _KEYTAB,
    181: _NO_KEY,
    184: _KEYTAB,
    195: _NO_TICKET,
    220: "the KDC's name cannot be resolved: check [realms] in krb5.conf",
    224: "krb5.conf names no default_realm: add it, or give sasl_kerberos_principal with its realm",
}
_RETRIED: Final = frozenset({156, 220})  # a KDC comes back by itself
_BY_NAME: Final = {
    "ExpiredContextError": "the ticket has ended: " + _NO_TICKET,
    "ExpiredCredentialsError": "the ticket has ended: " + _NO_TICKET,
    "MissingCredentialsError": _NO_TICKET,
}


def login_error(error: Any, what: str, *, has_keytab: bool) -> KafkaError:
    """Return the error of this package for one of the library.

    Args:
        error: A GSSError: it has `min_code`, the code of the mechanism, and `get_all_statuses`.
        what: What was done.
        has_keytab: Whether tickets come from a keytab, not from `kinit`.
    """
    number = (int(error.min_code) - _FIRST) & 0xFFFFFFFF
    remedy = _REMEDIES.get(number) or _BY_NAME.get(type(error).__name__)
    if has_keytab and remedy == _NO_TICKET:
        remedy = _NO_KEY
    text = f"GSSAPI: {what}: {_reason(error)}" + (f" ({remedy})" if remedy else "")
    return ConnectionLostError(text) if number in _RETRIED else AuthenticationError(text)


def _reason(error: Any) -> str:
    """Return what the mechanism says, else what GSSAPI says of it."""
    texts = [*error.get_all_statuses(error.min_code, False), *error.get_all_statuses(error.maj_code, True)]
    return next((text for text in texts if text and text != "Success"), type(error).__name__)
