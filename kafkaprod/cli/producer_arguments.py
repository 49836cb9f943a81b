"""Arguments that all commands share which talk to a cluster: where it is, options, files of options.

A flag is before `-X`, `-X` before a file of options, the file before KAFKAPROD_CONFIG, that before the defaults.
"""

from __future__ import annotations

import argparse
import os
from typing import Any, Final

from kafkaprod.config import ProducerConfig, merge_options, read_properties
from kafkaprod.errors import ConfigError

ENVIRONMENT: Final = "KAFKAPROD_CONFIG"


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments; the names are kcat's and those of Kafka's own tools."""
    add = parser.add_argument_group("cluster").add_argument
    add("-b", "--bootstrap-server", "--brokers", metavar="HOST:PORT,…", help="where the cluster is")
    add(
        "-X",
        "--producer-property",
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the producer, in any spelling; repeatable",
    )
    add(
        "-F",
        "--producer.config",
        "--command-config",
        dest="config_file",
        metavar="FILE",
        help=f"a .properties file of options (default: ${ENVIRONMENT})",
    )


def above_zero(text: str) -> float:
    """A number above 0, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def whole(text: str) -> int:
    """A whole number from 0 on, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def count(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def read_options(arguments: argparse.Namespace, **flags: Any) -> dict[str, Any]:
    """The producer options that the arguments ask for, by their own names.

    Args:
        arguments: With what add_cluster_arguments() added.
        flags: Options that other arguments stand for; None: not given.

    Raises:
        ConfigError: An option is unknown or wrong, a file cannot be read, or nothing says where the cluster is.
    """
    path = arguments.config_file or os.environ.get(ENVIRONMENT)
    from_file = {} if path is None else read_properties(path)
    given = {name: value for name, value in flags.items() if value is not None}
    if arguments.bootstrap_server is not None:
        given["bootstrap_servers"] = arguments.bootstrap_server
    options = merge_options(from_file, dict(map(_parse_property, arguments.producer_property)), given)
    if "bootstrap_servers" not in options:
        raise ConfigError("where is the cluster? Say -b HOST:PORT")
    return options


def make_config(options: dict[str, Any]) -> ProducerConfig:
    """The whole configuration. Raises ConfigError."""
    return ProducerConfig.from_options(options)


def _parse_property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"-X {text!r} is not NAME=VALUE")
    return name.strip(), value
