"""A Kerberos KDC on loopback, with a realm of its own and all its files in a directory of its own.

MIT Kerberos does it: `krb5kdc`, `kdb5_util` and `kadmin.local`, in Debian the packages krb5-kdc and krb5-admin-server.
Processes find the realm by `$KRB5_CONFIG`, Java by `-Djava.security.krb5.conf`.
"""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from tests.kafka.ports import free_ports
from tests.kafka.process import start_process
from tests.kafka.runtime import KafkaUnavailableError

REALM = "KAFKAPROD.TEST"
START_TIMEOUT_S = 30.0
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


class Kdc:
    """A KDC. Used as a context manager; from one thread.

    Attributes:
        directory: Of all its files.
        config: A krb5.conf that names it, for clients and servers.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="kdc-"))
        self.config = self.directory / "krb5.conf"
        (self._port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._create()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = start_process([*self._env_command(), _found("krb5kdc"), "-n"], self.directory / "krb5kdc.out")
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError as error:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError(f"no KDC: {(self.directory / 'krb5kdc.out').read_text()}") from error
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Stop it; its database stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_TIMEOUT_S)
            self._process = None

    def close(self) -> None:
        """Stop it and delete its files."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def add(self, principal: str, *, ticket_s: int | None = None) -> Path:
        """Add a principal with a random key; return a keytab with it.

        Args:
            principal: Without its realm.
            ticket_s: How long its tickets are valid at most; None: an hour.
        """
        life = "" if ticket_s is None else f'-maxlife "{ticket_s} seconds" '
        self._administrate(f"addprinc {life}-randkey {principal}")
        return self.write_keytab(principal)

    def write_keytab(self, principal: str) -> Path:
        """Give a principal another key; write its keytab again, in one step, and return its path."""
        keytab = self.directory / f"{re.sub('[^a-z0-9.-]', '-', principal)}.keytab"
        temporary = keytab.with_suffix(".new")
        self._administrate(f"ktadd -k {temporary} {principal}")
        temporary.rename(keytab)
        return keytab

    def change_key(self, principal: str) -> None:
        """Give a principal another key that no keytab has."""
        self._administrate(f"cpw -randkey {principal}")

    def remove(self, principal: str) -> None:
        """Take a principal out of the database."""
        self._administrate(f"delprinc -force {principal}")

    def log_in(self, principal: str, keytab: Path, cache: Path, *, ticket_s: int = 3600) -> None:
        """Put a ticket into a credential cache, as `kinit` by hand."""
        command = [_found("kinit"), "-l", f"{ticket_s}s", "-c", str(cache), "-k", "-t", str(keytab), principal]
        self._run(command)

    def tickets_given(self, client: str) -> int:
        """Return how often a client has got a first ticket."""
        log = (self.directory / "kdc.log").read_text()
        return len(re.findall(rf"AS_REQ .* ISSUE: .* {re.escape(client)}@{REALM} for krbtgt/", log))

    def config_with(self, port: int) -> Path:
        """Return a krb5.conf that names another port for the KDC."""
        other = self.directory / f"krb5-{port}.conf"
        other.write_text(self._client_config(port))
        return other

    def _create(self) -> None:
        self.config.write_text(self._client_config(self._port))
        (self.directory / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self._port}\n kdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {self.directory}/principals\n"
            f"  key_stash_file = {self.directory}/stash\n  max_life = 1h\n"
            "  supported_enctypes = aes256-cts:normal\n }\n"
            f"[logging]\n kdc = FILE:{self.directory}/kdc.log\n"
        )
        self._run([_found("kdb5_util"), "-r", REALM, "create", "-s", "-P", "of the test"])

    def _client_config(self, port: int) -> str:
        return (
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        )

    def _administrate(self, query: str) -> None:
        self._run([_found("kadmin.local"), "-r", REALM, "-q", query])

    def _env_command(self) -> list[str]:
        return ["env", f"KRB5_CONFIG={self.config}", f"KRB5_KDC_PROFILE={self.directory}/kdc.conf"]

    def _run(self, command: list[str]) -> None:
        done = subprocess.run([*self._env_command(), *command], capture_output=True, text=True, timeout=60)
        if done.returncode or "while" in done.stderr:  # kadmin.local ends well whatever failed
            raise RuntimeError(f"{command[0]} {command[-1]}: {done.stdout}{done.stderr}")


def _found(program: str) -> str:
    path = shutil.which(program, path=_PATH)
    if path is None:
        raise KafkaUnavailableError(
            f"{program} is not installed: no KDC can be started (apt-get install krb5-kdc krb5-admin-server krb5-user)"
        )
    return path
