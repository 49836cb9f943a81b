"""Arguments of the commands that run brokers: TLS, logins, Kafka's options."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Final

from kafkaprod.broker.settings.absent_options import is_absent, with_advice
from kafkaprod.config.properties import read_properties
from kafkaprod.errors import ConfigError

_PREFIX: Final = "KAFKA_"
_NO_OPTIONS: Final = frozenset(
    {
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
"""Variables of Kafka's scripts and images that set no option of a broker."""
_OPTION_HELP = (
    "an option of Kafka's brokers, group.min.session.timeout.ms=1000 say; counts more than the flags; repeatable"
)

_FILE_HELP = "options of a Kafka broker's server.properties; what this broker does not have is left out and named"
_ENVIRONMENT_HELP = "options of variables as Kafka's images take: KAFKA_NUM_PARTITIONS; they count more than the file"

_UI_HELP = "show topics, records, groups and transactions on a page of this machine; its address is printed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    add = parser.add_argument
    add("--tls-cert", metavar="FILE", help="listen with TLS: certificate chain (PEM)")
    add("--tls-key", metavar="FILE", help="its private key (PEM, without password)")
    add("--tls-client-ca", metavar="FILE", help="clients must have a certificate of these authorities")
    add("--sasl-users", metavar="FILE", help="clients must log in: lines of USER:PASSWORD")
    add("--ui", nargs="?", type=int, const=0, metavar="PORT", help=_UI_HELP)
    add("--properties", metavar="FILE", help=_FILE_HELP)
    add("--kafka-environment", action="store_true", help=_ENVIRONMENT_HELP)
    add("-o", "--option", action="append", default=[], metavar="NAME=VALUE", help=_OPTION_HELP)


def kafka_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the options of Kafka's brokers: of the file, of the environment, of the flags; the later count more.

    A file and an environment are made for another broker: what this one does not have is left out, with a line on
    stderr. A flag is meant for this broker, so the same name there is refused when the options are applied.

    Raises:
        ConfigError: One is not NAME=VALUE, or the file cannot be read.
    """
    elsewhere = {} if options.properties is None else read_properties(options.properties)
    if options.kafka_environment:
        elsewhere |= environment_options(os.environ)
    absent = sorted(filter(is_absent, elsewhere))
    if absent:
        print(f"left out, as this broker does not have them: {', '.join(map(with_advice, absent))}", file=sys.stderr)
    kept = {name: value for name, value in elsewhere.items() if not is_absent(name)}
    return {**kept, **dict(map(_parse_option, options.option))}


def environment_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options in variables, by the rule of Apache Kafka's image: `_` is `.`, `__` is `_`, `___` is `-`."""
    found = {}
    for variable, value in environment.items():
        if variable.startswith(_PREFIX) and variable not in _NO_OPTIONS:
            dotted = variable.removeprefix(_PREFIX).lower().replace("_", ".")
            found[dotted.replace("...", "-").replace("..", "_")] = value
    return found


def tls_files(options: argparse.Namespace) -> tuple[str, ...] | None:
    """Return certificate, key and perhaps the authority of clients; None without TLS.

    Raises:
        ConfigError: One of the first two is missing.
    """
    if options.tls_cert is None and options.tls_key is None and options.tls_client_ca is None:
        return None
    if options.tls_cert is None or options.tls_key is None:
        raise ConfigError("TLS needs both --tls-cert and --tls-key")
    authority = () if options.tls_client_ca is None else (options.tls_client_ca,)
    return (options.tls_cert, options.tls_key, *authority)


def users(options: argparse.Namespace) -> dict[str, str]:
    """Return user names and passwords; none if clients need not log in.

    Raises:
        ConfigError: The file has a line that is no user, or none that is one.
        OSError: The file cannot be read.
    """
    return {} if options.sasl_users is None else _read_users(options.sasl_users)


def _parse_option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--option {text!r} is not NAME=VALUE")
    return name, value


def _read_users(path: str) -> dict[str, str]:
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    found = {}
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        if not user or not colon or not password:
            raise ConfigError(f"line {number} of {path} is not USER:PASSWORD")
        found[user] = password
    if not found:
        raise ConfigError(f"{path} names no user")
    return found
