// Attention of one pass that goes layer by layer: single tokens and longer chunks of prompts, one call a layer.
#pragma once

#include "model.hpp"
#include "unit_attention.hpp"

extern "C" {

// Spans in row order: the first `singles` have one token each, the others any number.
struct dynofarm_pass {
    std::int32_t spans, singles;
    const std::int32_t* starts;  // tokens before the span
    const std::int32_t* counts;
    std::int32_t threads;
};

// Rows of queries [rows, query_stride] and of keys and values [rows, key_stride] as the store holds them;
// out [rows, heads * head_dim]. All of the store's kind.
struct dynofarm_layer_rows {
    const void* queries;
    const void* keys;
    void* out;
    std::int32_t query_stride, key_stride;
    std::int32_t layer;
};

}  // extern "C"

namespace dynofarm {

template <class Value>
class PassJob : public Job {
   public:
    explicit PassJob(const Shape& shape) : shape_(shape), units_(shape) {}

    void prepare(const dynofarm_pass& pass, const dynofarm_store& store) {
        store_ = store;
        threads_ = pass.threads;
        spans_.clear();
        contexts_.clear();
        tables_.clear();
        int row = 0;
        for (int i = 0; i < pass.spans; ++i) {
            const std::int32_t* table = store.tables + static_cast<std::size_t>(i) * store.table_stride;
            spans_.push_back({row, pass.starts[i], pass.counts[i], table});
            row += pass.counts[i];
        }
        singles_ = pass.singles;
        for (int i = 0; i < singles_; ++i) {
            contexts_.push_back(spans_[i].start + 1);
            tables_.push_back(spans_[i].table);
        }
        units_.plan({singles_, contexts_.data(), tables_.data(), store.block_tokens}, pass.threads);
        plan_tiles();
    }

    void take(const dynofarm_layer_rows& rows) { given_ = rows; }

    int threads() const { return threads_; }

    int phases() const override { return 2; }

    int chunks(int phase) const override {
        if (phase == WRITE) return threads_ <= 1 ? 1 : std::min(4 * threads_, static_cast<int>(spans_.size()));
        return std::max(1, single_chunks() + std::min(static_cast<int>(tiles_.size()), Pool::MOST_CHUNKS / 2));
    }

    void run(int phase, int chunk) override {
        const int all = chunks(phase);
        if (phase == WRITE) {
            for (int span = chunk; span < static_cast<int>(spans_.size()); span += all) write_keys(spans_[span]);
            return;
        }
        if (chunk < single_chunks()) {
            units_.run(chunk, keys(), queries(0), given_.query_stride);
            return;
        }
        const int step = all - single_chunks();
        for (int i = chunk - single_chunks(); i < static_cast<int>(tiles_.size()); i += step) attend_tile(tiles_[i]);
    }

    void finish(int phase) override {
        if (phase == WRITE) return;
        for (int row = 0; row < singles_; ++row) units_.merge(row, out(row));
    }

   private:
    enum Phase { WRITE, ATTEND };

    struct Span {
        int row, start, count;
        const std::int32_t* table;
    };

    // Queries [first, first + count) of a span for one KV head.
    struct QueryTile {
        int span, kv_head, first, count;
    };

    struct Memory {
        TileMemory tile;
        Lines<float> queries, outs;
        std::vector<Running> running;
        std::vector<int> sees;
    };

    static Memory& memory() {
        thread_local Memory held;
        return held;
    }

    // Query heads that share a turned tile of keys: many enough to pay for turning it, few enough to stay cached.
    static constexpr int TILE_HEADS = 48;

    int single_chunks() const { return singles_ ? std::min(units_.chunks(), Pool::MOST_CHUNKS / 2) : 0; }

    Value* keys() const { return static_cast<Value*>(store_.layers[given_.layer]); }

    const Value* queries(int row) const {
        return static_cast<const Value*>(given_.queries) + static_cast<std::size_t>(row) * given_.query_stride;
    }

    Value* out(int row) const {
        return static_cast<Value*>(given_.out) + static_cast<std::size_t>(row) * shape_.heads * shape_.head_dim;
    }

    void plan_tiles() {
        tiles_.clear();
        const int each = std::max(1, TILE_HEADS / shape_.group());
        for (int span = singles_; span < static_cast<int>(spans_.size()); ++span) {
            for (int first = 0; first < spans_[span].count; first += each) {
                const int count = std::min(each, spans_[span].count - first);
                for (int head = 0; head < shape_.kv_heads; ++head) tiles_.push_back({span, head, first, count});
            }
        }
        // The longest first, so that no thread begins one when the others are done.
        std::sort(tiles_.begin(), tiles_.end(), [&](const QueryTile& a, const QueryTile& b) { return last_key(a) > last_key(b); });
    }

    int last_key(const QueryTile& tile) const { return spans_[tile.span].start + tile.first + tile.count; }

    void write_keys(const Span& span) {
        const int values = shape_.slot_values(), bt = store_.block_tokens;
        for (int i = 0; i < span.count; ++i) {
            const int position = span.start + i;
            const std::size_t slot = static_cast<std::size_t>(span.table[position / bt]) * bt + position % bt;
            std::memcpy(keys() + slot * values,
                        static_cast<const Value*>(given_.keys) + static_cast<std::size_t>(span.row + i) * given_.key_stride,
                        values * sizeof(Value));
        }
    }

    void attend_tile(const QueryTile& tile) {
        const Span& span = spans_[tile.span];
        const int group = shape_.group(), head_dim = shape_.head_dim, padded = shape_.padded_dim();
        const int heads = tile.count * group;
        Memory& held = memory();
        held.queries.resize(std::max<std::size_t>(held.queries.size(), static_cast<std::size_t>(heads) * head_dim));
        held.outs.assign(static_cast<std::size_t>(heads) * padded, 0.0f);
        held.running.resize(heads);
        held.sees.resize(heads);
        const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
        for (int index = 0; index < heads; ++index) {
            const int i = index / group, head = tile.kv_head * group + index % group;
            put_query<Value>(queries(span.row + tile.first + i) + head * head_dim, scale, head_dim,
                             held.queries.data() + static_cast<std::size_t>(index) * head_dim);
            held.running[index] = {held.outs.data() + static_cast<std::size_t>(index) * padded, HIDDEN, 0.0f};
            held.sees[index] = span.start + tile.first + i + 1;
        }
        walk_keys(tile, heads, held);
        for (int index = 0; index < heads; ++index) {
            const int i = index / group, head = tile.kv_head * group + index % group;
            Value* to = out(span.row + tile.first + i) + head * head_dim;
            const Running& running = held.running[index];
            for (int d = 0; d < head_dim; ++d) narrow(running.out[d] / running.weight, to[d]);
        }
    }

    void walk_keys(const QueryTile& tile, int heads, Memory& held) {
        TileAttention<Value> attention(shape_, held.tile);
        TileKeys<Value> tiles[2];
        const Queries queries{held.queries.data(), shape_.head_dim, heads, held.running.data(), held.sees.data()};
        const int last = last_key(tile);
        const auto find = [&](TileKeys<Value>& found, int first) {
            find_tile(found, keys(), shape_, spans_[tile.span].table, store_.block_tokens, first, last);
        };
        find(tiles[0], 0);
        for (int first = 0, here = 0; first < last; first += TILE, here ^= 1) {
            Ahead ahead;
            if (first + TILE < last) {
                find(tiles[here ^ 1], first + TILE);
                // At once: beside so many query heads it does not show, and portions cost more than they gain.
                ahead = Ahead(tiles[here ^ 1], shape_, tile.kv_head, 1, 1);
            }
            attention.add(tiles[here], tile.kv_head, first, queries, ahead);
        }
    }

    const Shape shape_;
    UnitAttention<Value> units_;
    dynofarm_store store_{};
    dynofarm_layer_rows given_{};
    std::vector<Span> spans_;
    std::vector<QueryTile> tiles_;
    std::vector<std::int32_t> contexts_;
    std::vector<const std::int32_t*> tables_;
    int singles_ = 0;
    int threads_ = 1;
};

}  // namespace dynofarm
