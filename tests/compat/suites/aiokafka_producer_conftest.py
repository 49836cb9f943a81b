"""Takes the place of aiokafka's own tests/conftest.py: the broker of tests.foreign, our producer instead of theirs."""

from __future__ import annotations

import sys
from types import ModuleType

import aiokafka
import aiokafka.producer
from aiokafka_conftest import (  # of tests/foreign/plugins, whose `tests` is hidden by theirs
    admin,
    broker,
    loop,
    setup_test_class,
    setup_test_class_serverless,
    ssl_folder,
)

from kafkaprod.compat import aiokafka as compat
from kafkaprod.compat.aiokafka import errors

__all__ = ["admin", "broker", "loop", "setup_test_class", "setup_test_class_serverless", "ssl_folder"]

aiokafka.AIOKafkaProducer = aiokafka.producer.AIOKafkaProducer = compat.AIOKafkaProducer  # type: ignore[misc]
sys.modules["aiokafka.errors"] = errors  # only for what is imported from now on: the tests
sys.modules["docker"] = ModuleType("docker")
