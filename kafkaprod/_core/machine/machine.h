/* C that Cython cannot express: atomics, the lock, clocks, prefetching, unaligned words, the CRC instruction.

   Used through the .pxd files, which declare it with Cython's types and say what it is for. Everything is static inline: each
   module gets what it uses. */
#ifndef KAFKAPROD_MACHINE_H
#define KAFKAPROD_MACHINE_H

#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
/* KAFKAPROD_PORTABLE builds the form of the other Unixes on Linux, for tests. */
#if defined(__linux__) && !defined(KAFKAPROD_PORTABLE)
#define KP_HAS_FUTEX 1
#include <sys/syscall.h>
#else
#define KP_HAS_FUTEX 0
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

/* --- build ------------------------------------------------------------------------------------------------------------ */

#ifdef KAFKAPROD_DEBUG
#define KP_DEBUG 1
#else
#define KP_DEBUG 0
#endif
#ifdef Py_GIL_DISABLED
#define KP_FREE_THREADED 1
#else
#define KP_FREE_THREADED 0
#endif

/* --- types ------------------------------------------------------------------------------------------------------------ */

/* Make a type that only C code of its own module can instantiate: its objects hold pointers that Python cannot supply.
   Cython calls the type's constructor function directly there and does not look at the slots cleared here. */
static inline int kp_forbid_new(PyObject *type_object) {
    PyTypeObject *type = (PyTypeObject *)type_object;
    type->tp_new = NULL;
    type->tp_vectorcall = NULL;
    type->tp_flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
    if (PyDict_DelItemString(type->tp_dict, "__new__") < 0) PyErr_Clear();
    PyType_Modified(type);
    return 0;
}

/* --- references -------------------------------------------------------------------------------------------------------- */

/* A new reference, as Cython's `object`: declared as a function that returns one, it is not counted again. */
#define kp_take_reference(reference) (reference)

/* Have threads that call an object's methods not count references to it, where they would wait for each other to count: on
   a build without the GIL. The garbage collector alone ends such an object. */
static inline void kp_share_among_threads(PyObject *object) {
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
    PyUnstable_Object_EnableDeferredRefcount(object);
#else
    (void)object;
#endif
}

/* --- atomics, of any type that a register holds ------------------------------------------------------------------------ */

#define kp_load(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define kp_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
/* For others to read without the lock: what was written before kp_publish is there after kp_observe. */
#define kp_publish(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define kp_observe(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define kp_add(p, v) __atomic_add_fetch((p), (v), __ATOMIC_ACQ_REL)
#define kp_swap(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
/* Between a store and the load that follows it, where two threads each store one and load the other's, and one of them must
   see the other's. With a GIL both sides hold that, whose own lock orders them. */
#if KP_FREE_THREADED
#define kp_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#else
#define kp_fence() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#endif

/* --- lock; see lock.pxd ------------------------------------------------------------------------------------------------ */

#if defined(__x86_64__) || defined(__i386__)
#define KP_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
/* Not yield, which many of these processors skip: forty of those are no wait at all. */
#define KP_PAUSE() __asm__ volatile("isb" ::: "memory")
#else
#define KP_PAUSE() ((void)0)
#endif
/* linux/futex.h is not there where only a C library's headers are, as on Alpine; these are part of the kernel's ABI. */
#define KP_FUTEX_WAIT_PRIVATE 128
#define KP_FUTEX_WAKE_PRIVATE 129
#define KP_SPINS 40                 /* some microseconds: as long as a lock is held for a few records */
#define KP_MOST_SLEEP_NS 200000
#define KP_NAP_NS 50000             /* without a futex: a thread that waits looks again after this */
typedef union {
    uint32_t word;                  /* what the kernel compares */
    struct { uint8_t is_held, is_awaited; } is;
} kp_mutex;

static inline int kp_mutex_try(kp_mutex *m) {
    return __atomic_exchange_n(&m->is.is_held, 1, __ATOMIC_ACQUIRE) == 0;
}
static inline int kp_mutex_spin(kp_mutex *m) {
    for (int i = 0; i < KP_SPINS; i++) {
        KP_PAUSE();
        if (!__atomic_load_n(&m->is.is_held, __ATOMIC_RELAXED) && kp_mutex_try(m)) return 1;
    }
    return 0;
}
#if KP_HAS_FUTEX
static __attribute__((noinline, cold, unused)) void kp_mutex_wait(kp_mutex *m) {
    const struct timespec most = {0, KP_MOST_SLEEP_NS};
    kp_mutex asleep = {0};
    asleep.is.is_held = asleep.is.is_awaited = 1;
    if (kp_mutex_spin(m)) return;
    for (;;) {
        __atomic_store_n(&m->is.is_awaited, 1, __ATOMIC_SEQ_CST);
        if (kp_mutex_try(m)) return;
        syscall(SYS_futex, &m->word, KP_FUTEX_WAIT_PRIVATE, asleep.word, &most, (void *)0, 0);
    }
}
static __attribute__((noinline, cold, unused)) void kp_mutex_wake(kp_mutex *m) {
    __atomic_store_n(&m->is.is_awaited, 0, __ATOMIC_RELAXED);
    syscall(SYS_futex, &m->word, KP_FUTEX_WAKE_PRIVATE, INT32_MAX, (void *)0, (void *)0, 0);
}
#else
/* No thread is woken: is_awaited stays 0, and a thread that waits looks again after each nap. */
static __attribute__((noinline, cold, unused)) void kp_mutex_wait(kp_mutex *m) {
    const struct timespec nap = {0, KP_NAP_NS};
    while (!kp_mutex_spin(m)) nanosleep(&nap, NULL);
}
static __attribute__((noinline, cold, unused)) void kp_mutex_wake(kp_mutex *m) { (void)m; }
#endif
static inline void kp_mutex_lock(kp_mutex *m) {
    if (__builtin_expect(!kp_mutex_try(m), 0)) kp_mutex_wait(m);
}
static inline void kp_mutex_unlock(kp_mutex *m) {
    __atomic_store_n(&m->is.is_held, 0, __ATOMIC_RELEASE);
    if (__builtin_expect(__atomic_load_n(&m->is.is_awaited, __ATOMIC_RELAXED), 0)) kp_mutex_wake(m);
}

/* --- clocks ------------------------------------------------------------------------------------------------------------ */

#ifndef CLOCK_REALTIME_COARSE
#define CLOCK_REALTIME_COARSE CLOCK_REALTIME
#endif
/* The clock of time.monotonic(), with which these times are compared. On macOS that one stands still while the machine
   sleeps, and CLOCK_MONOTONIC does not. */
#ifdef __APPLE__
#define KP_MONOTONIC CLOCK_UPTIME_RAW
#else
#define KP_MONOTONIC CLOCK_MONOTONIC
#endif
static inline long long kp_clock_us(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}
#define kp_monotonic_us() kp_clock_us(KP_MONOTONIC)
static inline long long kp_monotonic_ns(void) {
    struct timespec t;
    clock_gettime(KP_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}
#define kp_wall_ms() (kp_clock_us(CLOCK_REALTIME_COARSE) / 1000)

/* --- prefetching ------------------------------------------------------------------------------------------------------- */

/* The empty statement keeps the compiler from dropping calls of functions that do nothing but prefetch. */
#define KP_KEEP(p) __asm__ volatile("" : : "r"(p))
static inline void kp_prefetch_read(const void *p) { __builtin_prefetch(p, 0); KP_KEEP(p); }
static inline void kp_prefetch_write(const void *p) { __builtin_prefetch(p, 1); KP_KEEP(p); }

/* --- bytes ------------------------------------------------------------------------------------------------------------- */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define kp_be16(x) (x)
#define kp_be32(x) (x)
#define kp_be64(x) (x)
#else
#define kp_be16(x) __builtin_bswap16(x)
#define kp_be32(x) __builtin_bswap32(x)
#define kp_be64(x) __builtin_bswap64(x)
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define kp_little32(x) __builtin_bswap32(x)
#else
#define kp_little32(x) (x)
#endif
#define kp_high_product(a, b) ((uint64_t)(((unsigned __int128)(a) * (b)) >> 64))

/* A copy of memory that other threads may write to; all later reads are of the copy. */
static inline void kp_copy_shared(void *to, const void *from, size_t size) {
    memcpy(to, from, size);
    __asm__ volatile("" : : "r"(to) : "memory");
}

#if defined(__GNUC__)
/* __builtin_memcpy: memcpy would be checked by _FORTIFY_SOURCE=3, which knows no size here and costs 1 to 2 ns a record. */
typedef char kp_16 __attribute__((vector_size(16)));
/* The first and the last bytes, which may overlap: all is loaded before any is stored. */
#define KP_COPY_ENDS(type) do { type head, tail; \
    __builtin_memcpy(&head, from, sizeof(type)); __builtin_memcpy(&tail, from + length - sizeof(type), sizeof(type)); \
    __builtin_memcpy(to, &head, sizeof(type)); __builtin_memcpy(to + length - sizeof(type), &tail, sizeof(type)); } while (0)
static inline void kp_copy(char *to, const char *from, Py_ssize_t length) {
    if (length > 128) __builtin_memcpy(to, from, (size_t)length);
    else if (length > 32) {
        const char *from_end = from + length;
        char *to_end = to + length;
        kp_16 a, b, c, d, e, f, g, h;
        __builtin_memcpy(&a, from, 16); __builtin_memcpy(&b, from + 16, 16);
        __builtin_memcpy(&g, from_end - 32, 16); __builtin_memcpy(&h, from_end - 16, 16);
        if (length > 64) {
            __builtin_memcpy(&c, from + 32, 16); __builtin_memcpy(&d, from + 48, 16);
            __builtin_memcpy(&e, from_end - 64, 16); __builtin_memcpy(&f, from_end - 48, 16);
            __builtin_memcpy(to + 32, &c, 16); __builtin_memcpy(to + 48, &d, 16);
            __builtin_memcpy(to_end - 64, &e, 16); __builtin_memcpy(to_end - 48, &f, 16);
        }
        __builtin_memcpy(to, &a, 16); __builtin_memcpy(to + 16, &b, 16);
        __builtin_memcpy(to_end - 32, &g, 16); __builtin_memcpy(to_end - 16, &h, 16);
    }
    else if (length >= 16) KP_COPY_ENDS(kp_16);
    else if (length >= 8) KP_COPY_ENDS(uint64_t);
    else if (length >= 4) KP_COPY_ENDS(uint32_t);
    else while (length-- > 0) to[length] = from[length];
}
#else
#define kp_copy(to, from, length) memcpy((to), (from), (size_t)(length))
#endif

static inline uint64_t kp_multiply(uint64_t a, uint64_t b, uint64_t *high) {
    unsigned __int128 product = (unsigned __int128)a * b;
    *high = (uint64_t)(product >> 64);
    return (uint64_t)product;
}

#define kp_blob_start(blob) PyBytes_AS_STRING(blob)
#define kp_blob_size(blob) PyBytes_GET_SIZE(blob)

/* --- CRC-32C; see checksum.pyx ------------------------------------------------------------------------------------------ */

#if defined(__x86_64__)
static inline int kp_has_crc(void) { return __builtin_cpu_supports("sse4.2"); }
static inline uint64_t kp_crc_word(uint64_t crc, uint64_t word) {
    __asm__("crc32q %1, %0" : "+r"(crc) : "rm"(word));
    return crc;
}
static inline uint64_t kp_crc_byte(uint64_t crc, uint8_t byte) {
    __asm__("crc32b %1, %0" : "+r"(crc) : "rm"(byte));
    return crc;
}
#elif defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__)) && !defined(__AARCH64EB__)
#if defined(__linux__)
static inline int kp_has_crc(void) { return (getauxval(AT_HWCAP) & (1 << 7)) != 0; }   /* HWCAP_CRC32 */
#else
static inline int kp_has_crc(void) { return 1; }   /* all of Apple's that macOS runs on have it */
#endif
static inline uint64_t kp_crc_word(uint64_t crc, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}
static inline uint64_t kp_crc_byte(uint64_t crc, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    return crc;
}
#else
static inline int kp_has_crc(void) { return 0; }
static inline uint64_t kp_crc_word(uint64_t crc, uint64_t word) { (void)word; return crc; }
static inline uint64_t kp_crc_byte(uint64_t crc, uint8_t byte) { (void)byte; return crc; }
#endif

#endif
