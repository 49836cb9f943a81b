/* System calls that differ between Linux and other Unixes; used by socket_calls.pyx.

   KAFKAPROD_PORTABLE builds the form of the other Unixes on Linux, for tests. */
#ifndef KAFKAPROD_SOCKET_CALLS_H
#define KAFKAPROD_SOCKET_CALLS_H

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* Where MSG_NOSIGNAL is missing, SIGPIPE must be ignored; Python does that at its start. */
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif
#define KP_SEND_FLAGS (MSG_NOSIGNAL | MSG_DONTWAIT)

#define KP_READ 1     /* selectors.EVENT_READ */
#define KP_WRITE 2    /* selectors.EVENT_WRITE */
#define KP_MOST_EVENTS 64
#define KP_LONG_WAIT_US 10000                 /* of which a millisecond too much is no more than a tenth */
#define KP_LONGEST_WAIT_US 86400000000LL      /* a day; a caller that waits for more asks again */

/* Which descriptors kp_wait_ready understands: the same set of files as selectors.EpollSelector or KqueueSelector has. */
#if defined(__linux__) && !defined(KAFKAPROD_PORTABLE)
#define KP_READY_SET "epoll"
#include <sys/epoll.h>
#elif defined(__APPLE__) || defined(__FreeBSD__)
#define KP_READY_SET "kqueue"
#include <sys/event.h>
#else
#define KP_READY_SET ""
#endif

/* Wait until files of a set are ready, at most timeout_us, or for ever if that is negative. Fill fds and masks (KP_READ |
   KP_WRITE), each descriptor once; return how many, or -1 and errno. A signal ends the wait with 0 or EINTR. */
static inline int kp_wait_ready(int set_fd, int fds[KP_MOST_EVENTS], int masks[KP_MOST_EVENTS], long long timeout_us) {
    struct timespec timeout = {timeout_us / 1000000, timeout_us % 1000000 * 1000};
#if defined(EPOLLIN)
    struct epoll_event events[KP_MOST_EVENTS];
    /* epoll_wait() counts whole milliseconds, which is exact enough for long waits, and one call less. ppoll() counts less,
       and an epoll descriptor is readable when one of its files is ready. */
    struct pollfd set = {set_fd, POLLIN, 0};
    int wait_ms = 0;
    if (timeout_us < 0)
        wait_ms = -1;
    else if (timeout_us >= KP_LONG_WAIT_US)
        wait_ms = timeout_us > KP_LONGEST_WAIT_US ? KP_LONGEST_WAIT_US / 1000 : (int)((timeout_us + 999) / 1000);
    else if (timeout_us != 0 && ppoll(&set, 1, &timeout, NULL) <= 0)
        return 0;   /* nothing, or a signal, or an error that the next call will meet, too */
    int count = epoll_wait(set_fd, events, KP_MOST_EVENTS, wait_ms);
    for (int i = 0; i < count; i++) {
        /* As selectors has it: an error or a hang-up makes a file both readable and writable. */
        fds[i] = events[i].data.fd;
        masks[i] = (events[i].events & ~(uint32_t)EPOLLOUT ? KP_READ : 0) | (events[i].events & ~(uint32_t)EPOLLIN ? KP_WRITE : 0);
    }
    return count;
#elif defined(EVFILT_READ)
    struct kevent events[KP_MOST_EVENTS];
    int found = kevent(set_fd, NULL, 0, events, KP_MOST_EVENTS, timeout_us < 0 ? NULL : &timeout);
    int count = found < 0 ? -1 : 0;
    for (int i = 0; i < found; i++) {
        /* A file that is readable and writable comes as two events. */
        int at = 0;
        while (at < count && fds[at] != (int)events[i].ident) at++;
        if (at == count) {
            fds[count] = (int)events[i].ident;
            masks[count++] = 0;
        }
        masks[at] |= events[i].filter == EVFILT_WRITE ? KP_WRITE : KP_READ;
    }
    return count;
#else
    (void)set_fd; (void)fds; (void)masks; (void)timeout;
    errno = ENOSYS;
    return -1;
#endif
}

#endif
