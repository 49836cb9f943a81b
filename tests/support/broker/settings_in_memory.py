"""Settings that nobody keeps."""

from __future__ import annotations

from typing import Any

from kafkaprod.broker.settings.settings import Settings


class SettingsInMemory(Settings):
    """Empty at first."""

    def __init__(self) -> None:
        super().__init__({})

    def put(self, section: str, content: Any) -> None:
        """Replace a section."""
        self._sections = {**self._sections, section: content}
