from pathlib import Path

import pytest

from tests.architecture.core_sources import translate


@pytest.fixture(scope="session")
def translated_core() -> tuple[Path, str]:
    """Where the core was translated to annotated C, and what Cython said of what has changed."""
    return translate()
