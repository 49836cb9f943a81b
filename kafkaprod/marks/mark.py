"""What a mark says, as the metadata of a committed offset: a format and URL-encoded pairs, ASCII.

    kpw1 id=orders-2026-11-28&rows=1000&sum=...&topics=orders:UUID&cluster=...&by=...&at=...&try=...

Brokers keep 4,096 bytes of metadata for an offset. The offset itself is the number of rows + 1, so that it is there for
a write without rows. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import parse_qsl, urlencode

from kafkaprod.errors import ConfigError

FORMAT: Final = "kpw1"
_MOST_BYTES: Final = 4_096  # offset.metadata.max.bytes of the brokers


@dataclass(frozen=True, slots=True)
class Mark:
    """What is known of a write that is committed.

    Attributes:
        write_id: Its id.
        rows: How many records it has.
        digest: The digest of topics, keys, values and headers in their order; empty: none was made.
        topics: The topics it went to, with their ids; an id is empty where brokers have none.
        cluster: The cluster's id; empty where brokers have none.
        written_by: Client id, host and process of the try that wrote it.
        written_ms: When that try sent the mark, by its clock; ms since 1970.
        attempt: Random digits of that try: by these it knows its own mark.
        parts: In how many transactions it was committed.
        is_done: No part is missing.
    """

    write_id: str
    rows: int
    digest: str
    topics: Mapping[str, str]
    cluster: str
    written_by: str
    written_ms: int
    attempt: str
    parts: int = 1
    is_done: bool = True

    @property
    def offset(self) -> int:
        """The offset that is committed with it."""
        return self.rows + 1

    def to_text(self) -> str:
        """Return the metadata of the committed offset.

        Raises:
            ConfigError: The write has more topics than a mark can name.
        """
        fields: dict[str, str | int] = {
            "id": self.write_id,
            "rows": self.rows,
            "sum": self.digest,
            "topics": ",".join(f"{name}:{topic_id}" for name, topic_id in sorted(self.topics.items())),
            "cluster": self.cluster,
            "by": self.written_by,
            "at": self.written_ms,
            "try": self.attempt,
        }
        if self.parts != 1 or not self.is_done:
            fields |= {"parts": self.parts, "done": int(self.is_done)}
        text = f"{FORMAT} {urlencode(fields)}"
        if len(text) > _MOST_BYTES:
            raise ConfigError(
                f"the mark of write {self.write_id!r} has {len(text)} bytes, and an offset keeps {_MOST_BYTES}: it "
                f"names {len(self.topics)} topics. Give each topic a write of its own"
            )
        return text

    @classmethod
    def from_text(cls, text: str, group: str) -> Self:
        """Read a committed offset's metadata.

        Args:
            text: The metadata.
            group: The group, for the error.

        Raises:
            ConfigError: It is no mark, or one of a later format: it is not known what was written.
        """
        kind, _, rest = text.partition(" ")
        fields = dict(parse_qsl(rest, keep_blank_values=True))
        try:
            if kind != FORMAT:
                raise ValueError(kind)
            return cls(
                write_id=fields["id"],
                rows=_count(fields["rows"]),
                digest=fields["sum"],
                topics=_topics(fields["topics"]),
                cluster=fields["cluster"],
                written_by=fields["by"],
                written_ms=_count(fields["at"]),
                attempt=fields["try"],
                parts=_count(fields.get("parts", "1")),
                is_done=bool(_count(fields.get("done", "1"))),
            )
        except (KeyError, ValueError):
            pass
        later = kind.removeprefix("kpw")
        why = (
            f"is a mark of format {kind}, which a later version of kafkaprod has written: use that one"
            if kind.startswith("kpw") and later.isdecimal() and int(later) > 1
            else "is no mark of a write: something else uses this group. Set another write_prefix"
        )
        raise ConfigError(f"group {group!r} has an offset whose metadata {text[:200]!r} {why}")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(text)
    return int(text)


def _topics(text: str) -> dict[str, str]:
    pairs = [item.partition(":") for item in text.split(",") if item]
    return {name: topic_id for name, _, topic_id in pairs}
