// Keys and values of a KV store, a tile of tokens at a time.
#pragma once

#include <algorithm>
#include <cstddef>

#include "simd.hpp"

namespace dynofarm {

constexpr int TILE_VECTORS = 4;
constexpr int TILE = TILE_VECTORS * LANES;

// One layer of a KV store: [slots, 2, kv_heads, head_dim]; slots of one token are block * block_tokens + place.
struct Shape {
    int heads;
    int kv_heads;
    int head_dim;

    int group() const { return heads / kv_heads; }
    int slot_values() const { return 2 * kv_heads * head_dim; }
    // Rounded up to whole vectors.
    int padded_dim() const { return (head_dim + LANES - 1) / LANES * LANES; }
};

// Where the keys of one KV head lie for the tokens of a tile; values are `kv_heads * head_dim` further.
template <class Value>
struct TileKeys {
    const Value* keys[TILE];
    int count;
};

template <class Value>
inline void find_tile(TileKeys<Value>& tile, const Value* layer, const Shape& shape, const std::int32_t* table,
                      int block_tokens, int first, int last) {
    tile.count = std::min(TILE, last - first);
    int block = first / block_tokens, place = first % block_tokens;
    for (int i = 0; i < tile.count; ++i) {
        const std::size_t slot = static_cast<std::size_t>(table[block]) * block_tokens + place;
        tile.keys[i] = layer + slot * shape.slot_values();
        if (++place == block_tokens) place = 0, ++block;
    }
    // The rest of the tile repeats a key that may be read; its scores are hidden.
    for (int i = tile.count; i < TILE; ++i) tile.keys[i] = tile.keys[tile.count - 1];
}

// What is read next, asked of memory in portions between arithmetic. Asked for at once it would fill the few places
// that a processor has for reads under way, and the processor would wait instead of computing; and blocks lie
// anywhere, so that it cannot guess them (measured: attention of a decode step of five, 0.87 of the time that
// asking for a whole tile takes).
class Ahead {
   public:
    // Nothing to ask for.
    Ahead() = default;

    // Keys and values of `kv_heads` KV heads, beginning with `first_head`, in about `asks` calls of `ask`.
    template <class Value>
    Ahead(const TileKeys<Value>& tile, const Shape& shape, int first_head, int kv_heads, int asks) {
        const std::ptrdiff_t head_bytes = shape.head_dim * sizeof(Value);
        starts_ = reinterpret_cast<const char* const*>(tile.keys);
        tokens_ = tile.count;
        keys_at_ = first_head * head_bytes;
        values_at_ = keys_at_ + shape.kv_heads * head_bytes;
        bytes_ = kv_heads * head_bytes;
        const std::ptrdiff_t lines = 2 * tokens_ * ((bytes_ + LINE_BYTES - 1) / LINE_BYTES);
        each_ = static_cast<int>((lines + asks - 1) / asks);
        go_to(keys_at_);
    }

    void ask() {
        for (int i = 0; i < each_; ++i) {
            if (place_ >= end_ && !go_on()) return;
            __builtin_prefetch(place_);
            place_ += LINE_BYTES;
        }
    }

   private:
    static constexpr std::ptrdiff_t LINE_BYTES = 64;

    void go_to(std::ptrdiff_t offset) {
        place_ = starts_[token_] + offset;
        end_ = place_ + bytes_;
    }

    // To the values of the token, or to the keys of the next one; false behind the last.
    bool go_on() {
        if (token_ >= tokens_) return false;
        in_values_ = !in_values_;
        if (!in_values_ && ++token_ >= tokens_) return false;
        go_to(in_values_ ? values_at_ : keys_at_);
        return true;
    }

    const char* place_ = nullptr;
    const char* end_ = nullptr;
    const char* const* starts_ = nullptr;
    std::ptrdiff_t keys_at_ = 0, values_at_ = 0, bytes_ = 0;
    int tokens_ = 0, token_ = 0, each_ = 0;
    bool in_values_ = false;
};

}  // namespace dynofarm
