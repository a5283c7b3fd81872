// A decoder of the Llama family as its caller holds it: this code owns none of the weights.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "attention.hpp"
#include "rows.hpp"

extern "C" {

struct dynofarm_config {
    std::int32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    float rms_eps;
    const float* inverse_wavelengths;  // [head_dim / 2]
};

struct dynofarm_layer {
    const float *attn_norm, *ffn_norm;
    const float* qk_norm;  // [heads + kv_heads, head_dim], or null
    dynofarm::Linear qkv, o, gate_up, down;
};

struct dynofarm_weights {
    dynofarm_config config;
    const dynofarm_layer* layers;
    const float* norm;
    dynofarm::Linear head;
    const void* embedding;  // the head's own rows when it is tied and not int8, else null
};

// A KV store: `layers` pointers to [blocks * block_tokens, 2, kv_heads, head_dim].
struct dynofarm_store {
    void* const* layers;
    std::int32_t block_tokens;
    std::int32_t table_stride;
    const std::int32_t* tables;  // [spans, table_stride]
};

}  // extern "C"

namespace dynofarm {

inline Shape shape_of(const dynofarm_config& config) { return {config.heads, config.kv_heads, config.head_dim}; }

inline int qkv_width(const dynofarm_config& config) { return (config.heads + 2 * config.kv_heads) * config.head_dim; }

// y = x * weight / rms(x)
inline void normalise(const float* x, const float* weight, int count, float eps, float* y) {
    vf squares = vf{};
    int i = 0;
    for (; i + LANES <= count; i += LANES) squares += load(x + i) * load(x + i);
    float total = sum(squares);
    for (; i < count; ++i) total += x[i] * x[i];
    const float factor = 1.0f / std::sqrt(total / static_cast<float>(count) + eps);
    for (i = 0; i + LANES <= count; i += LANES) store(y + i, load(x + i) * factor * load(weight + i));
    for (; i < count; ++i) y[i] = x[i] * factor * weight[i];
}

// Rotary positions over halves, in place: (a, b) to (a cos - b sin, b cos + a sin).
inline void rotate(float* head, const float* cosines, const float* sines, int half) {
    int i = 0;
    for (; i + LANES <= half; i += LANES) {
        const vf a = load(head + i), b = load(head + half + i), c = load(cosines + i), s = load(sines + i);
        store(head + i, a * c - b * s);
        store(head + half + i, b * c + a * s);
    }
    for (; i < half; ++i) {
        const float a = head[i], b = head[half + i];
        head[i] = a * cosines[i] - b * sines[i];
        head[half + i] = b * cosines[i] + a * sines[i];
    }
}

}  // namespace dynofarm
