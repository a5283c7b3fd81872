// One whole decode step: every layer, in phases that all threads work on; what is small is done between them.
#pragma once

#include <type_traits>

#include "model.hpp"
#include "pool.hpp"
#include "unit_attention.hpp"

extern "C" {

// Rows are single tokens, also where several belong to one span; row i sees tokens [0, contexts[i]).
struct dynofarm_step {
    std::int32_t rows;
    const std::int64_t* tokens;
    const std::int32_t* contexts;
    const std::int32_t* spans;   // which block table each row reads
    const float* embedded;       // [rows, hidden], null where the weights have an embedding
    std::int32_t wanted;
    const std::int32_t* wanted_rows;
    float* logits;               // [wanted, vocab]
    std::int32_t threads;
};

}  // extern "C"

namespace dynofarm {

template <class Weight, class Value>
class StepJob : public Job {
    using Input = typename Activation<Weight>::type;

   public:
    explicit StepJob(const dynofarm_weights& weights)
        : weights_(weights), config_(weights.config), shape_(shape_of(weights.config)), units_(shape_) {}

    void prepare(const dynofarm_step& step, const dynofarm_store& store) {
        step_ = &step;
        store_ = &store;
        fit(step.rows);
        for (int row = 0; row < step.rows; ++row) {
            tables_[row] = store.tables + static_cast<std::size_t>(step.spans[row]) * store.table_stride;
            place_row(row);
        }
        units_.plan({step.rows, step.contexts, tables_.data(), store.block_tokens}, step.threads);
        normalise_rows(weights_.layers[0].attn_norm);
    }

    int phases() const override { return config_.layers * PHASES + (step_->wanted > 0 ? 1 : 0); }

    int chunks(int phase) const override {
        switch (part_of(phase)) {
            case QKV: return division(qkv_width(config_), config_.hidden).pieces;
            case ATTEND: return units_.chunks();
            case OUT: return division(config_.hidden, config_.heads * config_.head_dim).pieces;
            case GATE_UP: return division(config_.ffn, 2 * config_.hidden).pieces;
            case DOWN: return division(config_.hidden, config_.ffn).pieces;
            default: return division(config_.vocab, config_.hidden).pieces;
        }
    }

    void run(int phase, int chunk) override {
        const int layer = phase / PHASES;
        switch (part_of(phase)) {
            case QKV: return run_qkv(layer, chunk);
            case ATTEND: return units_.run(chunk, keys_of(layer), qkv_.data(), qkv_width(config_));
            case OUT: return add_product(weights_.layers[layer].o, config_.heads * config_.head_dim, chunk);
            case GATE_UP: return run_gate_up(layer, chunk);
            case DOWN: return add_product(weights_.layers[layer].down, config_.ffn, chunk);
            default: return run_head(chunk);
        }
    }

    void finish(int phase) override {
        const int layer = phase / PHASES;
        switch (part_of(phase)) {
            case QKV: return write_keys(layer);
            case ATTEND: return take_attended();
            case OUT: return normalise_rows(weights_.layers[layer].ffn_norm);
            case GATE_UP: return take_input(gated_.data(), step_->rows * config_.ffn);
            case DOWN: return layer + 1 < config_.layers ? normalise_rows(weights_.layers[layer + 1].attn_norm) : normalise_wanted();
            default: return;
        }
    }

   private:
    enum Part { QKV, ATTEND, OUT, GATE_UP, DOWN, HEAD };
    static constexpr int PHASES = 5;

    Part part_of(int phase) const {
        return phase == config_.layers * PHASES ? HEAD : static_cast<Part>(phase % PHASES);
    }

    Division division(int rows, int inputs) const {
        const std::int64_t row_bytes = static_cast<std::int64_t>(inputs) * static_cast<int>(sizeof(Weight));
        return Division::of(rows, row_bytes, step_->threads, Pool::MOST_CHUNKS);
    }

    void fit(int rows) {
        const auto grow = [](auto& held, std::size_t size) {
            if (held.size() < size) held.resize(size);
        };
        const std::size_t count = rows;
        const std::size_t widest = std::max({config_.hidden, config_.ffn, config_.heads * config_.head_dim});
        grow(x_, count * config_.hidden);
        grow(normal_, count * config_.hidden);
        grow(input_, count * widest);
        grow(qkv_, count * qkv_width(config_));
        grow(attended_, count * config_.heads * config_.head_dim);
        grow(gated_, count * config_.ffn);
        grow(cosines_, count * config_.head_dim / 2);
        grow(sines_, count * config_.head_dim / 2);
        grow(tables_, count);
        grow(slots_, count);
    }

    void place_row(int row) {
        const int position = step_->contexts[row] - 1;
        const int half = config_.head_dim / 2;
        for (int i = 0; i < half; ++i) {
            const float angle = static_cast<float>(position) * config_.inverse_wavelengths[i];
            cosines_[static_cast<std::size_t>(row) * half + i] = std::cos(angle);
            sines_[static_cast<std::size_t>(row) * half + i] = std::sin(angle);
        }
        const int bt = store_->block_tokens;
        slots_[row] = static_cast<std::size_t>(tables_[row][position / bt]) * bt + position % bt;
        float* x = x_.data() + static_cast<std::size_t>(row) * config_.hidden;
        if (step_->embedded) {
            std::copy_n(step_->embedded + static_cast<std::size_t>(row) * config_.hidden, config_.hidden, x);
        } else {
            const Weight* line = static_cast<const Weight*>(weights_.embedding) + static_cast<std::size_t>(step_->tokens[row]) * config_.hidden;
            for (int i = 0; i < config_.hidden; ++i) x[i] = widen(line[i]);
        }
    }

    // x as the next product reads it.
    void take_input(const float* from, int count) {
        if constexpr (std::is_same_v<Input, float>) {
            current_ = from;
        } else {
            for (int i = 0; i < count; ++i) narrow(from[i], input_[i]);
            current_ = input_.data();
        }
    }

    void normalise_rows(const float* weight) {
        for (int row = 0; row < step_->rows; ++row) {
            const std::size_t place = static_cast<std::size_t>(row) * config_.hidden;
            normalise(x_.data() + place, weight, config_.hidden, config_.rms_eps, normal_.data() + place);
        }
        take_input(normal_.data(), step_->rows * config_.hidden);
    }

    void normalise_wanted() {
        for (int i = 0; i < step_->wanted; ++i) {
            normalise(x_.data() + static_cast<std::size_t>(step_->wanted_rows[i]) * config_.hidden, weights_.norm,
                      config_.hidden, config_.rms_eps, normal_.data() + static_cast<std::size_t>(i) * config_.hidden);
        }
        take_input(normal_.data(), step_->wanted * config_.hidden);
    }

    void run_qkv(int layer, int chunk) {
        const Division division = this->division(qkv_width(config_), config_.hidden);
        const Sink sink{qkv_.data(), static_cast<std::size_t>(qkv_width(config_)), 0, false};
        multiply<Weight>(weights_.layers[layer].qkv, current_, step_->rows, config_.hidden, division.begin(chunk),
                         division.begin(chunk + 1), sink);
    }

    void add_product(const Linear& linear, int inputs, int chunk) {
        const Division division = this->division(config_.hidden, inputs);
        const Sink sink{x_.data(), static_cast<std::size_t>(config_.hidden), 0, true};
        multiply<Weight>(linear, current_, step_->rows, inputs, division.begin(chunk), division.begin(chunk + 1), sink);
    }

    void run_gate_up(int layer, int chunk) {
        const Division division = this->division(config_.ffn, 2 * config_.hidden);
        multiply_gated<Weight>(weights_.layers[layer].gate_up, current_, step_->rows, config_.hidden, config_.ffn,
                               division.begin(chunk), division.begin(chunk + 1), gated_.data());
    }

    void run_head(int chunk) {
        const Division division = this->division(config_.vocab, config_.hidden);
        const Sink sink{step_->logits, static_cast<std::size_t>(config_.vocab), 0, false};
        multiply<Weight>(weights_.head, current_, step_->wanted, config_.hidden, division.begin(chunk),
                         division.begin(chunk + 1), sink);
    }

    // Normalises heads where the model does, turns them to their positions, stores keys and values.
    void write_keys(int layer) {
        const int head_dim = config_.head_dim;
        const float* qk_norm = weights_.layers[layer].qk_norm;
        for (int row = 0; row < step_->rows; ++row) {
            float* line = qkv_.data() + static_cast<std::size_t>(row) * qkv_width(config_);
            const std::size_t angles = static_cast<std::size_t>(row) * head_dim / 2;
            for (int head = 0; head < config_.heads + config_.kv_heads; ++head) {
                float* values = line + head * head_dim;
                if (qk_norm) normalise(values, qk_norm + head * head_dim, head_dim, config_.rms_eps, values);
                rotate(values, cosines_.data() + angles, sines_.data() + angles, head_dim / 2);
            }
            Value* slot = keys_of(layer) + slots_[row] * shape_.slot_values();
            for (int i = 0; i < shape_.slot_values(); ++i) narrow(line[config_.heads * head_dim + i], slot[i]);
        }
    }

    void take_attended() {
        const int width = config_.heads * config_.head_dim;
        for (int row = 0; row < step_->rows; ++row) units_.merge(row, attended_.data() + static_cast<std::size_t>(row) * width);
        take_input(attended_.data(), step_->rows * width);
    }

    Value* keys_of(int layer) const { return static_cast<Value*>(store_->layers[layer]); }

    const dynofarm_weights& weights_;
    const dynofarm_config& config_;
    const Shape shape_;
    const dynofarm_step* step_ = nullptr;
    const dynofarm_store* store_ = nullptr;
    UnitAttention<Value> units_;
    Lines<float> x_, normal_, qkv_, attended_, gated_, cosines_, sines_;
    Lines<Input> input_;
    std::vector<const std::int32_t*> tables_;
    std::vector<std::size_t> slots_;
    const Input* current_ = nullptr;
};

}  // namespace dynofarm
