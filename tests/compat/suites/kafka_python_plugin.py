"""Installs kafkaprod in place of kafka-python's producer, and runs our broker in place of Apache Kafka."""

from __future__ import annotations

import os

import tests.foreign.plugins.kafka_python_plugin  # noqa: F401  (starts our broker for their fixtures)
from kafkaprod.compat import install

if os.environ["KAFKAPROD_INSTALL"]:
    install("kafka_python")
