// Attention of some query heads over a tile of keys at a time, with a running softmax.
//
// Keys are turned so that a vector holds one dimension of several keys: scores then need no sum across lanes,
// and the query heads of a KV head (times the rows that share the keys) reuse what was turned.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "tile.hpp"

namespace dynofarm {

// Query heads whose sums fit the registers together.
constexpr int HEADS_AT_ONCE = REGISTERS == 32 ? 6 : 3;
constexpr float HIDDEN = -std::numeric_limits<float>::infinity();

#if DYNOFARM_LANES >= 8
inline void turn_8_by_8(const std::uint32_t* const* from, std::uint32_t* to, int stride) {
    __m256 r[8], t[8];
    for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(from[i]));
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
        _mm256_storeu_ps(reinterpret_cast<float*>(to + i * stride), _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(reinterpret_cast<float*>(to + (i + 4) * stride), _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}
#endif

// Keys [TILE][words] to [words][TILE]; a word is one float or two bf16.
template <class Value>
inline void turn_keys(const TileKeys<Value>& tile, int offset, int words, std::uint32_t* to) {
    const std::uint32_t* lines[TILE];
    for (int i = 0; i < TILE; ++i) lines[i] = reinterpret_cast<const std::uint32_t*>(tile.keys[i] + offset);
    int word = 0;
#if DYNOFARM_LANES >= 8
    for (; word + 8 <= words; word += 8) {
        for (int i = 0; i < TILE; i += 8) {
            const std::uint32_t* corner[8];
            for (int j = 0; j < 8; ++j) corner[j] = lines[i + j] + word;
            turn_8_by_8(corner, to + word * TILE + i, TILE);
        }
    }
#endif
    for (; word < words; ++word) {
        for (int i = 0; i < TILE; ++i) std::memcpy(to + word * TILE + i, lines[i] + word, 4);
    }
}

// scores[head][TILE] = query . key for HEADS query heads [head_dim], already scaled.
template <int HEADS>
inline void score(const float* queries, int query_stride, const std::uint32_t* keys, int words, float* scores, const float*) {
    vf sums[HEADS][TILE_VECTORS] = {};
    const float* turned = reinterpret_cast<const float*>(keys);
    for (int word = 0; word < words; ++word) {
        // The sums, one query for each head and one vector of keys: that is every register there is.
        vf query[HEADS];
#pragma GCC unroll 8
        for (int head = 0; head < HEADS; ++head) query[head] = splat(queries[head * query_stride + word]);
#pragma GCC unroll 4
        for (int v = 0; v < TILE_VECTORS; ++v) {
            const vf held = held_in_register(load(turned + word * TILE + v * LANES));
#pragma GCC unroll 8
            for (int head = 0; head < HEADS; ++head) sums[head][v] = multiply_add(query[head], held, sums[head][v]);
        }
    }
#pragma GCC unroll 8
    for (int head = 0; head < HEADS; ++head) {
#pragma GCC unroll 4
        for (int v = 0; v < TILE_VECTORS; ++v) store(scores + head * TILE + v * LANES, sums[head][v]);
    }
}

template <int HEADS>
inline void score(const float* queries, int query_stride, const std::uint32_t* keys, int words, float* scores, const bf16*) {
    vf sums[HEADS][TILE_VECTORS] = {};
    for (int word = 0; word < words; ++word) {
#if defined(DYNOFARM_DOT_BF16)
        __m512bh query[HEADS];
#pragma GCC unroll 8
        for (int head = 0; head < HEADS; ++head) {
            std::int32_t pair;
            std::memcpy(&pair, queries + head * query_stride + word, 4);
            query[head] = (__m512bh)_mm512_set1_epi32(pair);
        }
#pragma GCC unroll 4
        for (int v = 0; v < TILE_VECTORS; ++v) {
            const __m512bh held = (__m512bh)_mm512_loadu_si512(keys + word * TILE + v * LANES);
#pragma GCC unroll 8
            for (int head = 0; head < HEADS; ++head) sums[head][v] = _mm512_dpbf16_ps(sums[head][v], query[head], held);
        }
#else
        for (int half = 0; half < 2; ++half) {
            vf query[HEADS];
#pragma GCC unroll 8
            for (int head = 0; head < HEADS; ++head) query[head] = splat(queries[head * query_stride + 2 * word + half]);
#pragma GCC unroll 4
            for (int v = 0; v < TILE_VECTORS; ++v) {
                const vu pair = load_words(keys + word * TILE + v * LANES);
                const vf held = reinterpret_cast<vf>(half ? pair & 0xffff0000u : pair << 16);
#pragma GCC unroll 8
                for (int head = 0; head < HEADS; ++head) sums[head][v] = multiply_add(query[head], held, sums[head][v]);
            }
        }
#endif
    }
#pragma GCC unroll 8
    for (int head = 0; head < HEADS; ++head) {
#pragma GCC unroll 4
        for (int v = 0; v < TILE_VECTORS; ++v) store(scores + head * TILE + v * LANES, sums[head][v]);
    }
}

// A query as `score` reads it: floats, or pairs of bf16 where those are multiplied as pairs.
template <class Value, class Query>
inline void put_query(const Query* from, float scale, int head_dim, float* to) {
#if defined(DYNOFARM_DOT_BF16)
    if constexpr (std::is_same_v<Value, bf16>) {
        bf16* pairs = reinterpret_cast<bf16*>(to);
        for (int d = 0; d < head_dim; ++d) narrow(widen(from[d]) * scale, pairs[d]);
        return;
    }
#endif
    for (int d = 0; d < head_dim; ++d) to[d] = widen(from[d]) * scale;
}

// Softmax of one query head so far: out is not divided by weight yet.
struct Running {
    float* out;
    float best;
    float weight;
};

// Scores of one query head to weights, in place; returns by how much what was summed before counts less.
inline float weigh(float* scores, int visible, Running& running) {
    vf values[TILE_VECTORS];
    for (int v = 0; v < TILE_VECTORS; ++v) values[v] = load(scores + v * LANES);
    if (visible < TILE) {
        for (int i = std::max(0, visible); i < TILE; ++i) scores[i] = HIDDEN;
        for (int v = 0; v < TILE_VECTORS; ++v) values[v] = load(scores + v * LANES);
    }
    vf top = values[0];
    for (int v = 1; v < TILE_VECTORS; ++v) top = larger(top, values[v]);
    const float best = std::max(running.best, largest(top));
    if (best == HIDDEN) {
        for (int v = 0; v < TILE_VECTORS; ++v) store(scores + v * LANES, vf{});
        return 1.0f;
    }
    const float kept = running.best == HIDDEN ? 0.0f : running.best == best ? 1.0f : std::exp(running.best - best);
    vf total = vf{};
    for (int v = 0; v < TILE_VECTORS; ++v) {
        vf weight = exponential(values[v] - best);
        if (visible < TILE) weight = values[v] == splat(HIDDEN) ? vf{} : weight;
        store(scores + v * LANES, weight);
        total += weight;
    }
    running.weight = running.weight * kept + sum(total);
    running.best = best;
    return kept;
}

// outs[head] = outs[head] * kept[head] + weights[head] . values, VECTORS vectors of the values' dimensions.
template <int HEADS, int VECTORS, class Value>
inline void add_values(const Value* const* values, int first_dim, int count, const float* weights, const float* kept,
                       float* const* outs) {
    vf sums[HEADS][VECTORS];
#pragma GCC unroll 8
    for (int head = 0; head < HEADS; ++head) {
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) sums[head][v] = load(outs[head] + first_dim + v * LANES) * kept[head];
    }
    for (int i = 0; i < count; ++i) {
        vf weight[HEADS];
#pragma GCC unroll 8
        for (int head = 0; head < HEADS; ++head) weight[head] = splat(weights[head * TILE + i]);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) {
            const vf held = held_in_register(load(values[i] + first_dim + v * LANES));
#pragma GCC unroll 8
            for (int head = 0; head < HEADS; ++head) sums[head][v] = multiply_add(weight[head], held, sums[head][v]);
        }
    }
#pragma GCC unroll 8
    for (int head = 0; head < HEADS; ++head) {
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) store(outs[head] + first_dim + v * LANES, sums[head][v]);
    }
}

// Memory of one thread for one tile.
struct TileMemory {
    Lines<std::uint32_t> keys;
    Lines<float> values;
    Lines<float> scores;

    void fit(const Shape& shape) {
        keys.resize(std::max<std::size_t>(keys.size(), static_cast<std::size_t>(shape.head_dim) * TILE));
        values.resize(std::max<std::size_t>(values.size(), static_cast<std::size_t>(shape.padded_dim()) * TILE));
        scores.resize(HEADS_AT_ONCE * TILE);
    }
};

// Query heads of one KV head: queries as `put_query` leaves them, `stride` floats apart.
struct Queries {
    const float* values;
    int stride;
    int count;
    Running* running;
    // How many tokens, from the sequence's first, each sees; null where all see every key that they are given.
    const int* sees;
};

template <class Value>
class TileAttention {
   public:
    TileAttention(const Shape& shape, TileMemory& memory) : shape_(shape), memory_(memory) { memory.fit(shape); }

    // Adds the keys of KV head `kv_head` for tokens [first, first + tile.count).
    void add(const TileKeys<Value>& tile, int kv_head, int first, const Queries& queries, Ahead& ahead) {
        const int offset = kv_head * shape_.head_dim;
        words_ = static_cast<int>(shape_.head_dim * sizeof(Value) / 4);
        turn_keys(tile, offset, words_, memory_.keys.data());
        const int value_offset = (shape_.kv_heads + kv_head) * shape_.head_dim;
        const bool whole = shape_.head_dim % LANES == 0;
        const Value* lines[TILE];
        const float* widened[TILE];
        for (int i = 0; i < tile.count; ++i) {
            lines[i] = tile.keys[i] + value_offset;
            if (!whole) widened[i] = widen_values(lines[i], i);
        }
        whole ? attend_all(lines, tile.count, first, queries, ahead) : attend_all(widened, tile.count, first, queries, ahead);
    }

    // Calls of `Ahead::ask` while keys are added for `queries` query heads of one KV head.
    static int asks(int queries) {
        return 2 * ((queries + HEADS_AT_ONCE - 1) / HEADS_AT_ONCE);
    }

   private:
    // A line of values with zeros behind it, up to whole vectors.
    const float* widen_values(const Value* from, int line) {
        float* to = memory_.values.data() + static_cast<std::size_t>(line) * shape_.padded_dim();
        for (int d = 0; d < shape_.head_dim; ++d) to[d] = widen(from[d]);
        for (int d = shape_.head_dim; d < shape_.padded_dim(); ++d) to[d] = 0.0f;
        return to;
    }

    template <class Line>
    void attend_all(const Line* const* values, int count, int first, const Queries& queries, Ahead& ahead) {
        int head = 0;
        for (; head + HEADS_AT_ONCE <= queries.count; head += HEADS_AT_ONCE) {
            attend<HEADS_AT_ONCE>(values, count, first, queries, head, ahead);
        }
        switch (queries.count - head) {
            case 0: return;
            case 1: return attend<1>(values, count, first, queries, head, ahead);
            case 2: return attend<2>(values, count, first, queries, head, ahead);
            case 3: return attend<3>(values, count, first, queries, head, ahead);
            case 4: return attend<4>(values, count, first, queries, head, ahead);
            default: return attend<5>(values, count, first, queries, head, ahead);
        }
    }

    template <int HEADS, class Line>
    void attend(const Line* const* values, int count, int first, const Queries& queries, int head, Ahead& ahead) {
        ahead.ask();
        float* scores = memory_.scores.data();
        score<HEADS>(queries.values + static_cast<std::size_t>(head) * queries.stride, queries.stride,
                     memory_.keys.data(), words_, scores, static_cast<const Value*>(nullptr));
        float kept[HEADS];
        float* outs[HEADS];
        for (int h = 0; h < HEADS; ++h) {
            const int visible = queries.sees ? std::min(count, queries.sees[head + h] - first) : count;
            kept[h] = weigh(scores + h * TILE, visible, queries.running[head + h]);
            outs[h] = queries.running[head + h].out;
        }
        ahead.ask();
        int dim = 0;
        for (; dim + 4 * LANES <= shape_.padded_dim(); dim += 4 * LANES) {
            add_values<HEADS, 4>(values, dim, count, scores, kept, outs);
        }
        for (; dim < shape_.padded_dim(); dim += LANES) add_values<HEADS, 1>(values, dim, count, scores, kept, outs);
    }

    const Shape& shape_;
    TileMemory& memory_;
    int words_ = 0;
};

}  // namespace dynofarm
