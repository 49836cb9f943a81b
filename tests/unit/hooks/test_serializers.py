import dataclasses
import datetime
import enum
import functools
import json
import pickle
import sys
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest
from confluent_kafka import serialization as confluent
from kafka.serializer import Serializer as KafkaPythonSerializer

from kafkaprod.errors import ConfigError, SerializationError
from kafkaprod.hooks.serializers import (
    BoundSerializer,
    BytesSerializer,
    JsonSerializer,
    SerializationContext,
    StringSerializer,
    bind_serializer,
)

HEADERS: list[tuple[str, str | bytes | None]] = [("h", b"1")]


def call(serializer: Any, data: Any, field: Any = "value") -> Any:
    return BoundSerializer(serializer, field)("orders", HEADERS, data)


def encode_with_options(data: str, encoding: str = "utf-8") -> bytes:
    return data.encode(encoding)


class WithContext:
    def __call__(self, obj: Any, ctx: Any = None) -> bytes:
        return repr((obj, *ctx)).encode()


class Named:
    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        return repr((topic, headers, data)).encode()


class NamedBefore:
    def serialize(self, topic: str, value: Any) -> bytes:
        return repr((topic, value)).encode()


@pytest.mark.parametrize(
    ("serializer", "data", "expected"),
    [
        (str.encode, "é", "é".encode()),
        (lambda data: data.upper(), b"a", b"A"),
        (encode_with_options, "a", b"a"),
        (pickle.dumps, 5, pickle.dumps(5)),
        (zlib.compress, b"a", zlib.compress(b"a")),
        (functools.partial(encode_with_options, encoding="utf-16-be"), "a", b"\0a"),
        (lambda *data: data[0], b"a", b"a"),
        (bytearray.upper, bytearray(b"a"), bytearray(b"A")),
    ],
)
def test_callable_is_given_the_data_alone(serializer: Any, data: Any, expected: bytes) -> None:
    assert call(serializer, data) == expected


@pytest.mark.parametrize("field", ["key", "value"])
def test_callable_with_two_arguments_is_given_the_context(field: Any) -> None:
    expected = repr((5, "orders", field, HEADERS)).encode()
    assert call(WithContext(), 5, field) == expected
    assert call(lambda data, where: repr((data, *where)).encode(), 5, field) == expected
    assert call(lambda data, context=None: repr((data, *context)).encode(), 5, field) == expected


def test_serializers_of_confluent_kafka_work() -> None:
    assert call(confluent.StringSerializer("utf_8"), "a") == b"a"
    assert call(confluent.IntegerSerializer(), 5) == b"\0\0\0\5"
    assert SerializationContext("t", "key", HEADERS)._fields == ("topic", "field", "headers")
    theirs = confluent.SerializationContext("t", confluent.MessageField.KEY, HEADERS)
    ours = SerializationContext("t", "key", HEADERS)
    assert (ours.topic, ours.field, ours.headers) == (theirs.topic, theirs.field, theirs.headers)


def test_object_with_serialize_is_given_topic_headers_and_data() -> None:
    class OfKafkaPython(KafkaPythonSerializer):  # type: ignore[misc]
        serialize = Named.serialize

    expected = repr(("orders", HEADERS, 5)).encode()
    assert call(Named(), 5) == expected
    assert call(OfKafkaPython(), 5) == expected
    assert call(NamedBefore(), 5) == repr(("orders", 5)).encode()


def test_none_reaches_the_serializer_and_may_come_back() -> None:
    assert call(lambda data: b"nothing" if data is None else b"", None) == b"nothing"
    assert call(lambda data: None, 5) is None


def test_signature_is_read_once_at_binding() -> None:
    reads = 0

    class Counting:
        @property
        def __signature__(self) -> None:
            nonlocal reads
            reads += 1

        def __call__(self, data: bytes) -> bytes:
            return data

    bound = BoundSerializer(Counting(), "value")
    before = reads
    for _ in range(3):
        bound("t", None, b"a")
    assert reads == before


def test_error_of_a_serializer_is_chained_and_says_which_and_where() -> None:
    with pytest.raises(
        SerializationError, match=r"key serializer str\.encode raised TypeError for a int of topic 'ord"
    ):
        call(str.encode, 5, "key")
    with pytest.raises(SerializationError) as caught:
        call(json.dumps, {1, 2})
    assert isinstance(caught.value.__cause__, TypeError)
    assert caught.value.context == {"topic": "orders"}


@pytest.mark.parametrize("result", ["text", 5, [b"a"], object()])
def test_result_that_is_not_bytes_is_refused(result: Any) -> None:
    with pytest.raises(SerializationError, match=f"returned a {type(result).__name__}.*expected bytes or None"):
        call(lambda data: result, b"a")


def test_interrupt_is_not_taken_for_an_error_of_the_serializer() -> None:
    def interrupted(data: Any) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(interrupted, 1)


def test_what_cannot_be_called_is_refused_at_binding() -> None:
    with pytest.raises(ConfigError, match="value_serializer int is not callable"):
        BoundSerializer(5, "value")


def test_no_serializer_binds_to_none() -> None:
    assert bind_serializer(None, "key") is None
    bound = bind_serializer(str.encode, "key")
    assert bound is not None
    assert bound.field == "key"


def test_string_serializer_encodes_text_only() -> None:
    assert call(StringSerializer(), "é") == "é".encode()
    assert call(StringSerializer("latin-1"), "é") == b"\xe9"
    assert call(StringSerializer(), None) is None
    with pytest.raises(SerializationError, match="expected str, not bytes"):
        call(StringSerializer(), b"a")
    with pytest.raises(LookupError):
        StringSerializer("no such encoding")


def test_bytes_serializer_passes_bytes_only() -> None:
    data = bytearray(b"a")
    assert call(BytesSerializer(), data) is data
    assert call(BytesSerializer(), None) is None
    with pytest.raises(SerializationError, match="expected bytes, not str"):
        call(BytesSerializer(), "a")


def test_json_serializer_is_compact_and_strict() -> None:
    assert call(JsonSerializer(), {"a": [1, "é"]}) == '{"a":[1,"é"]}'.encode()
    assert call(JsonSerializer(), None) is None
    assert call(JsonSerializer(default=sorted), {"a": {2, 1}}) == b'{"a":[1,2]}'
    for unfit in (float("nan"), {1, 2}):
        with pytest.raises(SerializationError):
            call(JsonSerializer(), unfit)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: int


class Fraction(float):
    pass


@dataclasses.dataclass
class Order:
    id: int


SAME_JSON = [
    {"a": [1, 2.5, "é", True], "b": {"c": "\n\x01"}},
    {"a": None, "text": "null"},
    Colour.RED,
    [Level.LOW, uuid.UUID(int=1)],
    Point(1, 2),
    [Fraction(1.5)],
    OrderedDict(a=1),
    {1: "a", None: 2},
    2**70,
    {"deep": functools.reduce(lambda inner, _: [inner], range(300), cast(Any, 0))},
    "\u2028",
]


@pytest.mark.parametrize("data", SAME_JSON, ids=lambda data: repr(data)[:30])
@pytest.mark.parametrize("default", [None, str], ids=["plain", "default"])
@pytest.mark.parametrize("library", ["orjson", "json"])
def test_json_is_the_same_with_and_without_orjson(library: str, default: Any, data: Any, monkeypatch: Any) -> None:
    with_orjson(library, monkeypatch)
    expected = json.dumps(
        data, ensure_ascii=False, separators=(",", ":"), default=lambda each: getattr(each, "value", str(each))
    )
    assert call(JsonSerializer(default), data) == expected.encode()


@pytest.mark.parametrize(
    "data",
    [float("nan"), {"a": [float("inf"), None]}, [Fraction("-inf")], {1, 2}, "\ud800", {(1, 2): 3}, Order(1)],
    ids=repr,
)
@pytest.mark.parametrize("library", ["orjson", "json"])
def test_what_json_lacks_is_refused_with_and_without_orjson(library: str, data: Any, monkeypatch: Any) -> None:
    with_orjson(library, monkeypatch)
    with pytest.raises(SerializationError, match=r"raised (ValueError|TypeError|UnicodeEncodeError)"):
        call(JsonSerializer(), data)


@pytest.mark.parametrize("library", ["orjson", "json"])
def test_default_makes_json_of_data_classes_and_times(library: str, monkeypatch: Any) -> None:
    with_orjson(library, monkeypatch)
    assert call(JsonSerializer(dataclasses.asdict), [Order(1)]) == b'[{"id":1}]'
    assert call(JsonSerializer(lambda time: time.year), datetime.date(2000, 1, 2)) == b"2000"


def with_orjson(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let JsonSerializer find orjson, or not."""
    if library != "orjson":
        monkeypatch.setitem(sys.modules, "orjson", None)


@pytest.mark.parametrize("form", [lambda data: ending(), lambda topic, data: ending()])
def test_what_ends_the_program_is_no_failure_of_a_serializer(form: Callable[..., Any]) -> None:
    serializer = bind_serializer(form, "value")
    assert serializer is not None
    with pytest.raises(KeyboardInterrupt) as caught:
        serializer("t", None, 1)
    assert caught.value.__cause__ is None


def ending() -> None:
    raise KeyboardInterrupt
