"""Whose turn with the GIL it is. See gil_turns.pyx."""

cdef void want_gil() noexcept nogil
cdef void have_gil() noexcept
cdef void let_others_in() noexcept
