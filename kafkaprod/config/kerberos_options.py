"""The options of a login with Kerberos (GSSAPI), with the names of Kafka, librdkafka and kafka-python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkaprod.config.kinds import Path, Text
from kafkaprod.config.oauth_options import OAuthOptions
from kafkaprod.config.option import LOW, MEDIUM, Section

_KERBEROS: Final = Section("Kerberos")
SERVICE_NAME: Final = "kafka"


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class KerberosOptions(OAuthOptions):
    """The third part of the table; see `ProducerOptions`."""

    sasl_kerberos_service_name: str = _KERBEROS.option(
        SERVICE_NAME,
        Text(),
        MEDIUM,
        "The first part of the brokers' principal, `kafka/broker.example.com@EXAMPLE.COM` (GSSAPI).",
    )
    sasl_kerberos_domain_name: str | None = _KERBEROS.option(
        None,
        Text(),
        LOW,
        "The second part of that principal where it is no broker's own name. None: the host that is connected to.",
    )
    sasl_kerberos_principal: str | None = _KERBEROS.option(
        None,
        Text(),
        MEDIUM,
        "This client's principal. None: the first one of the keytab, or the one of the credential cache.",
    )
    sasl_kerberos_keytab: str | None = _KERBEROS.option(
        None,
        Path(),
        MEDIUM,
        "Keytab with the client's key. Tickets are then fetched, and fetched again before they end. None: the "
        "credential cache of the environment (`kinit`, `$KRB5CCNAME`), or the keytab in `$KRB5_CLIENT_KTNAME`.",
    )
