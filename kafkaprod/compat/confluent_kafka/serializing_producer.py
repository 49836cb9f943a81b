"""confluent-kafka's SerializingProducer."""

from __future__ import annotations

from typing import Any

from kafkaprod.compat.confluent_kafka.error import KeySerializationError, ValueSerializationError
from kafkaprod.compat.confluent_kafka.producer import Producer
from kafkaprod.compat.confluent_kafka.reports import Report
from kafkaprod.compat.confluent_kafka.serialization import MessageField, SerializationContext
from kafkaprod.compat.writes import Row


class SerializingProducer(Producer):
    """A Producer that serializes keys and values.

    Args:
        conf: As for Producer, and `key.serializer`, `value.serializer`: callables of (object, SerializationContext).
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        options = dict(conf)
        self._key_serializer = options.pop("key.serializer", None)
        self._value_serializer = options.pop("value.serializer", None)
        for name in ("key.serializer.builder", "value.serializer.builder"):
            if options.pop(name, None) is not None:
                raise ValueError(
                    f"{name} is not offered: build the serializer and give it as {name.removesuffix('.builder')}"
                )
        super().__init__(options)

    def produce(  # type: ignore[override]  # the order of the originals differs, too
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        on_delivery: Report | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Serialize and queue one record; as Producer.produce.

        Raises:
            KeySerializationError, ValueSerializationError: A serializer failed; nothing was queued.
        """
        key, value = self._serialized(topic, key, value, headers)
        super().produce(topic, value, key, partition, on_delivery, None, timestamp, headers)

    def _row(  # type: ignore[override]
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        on_delivery: Report | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> Row:
        """Serialize, and return the row of a write for arguments of produce()."""
        key, value = self._serialized(topic, key, value, headers)
        return super()._row(topic, value, key, partition, on_delivery, None, timestamp, headers)

    def _serialized(self, topic: str, key: Any, value: Any, headers: Any) -> tuple[Any, Any]:
        """Return key and value as bytes or text."""
        ctx = SerializationContext(topic, MessageField.KEY, headers)
        if self._key_serializer is not None:
            try:
                key = self._key_serializer(key, ctx)
            except Exception as error:
                raise KeySerializationError(error) from error
        ctx.field = MessageField.VALUE
        if self._value_serializer is not None:
            try:
                value = self._value_serializer(value, ctx)
            except Exception as error:
                raise ValueSerializationError(error) from error
        return key, value
