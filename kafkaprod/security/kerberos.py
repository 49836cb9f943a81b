"""GSSAPI: login with a Kerberos ticket. Source: RFC 4752 section 3.1, RFC 4121; KIP-12.

    client                                       broker
    first()  a ticket for the broker's service   ->
                                                 <-  a proof that it has the service's key
    step()   nothing                             ->
                                                 <-  wrapped: which security layers it offers
    step()   wrapped: none of them               ->
                                                 <-  nothing: the login is complete

The package `gssapi` calls the system's Kerberos library, which finds tickets, asks the KDC for others and keeps them:
in the credential cache of the environment, or, with a keytab, in memory. It reads the keytab whenever a new ticket is
due, so a keytab that was written again counts then. Only `first` may talk to a KDC.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from kafkaprod.clock import monotonic_s
from kafkaprod.config.kerberos_options import KerberosOptions
from kafkaprod.errors import AuthenticationError, ConfigError, ConnectionLostError, KafkaError
from kafkaprod.locks import locked
from kafkaprod.security.kerberos_errors import login_error
from kafkaprod.security.sasl import MechanismFactory
from kafkaprod.security.single_call import SingleCall, StillRunningError

NO_LAYER: Final = 1
LAYERS_BYTES: Final = 4  # a bit mask of layers, and three bytes of the largest message
PATIENCE_SHARE: Final = 0.8  # of a connection's set-up: its own timeout could not name the KDC
TICKETS_KEPT_S: Final = 60.0  # at least, for the library never frees a cache in memory

_cache_numbers = itertools.count()


def kerberos_mechanisms(options: KerberosOptions) -> MechanismFactory:
    """Return what makes a mechanism for each login.

    Raises:
        ConfigError: The package is missing, or the keytab cannot be read.
    """
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"sasl_mechanism=GSSAPI needs a package: pip install 'kafkaprod[kerberos]', which needs the headers of a "
            f"Kerberos library, such as libkrb5-dev ({type(error).__name__}: {error})"
        ) from None
    keytab = options.sasl_kerberos_keytab
    if keytab is not None and not os.access(keytab, os.R_OK):
        raise ConfigError(f"sasl_kerberos_keytab={keytab} cannot be read: check the path and who may read it")
    tickets = Tickets(options, gssapi)
    return lambda host: KerberosMechanism(host, tickets)


class Tickets:
    """Begins logins with tickets of one client. Thread-safe.

    Args:
        options: Name the service and the client.
        library: The module `gssapi`.
        clock: Seconds, monotonic.
    """

    def __init__(self, options: KerberosOptions, library: Any, clock: Callable[[], float] = monotonic_s) -> None:
        self.library = library
        self._options = options
        self._clock = clock
        setup_ms = min(options.socket_connection_setup_timeout_ms, options.request_timeout_ms)
        self._call = SingleCall("kafkaprod-kerberos", setup_ms / 1000 * PATIENCE_SHARE)
        self._lock = threading.RLock()  # held for memory only
        self._unfinished: set[str] = set()  # hosts whose last login has not ended well
        self._cache = ""
        self._cached_at_s = 0.0

    def begin(self, host: str) -> tuple[Any, bytes]:
        """Return a security context with a broker, and its first token.

        Raises:
            AuthenticationError: There is no ticket, and repeating this does not give one.
            ConnectionLostError: The KDC does not answer.
        """
        service = self.service(host)
        cache = self._choose_cache(host)
        what = f"no ticket for {service}"
        try:
            return self._call.make(lambda: self._context(service, cache))
        except StillRunningError:
            raise ConnectionLostError(
                f"GSSAPI: {what} within {self._call.patience_s:g} s: a KDC or a name server does not answer (is the "
                "KDC of krb5.conf up, and can it be reached from here?)"
            ) from None
        except self.library.exceptions.GSSError as error:
            raise self.error(error, what) from None
        except NotImplementedError as error:
            raise ConfigError(
                f"sasl_kerberos_keytab cannot be used with this machine's Kerberos library ({error}): use MIT Kerberos "
                "1.11 or later, or run kinit"
            ) from None

    def error(self, error: Any, what: str) -> KafkaError:
        """Return the error of this package for one of the library; see `login_error`."""
        return login_error(error, what, has_keytab=self._options.sasl_kerberos_keytab is not None)

    def service(self, host: str) -> str:
        """Return the service's name in the form of GSSAPI: `kafka@broker.example.com`."""
        return f"{self._options.sasl_kerberos_service_name}@{self._options.sasl_kerberos_domain_name or host}"

    @locked
    def note_success(self, host: str) -> None:
        """Keep the tickets: the broker has taken one."""
        self._unfinished.discard(host)

    @locked
    def _choose_cache(self, host: str) -> str:
        """Return the name of a cache in memory; an empty one if the broker has not taken the last ticket."""
        is_refused = host in self._unfinished and self._clock() - self._cached_at_s >= TICKETS_KEPT_S
        if not self._cache or is_refused:
            self._cache = f"MEMORY:kafkaprod-{os.getpid()}-{next(_cache_numbers)}"
            self._cached_at_s = self._clock()
            self._unfinished.clear()
        self._unfinished.add(host)
        return self._cache

    def _context(self, service: str, cache: str) -> tuple[Any, bytes]:
        """Ask the library, which may ask name servers and a KDC."""
        library = self.library
        flags = library.RequirementFlag
        context = library.SecurityContext(
            name=library.Name(service, library.NameType.hostbased_service),
            creds=self._credentials(cache),
            flags=[flags.mutual_authentication, flags.integrity],
            mech=library.MechType.kerberos,
            usage="initiate",
        )
        return context, context.step() or b""

    def _credentials(self, cache: str) -> Any:
        library, principal, keytab = (
            self.library,
            self._options.sasl_kerberos_principal,
            self._options.sasl_kerberos_keytab,
        )
        if principal is None and keytab is None:
            return None  # the library's own choice
        name = None if principal is None else library.Name(principal, library.NameType.kerberos_principal)
        store = None if keytab is None else {"client_keytab": keytab, "ccache": cache}
        return library.Credentials(name=name, usage="initiate", mechs=[library.MechType.kerberos], store=store)


class KerberosMechanism:
    """One GSSAPI login. See `security.sasl.Mechanism`.

    Args:
        host: The broker, by the name that is connected to.
        tickets: Begins the login.
    """

    name = "GSSAPI"

    def __init__(self, host: str, tickets: Tickets) -> None:
        self._host = host
        self._tickets = tickets
        self._context: Any = None
        self._has_chosen_layer = False

    def first(self) -> bytes:
        """Return a ticket for the broker; raises what `Tickets.begin` does."""
        self._context, token = self._tickets.begin(self._host)
        return token

    def step(self, challenge: bytes) -> bytes | None:
        """Check the broker's proof, then choose no security layer, then complete the login after an empty answer.

        Raises:
            AuthenticationError: The broker has not proved its identity, or breaks the rules of RFC 4752.
        """
        if self._context is None:
            raise AuthenticationError("GSSAPI: the server sent a message before the client's first one")
        try:
            if not self._context.complete:
                return self._context.step(challenge) or b""
            if not self._has_chosen_layer:
                return self._choose_no_layer(challenge)
        except self._tickets.library.exceptions.GSSError as error:
            raise self._tickets.error(error, f"the login at {self._service} has failed") from None
        if challenge:
            raise AuthenticationError(
                f"GSSAPI: {self._service} sent {len(challenge)} bytes after the end of the login, expected none"
            )
        self._tickets.note_success(self._host)
        return None

    @property
    def _service(self) -> str:
        return self._tickets.service(self._host)

    def _choose_no_layer(self, challenge: bytes) -> bytes:
        if not self._context.actual_flags & self._tickets.library.RequirementFlag.mutual_authentication:
            raise AuthenticationError(f"GSSAPI: {self._service} has not proved its identity")
        offer = self._context.unwrap(challenge).message
        if len(offer) != LAYERS_BYTES:
            raise AuthenticationError(
                f"GSSAPI: {self._service} offers security layers in {len(offer)} bytes, expected {LAYERS_BYTES}"
            )
        if not offer[0] & NO_LAYER:
            raise AuthenticationError(
                f"GSSAPI: {self._service} demands a security layer (offer {offer[0]}), and Kafka has none: let "
                "javax.security.sasl.qop be auth at the broker, and use SASL_SSL"
            )
        self._has_chosen_layer = True
        answer: bytes = self._context.wrap(bytes([NO_LAYER, 0, 0, 0]), False).message
        return answer
