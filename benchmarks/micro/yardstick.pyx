# cython: language_level=3
"""What a figure is divided by, so that it means something on another machine."""


cdef class Empty:
    """A method with the arguments of RecordSender.send that does nothing."""

    def send(self, str topic not None, value=None, key=None, headers=None, partition=None, timestamp_ms=None):
        return None
