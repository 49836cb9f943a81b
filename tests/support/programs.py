"""Programs that some tests start and that this project does not bring."""

from __future__ import annotations

import os
import shutil

import pytest


def program(name: str) -> str:
    """Return the path of a program; without it the test is skipped, or fails with KAFKAPROD_REQUIRE_KAFKA=1."""
    path = shutil.which(name)
    if path is None:
        if os.environ.get("KAFKAPROD_REQUIRE_KAFKA") == "1":
            pytest.fail(f"{name} is not installed, and KAFKAPROD_REQUIRE_KAFKA=1")
        pytest.skip(f"{name} is not installed")
    return path
