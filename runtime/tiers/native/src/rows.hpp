// Products of a few activations with the rows of a weight: each weight is read once for all activations.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "simd.hpp"

namespace dynofarm {

// A weight [outputs, inputs]; scales: one per output, for int8 only; bias: one per output, or null.
struct Linear {
    const void* weight;
    const float* scales;
    const float* bias;
};

// What a kind of weight is multiplied with: bf16 where the processor has an instruction for pairs of them.
template <class Weight>
struct Activation {
    using type = float;
};
#if defined(DYNOFARM_DOT_BF16)
template <>
struct Activation<bf16> {
    using type = bf16;
};
#endif

// Asks memory for what is read next but a few rows: products of several activations leave a processor too little
// room to look ahead by itself (measured: 5 activations 7.5 to 12 GB/s with one thread).
template <class Weight>
inline void ask_ahead(const Weight* place) {
    __builtin_prefetch(reinterpret_cast<const char*>(place) + 16384);
}

// out[row][item] = weight row . activation item, for ROWS rows and ITEMS activations held in registers.
template <int ROWS, int ITEMS, class Weight>
inline void dots(const Weight* weight, const float* x, int inputs, float (*out)[ITEMS]) {
    vf sums[ROWS][ITEMS] = {};
    const int whole = inputs - inputs % LANES;
    for (int k = 0; k < whole; k += LANES) {
        vf held[ROWS];
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; ++row) ask_ahead(weight + static_cast<std::size_t>(row) * inputs + k);
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; ++row) held[row] = held_in_register(load(weight + static_cast<std::size_t>(row) * inputs + k));
#pragma GCC unroll 8
        for (int item = 0; item < ITEMS; ++item) {
            const vf value = held_in_register(load(x + static_cast<std::size_t>(item) * inputs + k));
#pragma GCC unroll 8
            for (int row = 0; row < ROWS; ++row) sums[row][item] = multiply_add(held[row], value, sums[row][item]);
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; ++row) {
        const Weight* line = weight + static_cast<std::size_t>(row) * inputs;
#pragma GCC unroll 8
        for (int item = 0; item < ITEMS; ++item) {
            float total = sum(sums[row][item]);
            for (int k = whole; k < inputs; ++k) {
                total = multiply_add(widen(line[k]), x[static_cast<std::size_t>(item) * inputs + k], total);
            }
            out[row][item] = total;
        }
    }
}

#if defined(DYNOFARM_DOT_BF16)
template <int ROWS, int ITEMS>
inline void dots(const bf16* weight, const bf16* x, int inputs, float (*out)[ITEMS]) {
    vf sums[ROWS][ITEMS] = {};
    for (int k = 0; k < inputs; k += 32) {
        // Past the end of a row nothing is read, and zeros add nothing.
        const __mmask32 inside = inputs - k >= 32 ? ~__mmask32{0} : (__mmask32{1} << (inputs - k)) - 1;
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; ++row) ask_ahead(weight + static_cast<std::size_t>(row) * inputs + k);
        __m512bh held[ROWS];
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; ++row) {
            held[row] = (__m512bh)_mm512_maskz_loadu_epi16(inside, weight + static_cast<std::size_t>(row) * inputs + k);
        }
#pragma GCC unroll 8
        for (int item = 0; item < ITEMS; ++item) {
            const __m512bh value = (__m512bh)_mm512_maskz_loadu_epi16(inside, x + static_cast<std::size_t>(item) * inputs + k);
#pragma GCC unroll 8
            for (int row = 0; row < ROWS; ++row) {
                sums[row][item] = _mm512_dpbf16_ps(sums[row][item], held[row], value);
            }
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; ++row) {
#pragma GCC unroll 8
        for (int item = 0; item < ITEMS; ++item) out[row][item] = sum(sums[row][item]);
    }
}
#endif

// Rows at once for a number of activations: as many sums as fit the registers, few enough loads for each.
constexpr int rows_at_once(int items) {
    return REGISTERS == 32 ? (items <= 2 ? 8 : 4) : (items == 1 ? 8 : items <= 3 ? 4 : items == 4 ? 3 : 2);
}

constexpr int MOST_ITEMS = 6;

// Where products go: out[item * stride + row - base], in place of what stands there or added to it.
struct Sink {
    float* out;
    std::size_t stride;
    int base;
    bool adds;

    void put(int item, int row, float value) const {
        float& place = out[static_cast<std::size_t>(item) * stride + (row - base)];
        place = adds ? place + value : value;
    }
};

template <int ROWS, int ITEMS, class Weight, class Value>
inline void put_rows(const Linear& linear, const Value* x, int inputs, int row, int item, const Sink& sink) {
    float out[ROWS][ITEMS];
    const Weight* line = static_cast<const Weight*>(linear.weight) + static_cast<std::size_t>(row) * inputs;
    dots<ROWS, ITEMS>(line, x + static_cast<std::size_t>(item) * inputs, inputs, out);
    for (int r = 0; r < ROWS; ++r) {
        const float scale = linear.scales ? linear.scales[row + r] : 1.0f;
        const float bias = linear.bias ? linear.bias[row + r] : 0.0f;
        for (int i = 0; i < ITEMS; ++i) sink.put(item + i, row + r, multiply_add(out[r][i], scale, bias));
    }
}

// Rows [first, last) and `items` activations [items, inputs], ITEMS or fewer at a time. Further activations
// find the rows still in the cache.
template <int ITEMS, class Weight, class Value>
void multiply_by(const Linear& linear, const Value* x, int items, int inputs, int first, int last, const Sink& sink) {
    constexpr int ROWS = rows_at_once(ITEMS);
    int row = first;
    for (; row + ROWS <= last; row += ROWS) {
        int item = 0;
        for (; item + ITEMS <= items; item += ITEMS) put_rows<ROWS, ITEMS, Weight>(linear, x, inputs, row, item, sink);
        for (; item < items; ++item) put_rows<ROWS, 1, Weight>(linear, x, inputs, row, item, sink);
    }
    for (; row < last; ++row) {
        for (int item = 0; item < items; ++item) put_rows<1, 1, Weight>(linear, x, inputs, row, item, sink);
    }
}

template <class Weight, class Value>
void multiply(const Linear& linear, const Value* x, int items, int inputs, int first, int last, const Sink& sink) {
    // More than the registers hold are taken in groups of equal size, so that no group is nearly empty.
    const int most = REGISTERS == 32 ? MOST_ITEMS : (items > MOST_ITEMS ? 4 : MOST_ITEMS);
    const int groups = (items + most - 1) / most;
    switch ((items + groups - 1) / groups) {
        case 1: return multiply_by<1, Weight>(linear, x, items, inputs, first, last, sink);
        case 2: return multiply_by<2, Weight>(linear, x, items, inputs, first, last, sink);
        case 3: return multiply_by<3, Weight>(linear, x, items, inputs, first, last, sink);
        case 4: return multiply_by<4, Weight>(linear, x, items, inputs, first, last, sink);
        case 5: return multiply_by<5, Weight>(linear, x, items, inputs, first, last, sink);
        default: return multiply_by<6, Weight>(linear, x, items, inputs, first, last, sink);
    }
}

// gate / (1 + e^-gate) * up
inline void gate_values(const float* gate, const float* up, int count, float* out) {
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
        const vf g = load(gate + i);
        store(out + i, g / (exponential(-g) + 1.0f) * load(up + i));
    }
    for (; i < count; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

// How the rows of a weight are divided among threads.
struct Division {
    // Weights of one piece: some microseconds of reading, so that no thread waits long for the last one.
    static constexpr int PIECE_BYTES = 96 * 1024;
    // Whole vectors: the last few of gate_values are computed in another way, and where a piece ends must not
    // decide which these are.
    static constexpr int PIECE_ROWS = LANES > 8 ? LANES : 8;

    int rows;
    int pieces;

    // A row has `row_bytes`, and there are never more than `most` pieces.
    static Division of(int rows, std::int64_t row_bytes, int threads, int most) {
        if (threads <= 1) return {rows, 1};
        const std::int64_t groups = (rows + PIECE_ROWS - 1) / PIECE_ROWS;
        const std::int64_t wanted = rows * row_bytes / PIECE_BYTES + 1;
        return {rows, static_cast<int>(std::max<std::int64_t>(1, std::min({wanted, groups, std::int64_t{most}})))};
    }

    // Where a piece begins, in multiples of PIECE_ROWS; it ends where the next one begins.
    int begin(int piece) const {
        const std::int64_t groups = (rows + PIECE_ROWS - 1) / PIECE_ROWS;
        return static_cast<int>(std::min<std::int64_t>(rows, groups * piece / pieces * PIECE_ROWS));
    }
};

// silu(gate) * up for outputs [first, last) of `outputs`; the weight has gate's rows and then up's.
template <class Weight, class Value>
void multiply_gated(const Linear& linear, const Value* x, int items, int inputs, int outputs, int first, int last, float* out) {
    struct Memory {
        Lines<float> gate, up;
    };
    thread_local Memory held;
    const int count = last - first;
    const std::size_t size = static_cast<std::size_t>(items) * count;
    if (held.up.size() < size) held.gate.resize(size), held.up.resize(size);
    const std::size_t stride = count;
    multiply<Weight>(linear, x, items, inputs, first, last, Sink{held.gate.data(), stride, first, false});
    multiply<Weight>(linear, x, items, inputs, outputs + first, outputs + last, Sink{held.up.data(), stride, outputs + first, false});
    for (int item = 0; item < items; ++item) {
        gate_values(held.gate.data() + item * stride, held.up.data() + item * stride, count,
                    out + static_cast<std::size_t>(item) * outputs + first);
    }
}

}  // namespace dynofarm
