"""Integers from Python objects: converted once, then checked.

An object may answer `__index__`, `__int__` and comparisons differently each time. So the number that is checked must be the
number that is used: __index__ is called once, and its result is read without calling any other method.
"""

from libc.stdint cimport int64_t

import operator

from kafkaprod.errors import ArgumentTypeError, InvalidRecordError

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1


cdef int64_t to_int64(object number, str name, int64_t lowest, int64_t highest) except? -2:
    """Convert an integer. Raises InvalidRecordError naming the argument for other types and for numbers out of range."""
    cdef int overflow = 0
    cdef int64_t converted
    try:
        index = operator.index(number)
    except TypeError:
        raise ArgumentTypeError(f"{name} must be int or None, not {type(number).__name__}") from None
    converted = PyLong_AsLongLongAndOverflow(index, &overflow)
    if overflow != 0:
        bits = int.bit_length(index)        # Python refuses to print more than 4,300 digits
        shown = f"{name}={int.__repr__(index)}" if bits <= 128 else f"{name} of {bits} bits"
        raise InvalidRecordError(f"{shown} is outside {lowest}..{highest}")
    if not lowest <= converted <= highest:
        raise InvalidRecordError(f"{name}={converted} is outside {lowest}..{highest}")
    return converted


def checked_integer(number, str name not None, int64_t lowest, int64_t highest):
    """Return `number` as an exact int between lowest and highest.

    Raises: InvalidRecordError naming the argument, for other types and for numbers out of range.
    """
    return to_int64(number, name, lowest, highest)
