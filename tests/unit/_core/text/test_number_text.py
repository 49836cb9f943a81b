"""Numbers as text: what Java prints."""

import decimal
import math
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.core.faces import decimal_text, float32_text, float_text

JAVA = {  # Source: java.lang.Double.toString of JDK 19 and later
    0.0: "0.0",
    1.0: "1.0",
    -1.5: "-1.5",
    0.001: "0.001",
    0.0009: "9.0E-4",
    9999999.0: "9999999.0",
    1e7: "1.0E7",
    12345678.9: "1.23456789E7",
    1e23: "1.0E23",
    2e23: "2.0E23",
    5e-324: "4.9E-324",
    1e-323: "9.9E-324",
    2e-323: "2.0E-323",
    math.pi: "3.141592653589793",
    1.7976931348623157e308: "1.7976931348623157E308",
    2.2250738585072014e-308: "2.2250738585072014E-308",
}


@pytest.mark.parametrize(("number", "text"), JAVA.items())
def test_doubles_have_java_s_text(number, text):
    assert float_text(number) == text


def test_numbers_that_json_has_no_word_for_are_quoted():
    assert [float_text(x) for x in (math.nan, math.inf, -math.inf)] == ['"NaN"', '"Infinity"', '"-Infinity"']
    assert float_text(-0.0) == "-0.0"


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(9007199254740993.0)
def test_doubles_read_back_and_are_as_short_as_python_s(number):
    text = float_text(number)
    assert struct.pack("d", float(text)) == struct.pack("d", number)
    ours, pythons = (decimal.Decimal(one).normalize().as_tuple().digits for one in (text, repr(number)))
    # Java gives two digits where one would do; those are the few smallest numbers.
    assert ours == pythons or abs(number) < 1e-322


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_read_back_and_are_as_short_as_numpy_s(number):
    text = float32_text(number)
    assert np.float32(text) == np.float32(number)
    pythons = decimal.Decimal(str(np.float32(number))).normalize().as_tuple().digits
    assert decimal.Decimal(text).normalize().as_tuple().digits == pythons or abs(number) < 1.2e-44


@given(st.integers(-(1 << 127), (1 << 127) - 1), st.integers(-5, 38))
@example(-(1 << 127), 0)
@example(0, 10)
@example(1, 7)
def test_decimals_have_the_text_of_python_s_decimal(number, scale):
    # Decimal.__str__ and BigDecimal.toString() follow one rule: General Decimal Arithmetic, to-scientific-string.
    expected = str(decimal.Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)))
    assert decimal_text(number.to_bytes(16, "little", signed=True), scale) == expected


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_narrow_decimals_are_read_by_their_width(number):
    for width in (4, 8):
        assert decimal_text(number.to_bytes(width, "little", signed=True), 0) == str(number)
