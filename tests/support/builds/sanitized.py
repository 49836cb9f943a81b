"""Whether the core runs under a sanitizer: what it changes, some tests cannot measure."""

import os

import pytest

UNDER_ASAN = "libasan" in os.environ.get("LD_PRELOAD", "")

measures_memory = pytest.mark.skipif(
    UNDER_ASAN, reason="ASan pads allocations and holds freed ones back: resident memory and cost are not the core's"
)
