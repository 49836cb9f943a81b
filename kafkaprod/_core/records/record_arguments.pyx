"""Python arguments of one record as a RecordView.

Exact bytes give their pointer at no cost; any other contiguous buffer is held through the buffer protocol until
clear(). On an error nothing stays held. One instance serves one thread at a time.
"""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_Check
from libc.stdlib cimport free, realloc
from libc.string cimport strlen

from kafkaprod._core.records.record_view cimport NULL_LENGTH
from kafkaprod._core.records.record_writer cimport headers_size

from kafkaprod.errors import ArgumentTypeError, InvalidRecordError

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef char[1] NO_BYTES


cdef bint has_byte_items(object data, const Py_buffer *buffer) except -1:
    """Whether a buffer is a row of bytes: NumPy's scalars and arrays of numbers have buffers, too, of their memory."""
    cdef Py_ssize_t length
    if buffer.itemsize != 1 or buffer.ndim == 0:
        return False
    if type(data) is bytearray:
        return True
    if isinstance(data, str) or getattr(data, "ndim", 1) == 0:      # a numpy.datetime64 shows its memory as bytes
        return False
    if buffer.format is NULL:
        return True
    length = strlen(buffer.format)
    return length > 0 and buffer.format[length - 1] in (c"B", c"b", c"c", c"s")


cdef str kind_of_items(object data, const Py_buffer *buffer):
    kind = f"{type(data).__module__}.{type(data).__qualname__}".removeprefix("builtins.")
    return kind if buffer.ndim == 0 or isinstance(data, str) else f"{kind} with items of another kind than bytes"


cdef str _advice(str name):
    if name.startswith("headers"):
        return "encode it: serializers do not see header values"
    return "encode it, as with text.encode() or json.dumps(object).encode(), or set a serializer"


@cython.final
cdef class RecordArguments:
    def __cinit__(self):
        self._kept = []

    def __dealloc__(self):
        self.clear()
        free(self._buffers)
        free(self._headers)

    cdef RecordView *fill(self, object key, object value, object headers, int64_t timestamp) except NULL:
        """Point the view at one record's arguments. Raises InvalidRecordError; then nothing stays held."""
        try:
            self.point_at(key, "key", &self.view.key, &self.view.key_length)
            self.point_at(value, "value", &self.view.value, &self.view.value_length)
            self.set_headers(headers)
        except BaseException:
            self.clear()
            raise
        self.view.timestamp = timestamp
        return &self.view

    cdef int set_headers(self, object headers) except -1:
        cdef Py_ssize_t count
        cdef Py_ssize_t i
        cdef HeaderView *grown
        cdef tuple pairs
        self.view.headers = NULL
        if headers is None:
            self.view.header_count = 0
            self.view.headers_size = 1
            return 0
        if isinstance(headers, dict):
            headers = headers.items()
        try:
            pairs = tuple(headers)      # an exact one, which no code of the pairs below can change
        except TypeError:
            raise ArgumentTypeError(f"headers must be (str, bytes) pairs, not {type(headers).__name__}") from None
        self._kept.append(pairs)
        count = len(pairs)
        if count > self._header_capacity:
            grown = <HeaderView *>realloc(self._headers, <size_t>count * sizeof(HeaderView))
            if grown is NULL:
                raise MemoryError
            self._headers = grown
            self._header_capacity = count
        for i in range(count):
            self._set_header(i, pairs[i])
        self.view.headers = self._headers
        self.view.header_count = count
        self.view.headers_size = headers_size(self._headers, count)
        return 0

    cdef int _set_header(self, Py_ssize_t i, object header) except -1:
        cdef HeaderView *view = &self._headers[i]
        cdef tuple pair = None
        if type(header) is tuple:
            pair = <tuple>header
        elif isinstance(header, (tuple, list)):
            pair = tuple(header)
            self._kept.append(pair)
        if pair is None or len(pair) != 2:
            raise ArgumentTypeError(f"headers[{i}] must be a (str, bytes or None) pair, not {header!r:.80}")
        name = pair[0]
        if not PyUnicode_Check(name):
            raise ArgumentTypeError(f"headers[{i}] key must be str, not {type(name).__name__}")
        try:
            view.key = PyUnicode_AsUTF8AndSize(name, &view.key_length)
        except UnicodeEncodeError as error:
            raise InvalidRecordError(f"headers[{i}] key {name!r:.80} cannot be written as UTF-8") from error
        value = pair[1]
        if PyBytes_CheckExact(value):
            view.value = PyBytes_AS_STRING(value)
            view.value_length = PyBytes_GET_SIZE(value)
        else:
            self.point_at(value, f"headers[{i}] value", &view.value, &view.value_length)
        return 0

    cdef int point_at(self, object data, str name, const char **pointer, Py_ssize_t *length) except -1:
        """Set pointer and length to the bytes of `data`; None gives NULL_LENGTH."""
        cdef Py_buffer *grown
        cdef Py_buffer *buffer
        if PyBytes_Check(data):
            pointer[0] = PyBytes_AS_STRING(data)
            length[0] = PyBytes_GET_SIZE(data)
            return 0
        if data is None:
            pointer[0] = NULL
            length[0] = NULL_LENGTH
            return 0
        if not PyObject_CheckBuffer(data):
            raise ArgumentTypeError(
                f"{name} must be bytes-like or None, not {type(data).__name__} ({_advice(name)})"
            )
        if self._buffer_count == self._buffer_capacity:
            grown = <Py_buffer *>realloc(self._buffers, (self._buffer_capacity + 4) * sizeof(Py_buffer))
            if grown is NULL:
                raise MemoryError
            self._buffers = grown
            self._buffer_capacity += 4
        buffer = &self._buffers[self._buffer_count]
        try:
            PyObject_GetBuffer(data, buffer, PyBUF_ND | PyBUF_FORMAT)
        except (BufferError, TypeError, ValueError) as error:       # NumPy says ValueError
            raise ArgumentTypeError(f"{name} must be a contiguous buffer: {error}") from error
        self._buffer_count += 1
        if not has_byte_items(data, buffer):
            raise ArgumentTypeError(
                f"{name} must be bytes-like or None, not {kind_of_items(data, buffer)} ({_advice(name)})"
            )
        # memcpy wants a pointer even for no bytes.
        pointer[0] = <const char *>buffer.buf if buffer.len > 0 else NO_BYTES
        length[0] = buffer.len
        return 0

    cdef void clear(self) noexcept:
        """Give back every held buffer; the view's pointers are dead after this."""
        while self._buffer_count > 0:
            self._buffer_count -= 1
            PyBuffer_Release(&self._buffers[self._buffer_count])
        if self._kept:
            self._kept.clear()
