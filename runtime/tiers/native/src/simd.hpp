// Vectors of floats as wide as the target of the compilation has them, and numbers in other widths.
//
// The same code serves AVX-512, AVX2 and anything else (four lanes: SSE, NEON): arithmetic is the compiler's
// vector extension, and intrinsics stand only where the extension has no word for an instruction.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace dynofarm {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
constexpr int LANES = 16;
constexpr int REGISTERS = 32;
#define DYNOFARM_LANES 16
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int LANES = 8;
constexpr int REGISTERS = 16;
#define DYNOFARM_LANES 8
#else
constexpr int LANES = 4;
constexpr int REGISTERS = 16;
#define DYNOFARM_LANES 4
#endif

#if defined(__AVX512BF16__) && DYNOFARM_LANES == 16
#define DYNOFARM_DOT_BF16 1
#endif

typedef float vf __attribute__((vector_size(4 * DYNOFARM_LANES)));
typedef std::int32_t vi __attribute__((vector_size(4 * DYNOFARM_LANES)));
typedef std::uint32_t vu __attribute__((vector_size(4 * DYNOFARM_LANES)));
typedef float vf_anywhere __attribute__((vector_size(4 * DYNOFARM_LANES), aligned(4), may_alias));
typedef std::uint32_t vu_anywhere __attribute__((vector_size(4 * DYNOFARM_LANES), aligned(4), may_alias));

// A float without its lower 16 bits.
struct bf16 {
    std::uint16_t bits;
};

inline float widen(float value) { return value; }

inline float widen(bf16 value) {
    const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, 4);
    return wide;
}

inline float widen(std::int8_t value) { return static_cast<float>(value); }

inline void narrow(float value, float& out) { out = value; }

// To the nearest, ties to even; NaN stays NaN.
inline void narrow(float value, bf16& out) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    out.bits = static_cast<std::uint16_t>(value == value ? rounded : ((bits >> 16) | 0x40u));
}

inline vf splat(float value) { return value - vf{}; }

inline vf load(const float* from) { return *reinterpret_cast<const vf_anywhere*>(from); }

inline vu load_words(const std::uint32_t* from) { return *reinterpret_cast<const vu_anywhere*>(from); }

inline void store(float* to, vf value) { *reinterpret_cast<vf_anywhere*>(to) = value; }

// Keeps a value in a register that is used several times: compilers would rather read it again each time.
inline vf held_in_register(vf value) {
#if defined(__x86_64__)
    asm("" : "+v"(value));
#endif
    return value;
}

inline vf load(const bf16* from) {
#if DYNOFARM_LANES == 16
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
#elif DYNOFARM_LANES == 8
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
#else
    vf wide;
    for (int lane = 0; lane < LANES; ++lane) wide[lane] = widen(from[lane]);
    return wide;
#endif
}

inline vf load(const std::int8_t* from) {
#if DYNOFARM_LANES == 16
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#elif DYNOFARM_LANES == 8
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
#else
    vf wide;
    for (int lane = 0; lane < LANES; ++lane) wide[lane] = widen(from[lane]);
    return wide;
#endif
}

// a * b + sum, rounded once where the target does that. Written as an expression a compiler contracts it in one
// instance of a template and not in the next (gcc for Zen): the same number would differ by how work is divided.
inline vf multiply_add(vf a, vf b, vf sum) {
#if DYNOFARM_LANES == 16
    return _mm512_fmadd_ps(a, b, sum);
#elif DYNOFARM_LANES == 8
    return _mm256_fmadd_ps(a, b, sum);
#else
    return a * b + sum;
#endif
}

inline float multiply_add(float a, float b, float sum) {
#if DYNOFARM_LANES >= 8
    return __builtin_fmaf(a, b, sum);
#else
    return a * b + sum;
#endif
}

// The comparison is false for NaN, which therefore stays.
inline vf at_least(vf value, float floor) { return value < splat(floor) ? splat(floor) : value; }

inline vf at_most(vf value, float ceiling) { return value > splat(ceiling) ? splat(ceiling) : value; }

inline vf larger(vf a, vf b) { return a > b ? a : b; }

inline float sum(vf value) {
#if DYNOFARM_LANES == 16
    return _mm512_reduce_add_ps(value);
#elif DYNOFARM_LANES == 8
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
#else
    return (value[0] + value[2]) + (value[1] + value[3]);
#endif
}

inline float largest(vf value) {
#if DYNOFARM_LANES == 16
    return _mm512_reduce_max_ps(value);
#elif DYNOFARM_LANES == 8
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
#else
    const float a = value[0] > value[2] ? value[0] : value[2];
    const float b = value[1] > value[3] ? value[1] : value[3];
    return a > b ? a : b;
#endif
}

// e^x to 2 units in the last place (Cephes' polynomial); below -87 it stays at e^-87, above 88 at e^88.
inline vf exponential(vf x) {
    constexpr float MAGIC = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    x = at_most(at_least(x, -87.0f), 88.0f);
    const vf shifted = x * 1.44269504088896341f + MAGIC;
    const vf power = shifted - MAGIC;
    const vf rest = (x - power * 0.693359375f) + power * 2.12194440e-4f;
    vf series = splat(1.9875691500e-4f);
    series = series * rest + 1.3981999507e-3f;
    series = series * rest + 8.3334519073e-3f;
    series = series * rest + 4.1665795894e-2f;
    series = series * rest + 1.6666665459e-1f;
    series = series * rest + 5.0000001201e-1f;
    const vf mantissa = series * (rest * rest) + rest + 1.0f;
    return reinterpret_cast<vf>(reinterpret_cast<vi>(mantissa) + (reinterpret_cast<vi>(shifted) << 23));
}

// Memory that begins on a cache line: a vector that lies across two takes two reads.
template <class T>
struct LineAllocator {
    using value_type = T;
    static constexpr std::align_val_t LINE{64};

    LineAllocator() = default;
    template <class U>
    LineAllocator(const LineAllocator<U>&) {}

    T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), LINE)); }
    void deallocate(T* held, std::size_t) { ::operator delete(held, LINE); }

    template <class U>
    bool operator==(const LineAllocator<U>&) const { return true; }
    template <class U>
    bool operator!=(const LineAllocator<U>&) const { return false; }
};

template <class T>
using Lines = std::vector<T, LineAllocator<T>>;

inline const char* instruction_set() {
#if defined(DYNOFARM_DOT_BF16)
    return "avx512-bf16";
#elif DYNOFARM_LANES == 16
    return "avx512";
#elif DYNOFARM_LANES == 8
    return "avx2";
#else
    return "plain";
#endif
}

}  // namespace dynofarm
