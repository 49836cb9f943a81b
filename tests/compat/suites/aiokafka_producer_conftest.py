"""Takes the place of aiokafka's own tests/conftest.py: the broker of tests.foreign; installs our producer."""

from __future__ import annotations

import os
import sys
from types import ModuleType

from aiokafka_conftest import (  # of tests/foreign/plugins, whose `tests` is hidden by theirs
    admin,
    broker,
    loop,
    setup_test_class,
    setup_test_class_serverless,
    ssl_folder,
)

from kafkaprod.compat import install

__all__ = ["admin", "broker", "loop", "setup_test_class", "setup_test_class_serverless", "ssl_folder"]

if os.environ["KAFKAPROD_INSTALL"]:
    install("aiokafka")
sys.modules["docker"] = ModuleType("docker")
