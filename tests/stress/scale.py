"""How often the stress tests repeat: a sample by default, the full counts with KAFKAPROD_STRESS=full.

KAFKAPROD_STRESS=full pytest tests/stress --timeout=0
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

IS_FULL = os.environ.get("KAFKAPROD_STRESS") == "full"


def scaled(sample: int, full: int) -> int:
    """The number of repetitions."""
    return full if IS_FULL else sample


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 20.0) -> None:
    """Look at a condition every millisecond until it holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.001)
