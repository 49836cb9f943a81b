"""`kafkaprod load --metrics-port`, `--metrics-file`: how a load advances, for Prometheus.

Its own numbers, `kafkaprod_load_…`, and those of its producer, `kafka_producer_…`. Needs prometheus-client, the extra
`kafkaprod[metrics]`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any, Final

from kafkaprod.errors import ConfigError
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.manifest import Position
from kafkaprod.loader.progress import ProgressLines, Quiet, make_progress
from kafkaprod.text import printable

FILE_EVERY_S: Final = 5.0
LOOPBACK: Final = "127.0.0.1"


def add_metrics_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument_group("metrics of the load").add_argument
    add("--metrics-port", type=int, metavar="PORT", help="serve them to Prometheus while the load runs")
    add(
        "--metrics-host",
        default=LOOPBACK,
        metavar="ADDRESS",
        help=f"where --metrics-port listens; default {LOOPBACK}, this machine alone; 0.0.0.0: all networks",
    )
    add("--metrics-file", metavar="FILE", help="write them every 5 s and at the end, for node_exporter: NAME.prom")


def progress_of(
    options: argparse.Namespace, sources: Sequence[Source], start: Position | None, producer_options: dict[str, Any]
) -> Quiet:
    """Return what shows how a load advances, and counts it where metrics are wanted.

    Args:
        options: What the command got.
        sources: The inputs.
        start: Where the load continues; None: it begins.
        producer_options: Get a reporter of the producer's metrics; a load on Spark has its producers elsewhere.

    Raises:
        ConfigError: The package prometheus-client is missing, or the port is not free.
    """
    shown = make_progress(sources, start, is_quiet=options.quiet)
    if options.metrics_port is None and options.metrics_file is None:
        return shown
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as error:
        raise ConfigError("metrics of a load need prometheus-client: pip install 'kafkaprod[metrics]'") from error
    from kafkaprod.metrics.prometheus import PrometheusReporter

    registry = CollectorRegistry()
    if options.engine == "local":
        reporters = [*producer_options.get("metric_reporters", ()), PrometheusReporter(registry)]
        producer_options["metric_reporters"] = reporters
    return MeteredProgress(
        shown, registry, options.topic, options.metrics_port, options.metrics_file, options.metrics_host
    )


class MeteredProgress(Quiet):
    """Shows how a load advances, and counts it.

    Args:
        shown: Shows it.
        registry: The library's. It has the metrics of the producer, and gets those of the load.
        topic: A label of all of them.
        port: Where they are served; None: nowhere.
        file: Where they are written; None: nowhere.
        host: The address that the port listens at.

    Raises:
        ConfigError: The port is not free, or the file cannot be written.
    """

    def __init__(
        self, shown: Quiet, registry: Any, topic: str, port: int | None, file: str | None, host: str = LOOPBACK
    ) -> None:
        from prometheus_client import Counter, Gauge, start_http_server

        def counter(name: str, text: str) -> Any:
            return Counter(f"kafkaprod_load_{name}", text, ["topic"], registry=registry).labels(topic)

        self._shown = shown
        self._registry = registry
        self._file = file
        self._next_s = 0.0
        self._records = counter("records", "Records that the producer got; after a stop the last ones may not be sent")
        self._bytes = counter("bytes", "Bytes of their keys and values")
        self._bad = counter("bad_rows", "Rows that cannot be sent")
        self._retries = Gauge(
            "kafkaprod_load_retried_records", "Records that were sent again", ["topic"], registry=registry
        ).labels(topic)
        if isinstance(shown, ProgressLines):  # not quiet
            share = Gauge("kafkaprod_load_done_ratio", "Share of the input that was read", ["topic"], registry=registry)
            share.labels(topic).set_function(lambda: _ratio(shown))
        self._server: Any = None
        try:
            self._write()
            if port is not None:
                self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except (OSError, OverflowError) as error:
            port_at = f"--metrics-port {port}" + ("" if host == LOOPBACK else f" --metrics-host {printable(host)}")
            place = port_at if file is None or os.path.exists(file) else f"--metrics-file {file}"
            raise ConfigError(f"{place} cannot be used: {error}") from error

    def on_block(self, record_count: int, byte_count: int, position: Position) -> None:
        self._shown.on_block(record_count, byte_count, position)
        self._records.inc(record_count)
        self._bytes.inc(byte_count)
        if time.monotonic() >= self._next_s:
            self._write()

    def on_bad(self) -> None:
        self._shown.on_bad()
        self._bad.inc()

    def on_retries(self, count: int) -> None:
        self._shown.on_retries(count)
        self._retries.set(count)

    def show(self, text: str) -> None:
        """Print a line on stderr."""
        self._shown.show(text)

    def close(self) -> None:
        """Write them a last time, and serve them no more."""
        self._shown.close()
        self._write()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _write(self) -> None:
        from prometheus_client import write_to_textfile

        self._next_s = time.monotonic() + FILE_EVERY_S
        if self._file is not None:
            write_to_textfile(self._file, self._registry)  # replaces it as a whole


def _ratio(shown: ProgressLines) -> float:
    share = shown.done_share()
    return float("nan") if share is None else share
