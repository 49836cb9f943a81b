"""Those who wait for memory, in the order in which they came. See waiting_line.pyx."""

from libc.stdint cimport int32_t, int64_t


cdef struct Account:
    # What one node holds. It lives as long as the pool; but for the first three all is guarded by the pool's lock.
    Account *next
    int32_t node_id
    int is_blocked              # nothing can be sent to the node now; load32, store32
    bint was_refused            # since the last take_refused(): a try found no room
    Py_ssize_t held             # bytes in slabs of its batches
    Py_ssize_t limit            # most that it may hold; what it has nothing of, it may always take once
    Py_ssize_t promised         # what the waiters bound to it need
    Py_ssize_t planned          # of that, what a scan of the waiters has seen so far


cdef struct Waiter:
    Waiter *next
    Account *account            # the one whose memory its last try found no room in; NULL: it has not tried
    int64_t ticket
    Py_ssize_t need
    bint is_told                # that its bytes are free, and it has not tried since


cdef struct WaitingLine:
    Waiter *first
    Waiter *last
    int count
    Py_ssize_t promised         # what all waiters need


cdef void line_add(WaitingLine *line, Waiter *waiter) noexcept nogil
cdef int line_remove(WaitingLine *line, int64_t ticket) noexcept nogil
cdef Waiter *line_keep_back(WaitingLine *line, const Account *account, int64_t ticket, Py_ssize_t *for_all,
                            Py_ssize_t *in_line) noexcept nogil
cdef void line_refuse(Account *account, Waiter *waiter) noexcept nogil
cdef int line_servable(WaitingLine *line, Account *accounts, Py_ssize_t in_use, Py_ssize_t capacity, int64_t *tickets,
                       int most) noexcept nogil


cdef inline bint account_takes(const Account *account, Py_ssize_t need, Py_ssize_t before) noexcept nogil:
    """Whether the account may take `need` bytes beside the `before` that others in its line need."""
    cdef Py_ssize_t held = account.held + before
    return held == 0 or held + need <= account.limit
