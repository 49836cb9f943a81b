"""What the network layer needs to connect: the options, and what is made from them once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkaprod.config.connection_options import ConnectionOptions
from kafkaprod.errors import AuthenticationError
from kafkaprod.net.certificate_errors import is_certificate_error
from kafkaprod.net.network import SOCKETS, Network
from kafkaprod.retry import ExponentialBackoff
from kafkaprod.security.sasl import MechanismFactory, PasswordLogins

if TYPE_CHECKING:
    import ssl

    from kafkaprod.net.proxy import Proxy
    from kafkaprod.security.tls import CertificateFiles

SOFTWARE_NAME: Final = "kafkaprod"  # brokers count clients by it (KIP-511)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ConnectionSettings:
    """Settings of all connections of one client.

    Attributes:
        options: Names, times and sizes, as the user set them.
        software_version: Sent to the broker with SOFTWARE_NAME.
        tls: Context for TLS; None: plain TCP.
        mechanism: Makes a SASL mechanism for each login; None: no login.
        credentials: User name and password of the logins that begin from now on; None: there are none.
        certificate_files: Give each connection a context in place of `tls`; None: nothing can change.
        network: Makes the connections.
        proxy: Makes them in place of `network`; None: no proxy.
    """

    options: ConnectionOptions
    software_version: str = "0"
    tls: ssl.SSLContext | None = None
    mechanism: MechanismFactory | None = None
    network: Network = SOCKETS
    proxy: Proxy | None = None
    credentials: PasswordLogins | None = None
    certificate_files: CertificateFiles | None = None

    def may_be_accepted_later(self, error: AuthenticationError) -> bool:
        """Return whether what was refused may be accepted later: passwords, tokens and certificates rotate.

        A context of the user's own may be changed while it is in use.
        """
        if is_certificate_error(error.__cause__):
            return self.certificate_files is not None or self.options.ssl_context is not None
        return self.mechanism is not None and (self.credentials is None or self.credentials.can_change)

    @property
    def reconnect_backoff(self) -> ExponentialBackoff:
        """The wait before attempt n."""
        return ExponentialBackoff(self.options.reconnect_backoff_ms, self.options.reconnect_backoff_max_ms)

    @property
    def setup_timeout(self) -> ExponentialBackoff:
        """The bound of attempt n (KIP-601)."""
        first_ms = self.options.socket_connection_setup_timeout_ms
        return ExponentialBackoff(first_ms, self.options.socket_connection_setup_timeout_max_ms)
