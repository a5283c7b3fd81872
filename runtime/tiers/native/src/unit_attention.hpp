// Attention of single tokens: shared keys are read once for all rows that share them, partial results merged.
#pragma once

#include "attention.hpp"
#include "cascade.hpp"
#include "pool.hpp"

namespace dynofarm {

template <class Value>
class UnitAttention {
   public:
    explicit UnitAttention(const Shape& shape) : shape_(shape) {}

    void plan(const StepRows& rows, int threads) {
        rows_ = rows;
        cascade_.plan(rows);
        const int units = static_cast<int>(cascade_.units().size());
        // Units too few to keep all threads busy are divided by KV head as well.
        heads_each_ = threads > 1 && units < 4 * threads ? 1 : shape_.kv_heads;
        const std::size_t results = static_cast<std::size_t>(cascade_.partials()) * shape_.heads;
        if (running_.size() < results) running_.resize(results);
        if (outs_.size() < results * shape_.padded_dim()) outs_.resize(results * shape_.padded_dim());
    }

    int chunks() const { return std::min(pieces(), Pool::MOST_CHUNKS); }

    // queries: [rows, stride], the heads of a row at its beginning.
    template <class Query>
    void run(int chunk, const Value* layer, const Query* queries, int stride) {
        for (int piece = chunk; piece < pieces(); piece += chunks()) {
            const int parts = shape_.kv_heads / heads_each_;
            attend(cascade_.units()[piece / parts], piece % parts * heads_each_, layer, queries, stride);
        }
    }

    // Attention of a row over all its keys, [heads, head_dim], from that over each unit of them.
    template <class Out>
    void merge(int row, Out* out) {
        const int head_dim = shape_.head_dim;
        merged_.resize(head_dim);
        for (int head = 0; head < shape_.heads; ++head) {
            float best = HIDDEN, weight = 0.0f;
            for (int part : cascade_.of_row(row)) best = std::max(best, running_[place(part, head)].best);
            std::fill(merged_.begin(), merged_.end(), 0.0f);
            for (int part : cascade_.of_row(row)) {
                const Running& running = running_[place(part, head)];
                const float share = std::exp(running.best - best);
                weight += running.weight * share;
                for (int d = 0; d < head_dim; ++d) merged_[d] += share * running.out[d];
            }
            for (int d = 0; d < head_dim; ++d) narrow(merged_[d] / weight, out[head * head_dim + d]);
        }
    }

   private:
    struct Memory {
        TileMemory tile;
        Lines<float> queries;
        std::vector<Running> running;
    };

    static Memory& memory() {
        thread_local Memory held;
        return held;
    }

    int pieces() const { return static_cast<int>(cascade_.units().size()) * (shape_.kv_heads / heads_each_); }

    std::size_t place(int part, int head) const { return static_cast<std::size_t>(part) * shape_.heads + head; }

    template <class Query>
    void attend(const Unit& unit, int first_head, const Value* layer, const Query* queries, int stride) {
        const int group = shape_.group(), head_dim = shape_.head_dim, each = unit.count * group;
        Memory& held = memory();
        const std::size_t count = static_cast<std::size_t>(each) * heads_each_;
        if (held.queries.size() < count * head_dim) held.queries.resize(count * head_dim);
        if (held.running.size() < count) held.running.resize(count);
        const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
        // Query heads in the order in which they are attended: KV head, row, member of its group.
        const auto for_each_head = [&](auto visit) {
            std::size_t index = 0;
            for (int kv_head = first_head; kv_head < first_head + heads_each_; ++kv_head) {
                for (int i = 0; i < unit.count; ++i) {
                    for (int member = 0; member < group; ++member, ++index) visit(index, i, kv_head * group + member);
                }
            }
        };
        for_each_head([&](std::size_t index, int i, int head) {
            const Query* query = queries + static_cast<std::size_t>(unit.rows[i]) * stride + head * head_dim;
            put_query<Value>(query, scale, head_dim, held.queries.data() + index * head_dim);
            float* out = outs_.data() + place(unit.partial + i, head) * shape_.padded_dim();
            std::fill_n(out, shape_.padded_dim(), 0.0f);
            held.running[index] = {out, HIDDEN, 0.0f};
        });
        walk(unit, first_head, layer, held);
        for_each_head([&](std::size_t index, int i, int head) { running_[place(unit.partial + i, head)] = held.running[index]; });
    }

    void walk(const Unit& unit, int first_head, const Value* layer, Memory& held) {
        const int each = unit.count * shape_.group();
        TileAttention<Value> attention(shape_, held.tile);
        TileKeys<Value> tiles[2];
        const std::int32_t* table = rows_.tables[unit.rows[0]];
        const auto find = [&](TileKeys<Value>& found, int first) {
            find_tile(found, layer, shape_, table, rows_.block_tokens, first, unit.last);
        };
        const int asks = heads_each_ * TileAttention<Value>::asks(each);
        find(tiles[0], unit.first);
        for (int first = unit.first, here = 0; first < unit.last; first += TILE, here ^= 1) {
            Ahead ahead;
            if (first + TILE < unit.last) {
                find(tiles[here ^ 1], first + TILE);
                ahead = Ahead(tiles[here ^ 1], shape_, first_head, heads_each_, asks);
            }
            for (int head = 0; head < heads_each_; ++head) {
                const std::size_t index = static_cast<std::size_t>(head) * each;
                const Queries queries{held.queries.data() + index * shape_.head_dim, shape_.head_dim, each, held.running.data() + index, nullptr};
                attention.add(tiles[here], first_head + head, first, queries, ahead);
            }
        }
    }

    const Shape shape_;
    StepRows rows_{};
    Cascade cascade_;
    int heads_each_ = 1;
    std::vector<Running> running_;
    Lines<float> outs_;
    Lines<float> merged_;
};

}  // namespace dynofarm
