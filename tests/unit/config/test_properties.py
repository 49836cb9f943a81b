from pathlib import Path

import pytest

from kafkaprod.config import parse_properties, read_properties
from kafkaprod.errors import ConfigError
from tests.support.canary import CANARY, all_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\n# no=1\n  ! no=2\n", {}),
        ("a=1\nb:2\nc 3\nd = 4\ne\t:\t5\n", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a b=c", {"a": "b=c"}),
        ("  a = b  \n", {"a": "b  "}),
        ("a=b\\\n   c\\\n\td", {"a": "bcd"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=1,\\\n# not a comment", {"a": "1,# not a comment"}),
        ("a=b\\", {"a": "b"}),
        (r"a\=b\:c\ d=e", {"a=b:c d": "e"}),
        (r"a=\t\n\r\f\q\"", {"a": '\t\n\r\fq"'}),
        ("a=\\u00e9\\ud83d\\ude00", {"a": "é😀"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=\x0bx\u2028y", {"a": "\x0bx\u2028y"}),
        ("a=${env:HOME}", {"a": "${env:HOME}"}),
        ("=a", {"": "a"}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize(("text", "words"), [("a=1\n\na=2", "line 3: a is given twice"), ("\na=\\u12x", "line 2: ")])
def test_malformed_text_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_properties(text)


def test_file_is_read_as_utf_8_with_or_without_a_mark(tmp_path: Path) -> None:
    file = tmp_path / "x.properties"
    file.write_text("client.id=é", encoding="utf-8-sig")
    assert read_properties(file) == {"client.id": "é"}


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.properties"):
        read_properties(tmp_path / "absent.properties")
    file = tmp_path / "latin.properties"
    file.write_bytes(b"client.id=\xe9")
    with pytest.raises(ConfigError, match=r"latin\.properties"):
        read_properties(file)


def test_error_in_a_file_names_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "twice.properties"
    file.write_text("a=1\na=2\n")
    with pytest.raises(ConfigError, match=r"twice\.properties: line 2: a is given twice"):
        read_properties(str(file))


def test_a_file_that_is_not_utf_8_is_refused_without_its_text(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(b"\xef\xbb\xbfclient.id=a\nsasl.password=" + CANARY.encode() + b"\xff\n")
    with pytest.raises(ConfigError, match="byte 0xff in position 47: invalid start byte") as caught:
        read_properties(path)
    assert CANARY not in all_of(caught.value)
    path.write_bytes(b"\xef\xbb\xbfclient.id=a\r\n")
    assert read_properties(path) == {"client.id": "a"}
