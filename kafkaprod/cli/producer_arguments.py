"""Arguments shared by all commands that connect to a cluster: its address, options, files of options.

Precedence: flags, then `-X`, then the file given with `-F` or else named by KAFKAPROD_CONFIG, then the defaults.
"""

from __future__ import annotations

import argparse
import os
from typing import Any, Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.config import ProducerConfig, merge_options, read_properties
from kafkaprod.errors import ConfigError

ENVIRONMENT: Final = "KAFKAPROD_CONFIG"
ASKING_S: Final = 5


def add_cluster_arguments(parser: argparse.ArgumentParser, *, asks_only: bool = False) -> None:
    """Add the arguments; the names are kcat's and those of Kafka's own tools.

    Args:
        parser: Where to.
        asks_only: The command asks the cluster a question: without options it waits ASKING_S for the first broker.
    """
    patience = "max.block.ms, at most request.timeout.ms"
    add = parser.add_argument_group("cluster").add_argument
    add("-b", "--bootstrap-server", "--brokers", metavar="HOST:PORT,...", help="addresses of brokers")
    add(
        *("-X", "--producer-property", "--property"),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the producer, in any spelling; repeatable",
    )
    add(
        *("-F", "--producer.config", "--command-config"),
        dest="config_file",
        metavar="FILE",
        help=f"a .properties file of options (default: ${ENVIRONMENT})",
    )
    add(
        "--connect-timeout",
        type=above_zero,
        metavar="S",
        help="seconds to wait for the first broker (default: "
        + (f"{patience}, where one is given, else {ASKING_S})" if asks_only else f"{patience})"),
    )
    parser.set_defaults(asks_only=asks_only)


def above_zero(text: str) -> float:
    """Parse a number above 0, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def whole(text: str) -> int:
    """Parse a whole number from 0 on, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def count(text: str) -> int:
    """Parse a whole number from 1 on, for argparse."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def read_options(arguments: argparse.Namespace, **flags: Any) -> dict[str, Any]:
    """Return the producer options that the arguments set, by their own names.

    Args:
        arguments: With what add_cluster_arguments() added.
        flags: Options that other arguments stand for; None: not given.

    Raises:
        ConfigError: An option is unknown or wrong, a file cannot be read, or no address is given.
    """
    path = arguments.config_file or os.environ.get(ENVIRONMENT)
    from_file = {} if path is None else read_properties(path)
    given = {name: value for name, value in flags.items() if value is not None}
    if arguments.bootstrap_server is not None:
        given["bootstrap_servers"] = arguments.bootstrap_server
    options = merge_options(from_file, dict(map(_parse_property, arguments.producer_property)), given)
    if "bootstrap_servers" not in options:
        raise ConfigError(
            "no broker address: use -b HOST:PORT, or bootstrap.servers in a file given with -F or "
            f"named by ${ENVIRONMENT}"
        )
    return options


def spelled_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the file and of `-X` as they are spelled there. Raises ConfigError."""
    path = arguments.config_file or os.environ.get(ENVIRONMENT)
    return (read_properties(path) if path is not None else {}) | dict(map(_parse_property, arguments.producer_property))


def allowed_urls_of(arguments: argparse.Namespace) -> tuple[str, ...] | None:
    """Return the option `allowed_urls`, which also bounds what a command itself asks; None: not given.

    Raises:
        ConfigError: See read_options().
    """
    found: tuple[str, ...] | None = merge_options(spelled_options(arguments)).get("allowed_urls")
    return found


def make_config(options: dict[str, Any]) -> ProducerConfig:
    """Return the whole configuration. Raises ConfigError."""
    return ProducerConfig.from_options(options)


def open_cluster(arguments: argparse.Namespace, options: dict[str, Any]) -> ClusterClient:
    """Return a client of the cluster, which waits for the first broker as --connect-timeout says.

    Raises:
        ConfigError: An option is wrong.
    """
    timeout_s: float | None = arguments.connect_timeout
    if timeout_s is None and arguments.asks_only and not {"max_block_ms", "request_timeout_ms"} & options.keys():
        timeout_s = ASKING_S
    return ClusterClient(make_config(options), None if timeout_s is None else int(timeout_s * 1000))


def _parse_property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        first = text.replace(":", " ").split(maxsplit=1)[:1]  # what follows may be a secret
        raise ConfigError(f"-X {''.join(first)!r} is not NAME=VALUE")
    return name.strip(), value
