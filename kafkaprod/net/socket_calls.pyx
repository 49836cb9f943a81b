"""The system calls of the sender's loop. Each releases the GIL at most once and takes it back through gil_turns.

Python's own socket methods and selectors release the GIL in every call, and get it back from a busy application thread
only after sys.getswitchinterval(): a loop of ten calls would take 50 ms.
`wait_files` needs epoll or kqueue.

Sockets are non-blocking. Errors of the kernel come as OSError, of the subclass that belongs to their number.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from kafkaprod._core.machine.gil_turns cimport have_gil, want_gil
from kafkaprod._core.machine.waking cimport Waiter, WaitState, wake_state

from os import strerror

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    Py_ssize_t c_sendmsg "sendmsg"(int fd, const msghdr *message, int flags)
    Py_ssize_t c_recv "recv"(int fd, void *buffer, size_t length, int flags)

cdef extern from "kafkaprod/net/socket_calls.h" nogil:
    const char *KP_READY_SET
    int SEND_FLAGS "KP_SEND_FLAGS"
    int MSG_DONTWAIT
    int kp_wait_ready(int set_fd, int *fds, int *masks, long long timeout_us)
    void *memset(void *target, int byte, size_t size)

cdef enum:
    MOST_BUFFERS = 1024     # IOV_MAX of Linux and macOS: most buffers one sendmsg takes
    FEW_BUFFERS = 32        # of these the views are on the stack: 3 KiB of it, of a thread that may have 64
    SMALL_WRITE = 16384     # bytes that are copied sooner than the GIL is handed over
    MOST_WAKES = 16         # threads that one wait wakes after it has released the GIL

READY_SET = KP_READY_SET.decode()       # "epoll", "kqueue", or "" where wait_files does not work


cdef int wait_files(int set_fd, long long timeout_us, list to_wake, int *fds, int *masks) except -1:
    """Wait until files of an epoll set or kqueue are ready; return how many, at most MOST_EVENTS.

    Args:
        set_fd: Descriptor of a set of the kind READY_SET.
        timeout_us: Longest wait in microseconds; -1: for ever.
        to_wake: Called, and removed, right before the wait; Waiters when the GIL is released.
        fds, masks: Take each descriptor once, and selectors' events; room for MOST_EVENTS.

    Raises: OSError, also (ENOSYS) where READY_SET is empty.
    """
    cdef WaitState *states[MOST_WAKES]
    cdef int wake_count = 0
    cdef list woken = None      # keeps them alive
    cdef int count
    cdef int i
    if to_wake:
        woken = to_wake.copy()
        to_wake.clear()
        for wake in woken:
            if type(wake) is Waiter and wake_count < MOST_WAKES:
                states[wake_count] = &(<Waiter>wake).state
                wake_count += 1
            else:
                wake()
    with nogil:
        for i in range(wake_count):
            wake_state(states[i])
        count = kp_wait_ready(set_fd, fds, masks, timeout_us)
        want_gil()
    have_gil()
    if count < 0:
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        count = 0
    return count


cdef long long timeout_us_of(timeout_ms) except? -2:
    """Return a timeout in whole microseconds; -1 for None, which is for ever."""
    return -1 if timeout_ms is None else <long long>(max(timeout_ms, 0) * 1000)


def send(int fd, buffers not None):
    """Write a list of bytes-like objects; return how many bytes the kernel took from the front, 0 if it takes none now.

    It writes at most MOST_BUFFERS of them. Nothing is copied in user space.
    """
    return send_buffers(fd, buffers)


cdef int64_t send_buffers(int fd, buffers) except -1:
    """Do as `send`."""
    cdef Py_buffer[FEW_BUFFERS] few_views
    cdef iovec[FEW_BUFFERS] few_vectors
    cdef Py_buffer *views = few_views
    cdef iovec *vectors = few_vectors
    cdef Py_ssize_t room = min(len(buffers), <Py_ssize_t>MOST_BUFFERS)
    cdef void *memory = NULL
    cdef int count = 0
    cdef int64_t total = 0
    cdef int64_t sent = 0
    cdef int error = 0
    if room > FEW_BUFFERS:
        memory = malloc(<size_t>room * (sizeof(Py_buffer) + sizeof(iovec)))
        if memory is NULL:
            raise MemoryError
        views = <Py_buffer *>memory
        vectors = <iovec *>(views + room)
    try:
        for buffer in buffers:
            if count == room:
                break
            PyObject_GetBuffer(buffer, &views[count], PyBUF_SIMPLE)
            vectors[count].iov_base = views[count].buf
            vectors[count].iov_len = <size_t>views[count].len
            total += views[count].len
            count += 1
        if total <= SMALL_WRITE:
            sent = _write(fd, vectors, count, &error)
        else:
            with nogil:
                sent = _write(fd, vectors, count, &error)
                want_gil()
            have_gil()
    finally:
        while count > 0:
            count -= 1
            PyBuffer_Release(&views[count])
        free(memory)
    if sent == 0 and error != 0 and error != EAGAIN:
        raise OSError(error, strerror(error))
    return sent


cdef int64_t _write(int fd, iovec *vectors, int count, int *error) noexcept nogil:
    """Write until the kernel takes no more or fails; after written bytes the next call returns the error again."""
    cdef msghdr message
    cdef int64_t sent = 0
    cdef Py_ssize_t taken
    memset(&message, 0, sizeof(message))
    while count > 0:
        message.msg_iov = vectors
        message.msg_iovlen = <size_t>count
        taken = c_sendmsg(fd, &message, SEND_FLAGS)
        if taken < 0:
            if errno == EINTR:
                continue
            error[0] = errno
            break
        sent += taken
        while count > 0 and <size_t>taken >= vectors[0].iov_len:
            taken -= <Py_ssize_t>vectors[0].iov_len
            vectors += 1
            count -= 1
        if count > 0:
            vectors[0].iov_base = <char *>vectors[0].iov_base + taken
            vectors[0].iov_len -= <size_t>taken
    return sent


def receive_into(int fd, target not None):
    """Read into a writable buffer; return the number of bytes, 0 at the end of the stream, None if there are none now.

    Keeps the GIL: answers are short.
    """
    cdef Py_buffer view
    cdef Py_ssize_t size
    PyObject_GetBuffer(target, &view, PyBUF_WRITABLE)
    try:
        size = receive_bytes(fd, <char *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return None if size == NOTHING_NOW else size


cdef Py_ssize_t receive_bytes(int fd, char *target, Py_ssize_t room) except -1:
    """Do as `receive_into`; NOTHING_NOW if there are no bytes now."""
    cdef Py_ssize_t size = c_recv(fd, target, <size_t>room, MSG_DONTWAIT)
    while size < 0 and errno == EINTR:
        size = c_recv(fd, target, <size_t>room, MSG_DONTWAIT)
    if size >= 0:
        return size
    error = errno
    if error == EAGAIN:
        return NOTHING_NOW
    raise OSError(error, strerror(error))
