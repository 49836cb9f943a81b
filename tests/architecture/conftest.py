from pathlib import Path

import pytest

from tests.architecture.core_sources import translate


@pytest.fixture(scope="session")
def translated_core(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the core was translated to annotated C, and what Cython said meanwhile."""
    directory = tmp_path_factory.mktemp("translated")
    return directory, translate(directory)
