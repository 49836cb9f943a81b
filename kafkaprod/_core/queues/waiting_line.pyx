"""The line of those who wait for memory: first come, first served. Who waits for a node that may hold no more holds up only
those behind it who wait for the same node.

Nothing here locks: the pool's lock is held for each call.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free


cdef void line_add(WaitingLine *line, Waiter *waiter) noexcept nogil:
    """Put a waiter at the end of the line, which owns it from now on."""
    if line.first is NULL:
        line.first = waiter
    else:
        line.last.next = waiter
    line.last = waiter
    line.count += 1
    line.promised += waiter.need


cdef int line_remove(WaitingLine *line, int64_t ticket) noexcept nogil:
    """Take a waiter out of the line and free it. Return whether it was there."""
    cdef Waiter *previous = NULL
    cdef Waiter *waiter = line.first
    while waiter is not NULL and waiter.ticket != ticket:
        previous = waiter
        waiter = waiter.next
    if waiter is NULL:
        return 0
    if previous is NULL:
        line.first = waiter.next
    else:
        previous.next = waiter.next
    if line.last is waiter:
        line.last = previous
    line.count -= 1
    line.promised -= waiter.need
    if waiter.account is not NULL:
        waiter.account.promised -= waiter.need
    free(waiter)
    return 1


cdef Waiter *line_keep_back(WaitingLine *line, const Account *account, int64_t ticket, Py_ssize_t *for_all,
                            Py_ssize_t *in_line) noexcept nogil:
    """Add up what the waiters before this one need (all of them, if it does not wait), and those in the account's line.

    Return the waiter itself, or NULL. Who waits for an account that may hold no more needs nothing of the others.
    """
    cdef Waiter *waiter = line.first
    while waiter is not NULL and waiter.ticket != ticket:
        if waiter.account is NULL or account_takes(waiter.account, waiter.need, 0):
            for_all[0] += waiter.need
        if waiter.account == account:
            in_line[0] += waiter.need
        waiter = waiter.next
    if waiter is not NULL:
        waiter.is_told = False      # it tries now; if that fails, wake it again
    return waiter


cdef void line_refuse(Account *account, Waiter *waiter) noexcept nogil:
    """Note that there was no room; a waiter is in this account's line from now on."""
    account.was_refused = True
    if waiter is NULL:
        return
    if waiter.account is not NULL:
        waiter.account.promised -= waiter.need
    waiter.account = account
    account.promised += waiter.need


cdef int line_servable(WaitingLine *line, Account *accounts, Py_ssize_t in_use, Py_ssize_t capacity, int64_t *tickets,
                       int most) noexcept nogil:
    """Collect the next waiters to wake, mark them as woken, and return how many they are."""
    cdef Waiter *waiter
    cdef Account *account = accounts
    cdef Py_ssize_t total = in_use
    cdef int count = 0
    while account is not NULL:
        account.planned = 0
        account = account.next
    waiter = line.first
    while waiter is not NULL and count < most:
        account = waiter.account
        if account is not NULL:
            account.planned += waiter.need
            if not account_takes(account, waiter.need, account.planned - waiter.need):
                waiter = waiter.next        # its node may hold no more: it holds up its own line only
                continue
        total += waiter.need
        if total > capacity:
            break
        if not waiter.is_told:
            waiter.is_told = True
            tickets[count] = waiter.ticket
            count += 1
        waiter = waiter.next
    return count
