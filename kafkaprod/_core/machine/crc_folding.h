/* CRC-32C by multiplying polynomials, 64 bytes by one instruction, where an x86-64 has VPCLMULQDQ and AVX-512; see checksum.pyx.

   Older compilers lack some of the functions: what they build goes by the CRC instruction alone. */
#ifndef KAFKAPROD_CRC_FOLDING_H
#define KAFKAPROD_CRC_FOLDING_H

#include <Python.h>
#include <stdint.h>

#if defined(__clang__)
#define KP_COMPILES_FOLDING (__clang_major__ >= 8)
#elif defined(__GNUC__)
#define KP_COMPILES_FOLDING (__GNUC__ >= 10)
#else
#define KP_COMPILES_FOLDING 0
#endif

#if defined(__x86_64__) && KP_COMPILES_FOLDING
#include <immintrin.h>

#define KP_FOLDING __attribute__((target("sse4.2,avx512f,vpclmulqdq")))

static inline int kp_has_folding(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
}

/* Each 16 bytes of `folded`, moved over as many bits as `factors` is for, and `next` added. */
KP_FOLDING static inline __m512i kp_fold(__m512i folded, __m512i factors, __m512i next) {
    __m512i low = _mm512_clmulepi64_epi128(folded, factors, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(folded, factors, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);    /* the sum of all three */
}

KP_FOLDING static inline __m512i kp_factors(const uint64_t *pair) {
    return _mm512_set_epi64((long long)pair[1], (long long)pair[0], (long long)pair[1], (long long)pair[0],
                            (long long)pair[1], (long long)pair[0], (long long)pair[1], (long long)pair[0]);
}

/* Carry a CRC on over `blocks` (1 or more) times 256 bytes. `far` and `near` are the factors over 256 and over 64 bytes. */
KP_FOLDING static uint64_t kp_crc_folded(uint64_t crc, const char *data, Py_ssize_t blocks, const uint64_t *far,
                                         const uint64_t *near) {
    const __m512i over_256 = kp_factors(far), over_64 = kp_factors(near);
    __m512i first = _mm512_zextsi128_si512(_mm_cvtsi64_si128((long long)crc));
    __m512i a = _mm512_xor_si512(first, _mm512_loadu_si512(data));
    __m512i b = _mm512_loadu_si512(data + 64);
    __m512i c = _mm512_loadu_si512(data + 128);
    __m512i d = _mm512_loadu_si512(data + 192);
    uint64_t left[8];
    int i;
    while (--blocks > 0) {
        data += 256;
        a = kp_fold(a, over_256, _mm512_loadu_si512(data));
        b = kp_fold(b, over_256, _mm512_loadu_si512(data + 64));
        c = kp_fold(c, over_256, _mm512_loadu_si512(data + 128));
        d = kp_fold(d, over_256, _mm512_loadu_si512(data + 192));
    }
    b = kp_fold(a, over_64, b);
    c = kp_fold(b, over_64, c);
    d = kp_fold(c, over_64, d);
    _mm512_storeu_si512(left, d);       /* 64 bytes with the same CRC as all of them */
    crc = 0;
    for (i = 0; i < 8; i++)
        __asm__("crc32q %1, %0" : "+r"(crc) : "rm"(left[i]));
    return crc;
}
#else
static inline int kp_has_folding(void) { return 0; }
static inline uint64_t kp_crc_folded(uint64_t crc, const char *data, Py_ssize_t blocks, const uint64_t *far,
                                     const uint64_t *near) {
    (void)data, (void)blocks, (void)far, (void)near;
    return crc;
}
#endif

#endif
