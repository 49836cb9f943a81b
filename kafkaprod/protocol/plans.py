"""Compiles a declaration at one version into the steps that read and write it.

A plan is made once per (class, version) and kept. Consecutive fields of fixed size form one step with one `struct`
layout, which makes decoding of large Metadata responses fast. A plan writes the fields present in
its version, and refuses to drop information: a field absent in the version must hold its default, unless it is
declared ignorable.

Source: protocol guide, KIP-482 (tagged fields: ascending, written only if not the default, unknown ones skipped).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from kafkaprod.errors import CorruptDataError, UnsupportedVersionError
from kafkaprod.protocol.field_types import FieldType, FixedType, ValueCodec
from kafkaprod.protocol.primitives import Reader, Writer

# Errors of packing a value of a wrong type or size.
_WRONG_VALUE = (ValueError, TypeError, AttributeError, struct.error)


class FieldSpec(NamedTuple):
    """One declared field.

    Attributes:
        since: First version of the message that has it.
        until: Last such version; None: no last one.
        tag: Number of a tagged field; None: an ordinary field.
        make_default: Returns the value of a field that was not set, or is absent in the version.
        is_ignorable: Whether a value may be dropped silently when the version has no such field.
    """

    name: str
    type: FieldType
    since: int
    until: int | None
    tag: int | None
    make_default: Callable[[], Any]
    is_ignorable: bool

    def is_in(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


class _Step(NamedTuple):
    """Reads or writes one field, or a run of neighbouring fixed-size ones."""

    label: str
    read: Callable[[Reader, Any], None]
    write: Callable[[Writer, Any], None]
    min_bytes: int


def compile_struct(struct_class: type[Any], fields: Iterable[FieldSpec], version: int, is_flexible: bool) -> ValueCodec:
    """Return the codec of a struct class at one version of the message around it."""
    present = [field for field in fields if field.is_in(version)]
    absent = [field for field in fields if not field.is_in(version)]
    tagged = sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)
    steps = list(_steps((field for field in present if field.tag is None), version, is_flexible))
    if is_flexible:
        steps.append(_tagged_section(tagged, version))
    elif tagged:
        raise TypeError(f"{struct_class.__name__} has tagged fields in version {version}, which is not flexible")

    unset = [(field.name, field.make_default) for field in (*absent, *tagged)]
    read_steps = [(step.label, step.read) for step in steps]
    write_steps = [(step.label, step.write) for step in steps]
    guarded = [(field.name, field.make_default()) for field in absent if not field.is_ignorable]

    def read(reader: Reader) -> Any:
        message = object.__new__(struct_class)
        for name, make_default in unset:
            setattr(message, name, make_default())
        label = ""
        try:
            for label, read_step in read_steps:  # noqa: B007 - the handler names the step that failed
                read_step(reader, message)
        except CorruptDataError as error:
            raise CorruptDataError(f"{label}: {error}") from None
        return message

    def write(writer: Writer, message: Any) -> None:
        for name, default in guarded:
            value = getattr(message, name)
            if value != default:
                raise UnsupportedVersionError(
                    f"{struct_class.__name__}.{name} is {value!r:.80}, but version {version} has no such field"
                )
        label = ""
        try:
            for label, write_step in write_steps:  # noqa: B007
                write_step(writer, message)
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(f"{label}: {error}") from None
        except _WRONG_VALUE as error:
            raise ValueError(f"{label}: {error}") from error

    return ValueCodec(read, write, max(1, sum(step.min_bytes for step in steps)))


def _steps(fields: Iterable[FieldSpec], version: int, is_flexible: bool) -> Iterator[_Step]:
    for is_fixed, group in groupby(fields, key=lambda field: isinstance(field.type, FixedType)):
        if is_fixed:
            yield _fixed_run(list(group))
        else:
            for field in group:
                yield _single(field.name, field.type.codec(version, is_flexible))


def _single(name: str, codec: ValueCodec) -> _Step:
    read_value, write_value, min_bytes = codec

    def read(reader: Reader, message: Any) -> None:
        setattr(message, name, read_value(reader))

    def write(writer: Writer, message: Any) -> None:
        write_value(writer, getattr(message, name))

    return _Step(name, read, write, min_bytes)


def _fixed_run(fields: list[FieldSpec]) -> _Step:
    names = [field.name for field in fields]
    layout = struct.Struct(">" + "".join(field.type.format for field in fields if isinstance(field.type, FixedType)))

    def read(reader: Reader, message: Any) -> None:
        for name, value in zip(names, reader.unpack(layout), strict=True):
            setattr(message, name, value)

    def write(writer: Writer, message: Any) -> None:
        writer.pack(layout, [getattr(message, name) for name in names])

    return _Step(names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}", read, write, layout.size)


def _tagged_section(fields: list[FieldSpec], version: int) -> _Step:
    """Return the step of the tagged fields. Reading sets only what the peer sent: defaults are already set."""
    known = {field.tag: _single(field.name, field.type.codec(version, True)) for field in fields}
    defaults = [(field, field.make_default()) for field in fields]  # only for comparison: they may be mutable

    def read(reader: Reader, message: Any) -> None:
        tag, count = -1, reader.read_uvarint()
        if not count:
            return
        for _ in range(reader.checked_count(count, 2)):
            tag = reader.read_tag(tag)
            size = reader.read_uvarint()
            step = known.get(tag)
            if step is None:
                reader.skip(size)
                continue
            outer_end = reader.begin_region(size)
            try:
                step.read(reader, message)
                reader.end_region(outer_end)
            except CorruptDataError as error:
                raise CorruptDataError(f"{step.label}: {error}") from None

    def write(writer: Writer, message: Any) -> None:
        changed = [field for field, default in defaults if getattr(message, field.name) != default]
        writer.write_uvarint(len(changed))
        for field in changed:
            content = Writer()
            try:
                known[field.tag].write(content, message)
            except _WRONG_VALUE as error:
                raise ValueError(f"{field.name}: {error}") from error
            encoded = content.getvalue()
            writer.write_uvarint(field.tag or 0)
            writer.write_uvarint(len(encoded))
            writer.write_raw(encoded)

    def write_none(writer: Writer, message: Any) -> None:
        writer.write_raw(b"\0")

    return _Step("tagged fields", read, write if fields else write_none, 1)
