import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod.config import OPTIONS, ProducerConfig, parse_properties
from kafkaprod.config.kinds import Choice, Integer
from kafkaprod.errors import ConfigError

NUMBERS = [option for option in OPTIONS.values() if isinstance(option.kind, Integer)]
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.text()),
    st.tuples(st.text()),
)


@given(option=st.sampled_from(NUMBERS), value=st.integers(-(2**65), 2**65), as_text=st.booleans())
def test_number_is_accepted_exactly_in_its_range(option: Any, value: int, as_text: bool) -> None:
    kind = option.kind
    is_legal = kind.lowest <= value <= kind.highest and value != kind.excluded
    given_value = str(value) if as_text else value
    if is_legal:
        assert option.parse(given_value) == value
    else:
        with pytest.raises(ConfigError):
            option.parse(given_value)


@given(option=st.sampled_from(list(OPTIONS.values())), value=ANYTHING)
def test_any_value_is_kept_unchanged_by_a_second_reading_or_refused(option: Any, value: object) -> None:
    try:
        kept = option.parse(value)
    except ConfigError:
        return
    assert option.parse(kept) == kept


@given(spelling=st.sampled_from([o.dotted_name for o in OPTIONS.values()]), noise=st.text(min_size=1, max_size=5))
def test_misspelled_option_never_passes(spelling: str, noise: str) -> None:
    with pytest.raises(ConfigError):
        ProducerConfig.from_options({spelling + noise: object(), "bootstrap.servers": "a"})


@given(st.data())
def test_choice_ignores_case_and_nothing_else(data: st.DataObject) -> None:
    option = data.draw(st.sampled_from([o for o in OPTIONS.values() if isinstance(o.kind, Choice)]))
    name = data.draw(st.sampled_from(option.kind.names))  # type: ignore[attr-defined]
    assert option.parse(data.draw(st.sampled_from([name, name.lower(), name.upper(), f" {name} "]))) == name
    with pytest.raises(ConfigError):
        option.parse(name + data.draw(st.text(string.ascii_letters, min_size=1)))


@given(st.text())
def test_any_text_is_properties_or_a_config_error(text: str) -> None:
    try:
        properties = parse_properties(text)
    except ConfigError:
        return
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in properties.items())


def escape(text: str) -> str:
    control = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    return "".join(f"\\{c}" if c in " =:#!\\" else control.get(c, c) for c in text)


# Two lone surrogates in a row are one character to Java: leave them out.
PLAIN = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(PLAIN, PLAIN))
def test_written_properties_are_read_back(properties: dict[str, str]) -> None:
    text = "".join(f"{escape(key)}={escape(value)}\n" for key, value in properties.items())
    assert parse_properties(text) == properties
