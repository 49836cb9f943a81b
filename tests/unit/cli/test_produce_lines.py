"""Lines that no kcat has written are refused with their number, whatever is in them."""

from __future__ import annotations

import pytest

from kafkaprod.cli.produce_lines import Envelopes
from kafkaprod.errors import KafkaError


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"key_base64":5,"payload":"a"}', "key_base64 is not a text"),
        (b'{"payload_base64":null}', "payload_base64 is not a text"),
        (b'{"payload_base64":"\xc3\xa9"}', "ASCII"),
        (b'{"payload":"a","headers":[{"name":"x","value_base64":{}}]}', "value_base64 is not a text"),
        (b'{"payload":"a","headers":{"a":1}}', "headers is not a list"),
        (b'{"payload":"\\ud800"}', "surrogates not allowed"),
        (b'{"payload":"a","ts":1e400}', "ts is not a number"),
        (b'{"payload":"a","ts":9223372036854775808}', "ts is not a number"),
        (b'{"payload":"a","ts":-5}', "ts is not a number"),
        (b"\xff", "invalid start byte"),
        (b"[]", "not a JSON object"),
    ],
)
def test_what_is_no_envelope_is_refused_by_its_line(line: bytes, reason: str) -> None:
    with pytest.raises(KafkaError, match=f"line 7 is no record as kcat -J prints it: .*{reason}"):
        Envelopes([]).rows([line], 7, 0)


def test_an_envelope_has_a_time_or_that_of_now() -> None:
    lines = [b'{"payload":"a","ts":-1}', b'{"payload":"a"}', b'{"payload":"a","timestamp":9223372036854775807}']
    assert Envelopes([]).rows(lines, 1, 5).timestamps_ms == [5, 5, (1 << 63) - 1]
