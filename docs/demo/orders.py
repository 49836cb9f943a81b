"""Sends orders at a steady rate until SIGTERM, and shows its metrics to Prometheus.

The environment: BOOTSTRAP_SERVERS, TOPIC, RATE (records a second), METRICS_PORT.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from prometheus_client import start_http_server

from kafkaprod import Producer
from kafkaprod.metrics.prometheus import PrometheusReporter


def main() -> None:
    """Send until the process is ended; what is queued then is delivered."""
    rate = float(os.environ.get("RATE", "1000"))
    topic = os.environ.get("TOPIC", "orders")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    start_http_server(int(os.environ.get("METRICS_PORT", "9100")))
    with Producer(
        bootstrap_servers=os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092"),
        client_id="orders",
        linger_ms=20,
        metric_reporters=[PrometheusReporter()],
    ) as producer:
        started = time.monotonic()
        number = 0
        while True:
            due = int((time.monotonic() - started) * rate)
            values = [json.dumps({"id": each, "total": each % 100 / 4}).encode() for each in range(number, due)]
            if values:
                producer.send_many(topic, values, keys=[b"%d" % (each % 50) for each in range(number, due)])
            number = due
            time.sleep(0.1)


if __name__ == "__main__":
    main()
