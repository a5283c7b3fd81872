// Products of many activations with a weight: panels of the weight are turned once, then stay in the nearest cache.
#pragma once

#include <algorithm>
#include <type_traits>

#include "attention.hpp"
#include "pool.hpp"
#include "rows.hpp"

extern "C" {

// out [rows, outputs] = x [rows, inputs] times the weight's rows, with its scales and its bias.
struct dynofarm_product {
    const float* x;
    float* out;
    dynofarm::Linear linear;
    std::int32_t rows, inputs, outputs;
    std::int32_t threads;
};

}  // extern "C"

namespace dynofarm {

// Outputs of a panel and rows of a strip: their sums fill the registers but three (four where there are 32).
constexpr int PANEL = 2 * LANES;
constexpr int STRIP = REGISTERS == 32 ? 14 : 6;

// [depth][PANEL] floats from PANEL rows of the weight; rows that are not there are zeros.
template <class Weight>
inline void turn_panel(const Weight* weight, int inputs, int rows, int depth, float* to) {
    int turned = 0;
#if DYNOFARM_LANES >= 8
    if constexpr (std::is_same_v<Weight, float>) {
        for (; rows == PANEL && turned + 8 <= depth; turned += 8) {
            for (int row = 0; row < PANEL; row += 8) {
                const std::uint32_t* lines[8];
                for (int i = 0; i < 8; ++i) {
                    lines[i] = reinterpret_cast<const std::uint32_t*>(weight + static_cast<std::size_t>(row + i) * inputs + turned);
                }
                turn_8_by_8(lines, reinterpret_cast<std::uint32_t*>(to + turned * PANEL + row), PANEL);
            }
        }
    }
#endif
    for (int row = 0; row < PANEL; ++row) {
        const Weight* line = weight + static_cast<std::size_t>(row) * inputs;
        for (int k = turned; k < depth; ++k) to[k * PANEL + row] = row < rows ? widen(line[k]) : 0.0f;
    }
}

// Where a strip of sums goes: begun with zeros or with what stands there.
struct Strip {
    float* out;
    std::size_t stride;
    bool begins;
};

template <int ROWS>
inline void multiply_strip(const float* x, int inputs, const float* panel, int depth, const Strip& strip) {
    vf sums[ROWS][2];
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row) {
        sums[row][0] = strip.begins ? vf{} : load(strip.out + row * strip.stride);
        sums[row][1] = strip.begins ? vf{} : load(strip.out + row * strip.stride + LANES);
    }
    for (int k = 0; k < depth; ++k) {
        const vf low = held_in_register(load(panel + k * PANEL));
        const vf high = held_in_register(load(panel + k * PANEL + LANES));
#pragma GCC unroll 16
        for (int row = 0; row < ROWS; ++row) {
            const vf value = held_in_register(splat(x[static_cast<std::size_t>(row) * inputs + k]));
            sums[row][0] = multiply_add(value, low, sums[row][0]);
            sums[row][1] = multiply_add(value, high, sums[row][1]);
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row) {
        store(strip.out + row * strip.stride, sums[row][0]);
        store(strip.out + row * strip.stride + LANES, sums[row][1]);
    }
}

template <int ROWS = STRIP>
inline void multiply_rows(int rows, const float* x, int inputs, const float* panel, int depth, const Strip& strip) {
    if (rows == ROWS) return multiply_strip<ROWS>(x, inputs, panel, depth, strip);
    if constexpr (ROWS > 1) multiply_rows<ROWS - 1>(rows, x, inputs, panel, depth, strip);
}

// Each number is one sum in the order of the inputs: no division of the work changes a bit.
// GATED: the weight has 2 * outputs rows, gate's and then up's, and what is put out is silu(gate) * up.
template <class Weight, bool GATED>
class ProductJob : public Job {
   public:
    explicit ProductJob(const dynofarm_product& product) : product_(product) {
        const int blocks = (product.rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
        const int strips = (product.rows + STRIP - 1) / STRIP;
        block_rows_ = (strips + blocks - 1) / blocks * STRIP;
        const int parts = (product.inputs + MOST_DEPTH - 1) / MOST_DEPTH;
        depth_ = (product.inputs + 8 * parts - 1) / (8 * parts) * 8;
        panels_each_ = std::max(PANELS_EACH, (panels() * blocks + Pool::MOST_CHUNKS - 1) / Pool::MOST_CHUNKS);
    }

    int phases() const override { return 1; }

    int chunks(int) const override {
        return (product_.rows + block_rows_ - 1) / block_rows_ * groups();
    }

    void run(int, int chunk) override {
        const int first = chunk % groups() * panels_each_, last = std::min(panels(), first + panels_each_);
        const int row = chunk / groups() * block_rows_;
        const int rows = std::min(block_rows_, product_.rows - row);
        Memory& held = memory();
        held.fit(GATED ? static_cast<std::size_t>(panels_each_) * PANEL * block_rows_ : 0);
        for (int k = 0; k < product_.inputs; k += depth_) {
            const Part part{product_.x + static_cast<std::size_t>(row) * product_.inputs + k, rows, k,
                            std::min(depth_, product_.inputs - k)};
            for (int panel = first; panel < last; ++panel) {
                multiply_panel(panel * PANEL, columns(panel), part, out(panel, row));
                if (GATED) multiply_panel(product_.outputs + panel * PANEL, columns(panel), part, up(panel - first));
            }
        }
        for (int panel = first; panel < last; ++panel) {
            scale(panel * PANEL, columns(panel), rows, out(panel, row));
            if (GATED) scale(product_.outputs + panel * PANEL, columns(panel), rows, up(panel - first));
            if (GATED) gate(columns(panel), rows, up(panel - first), out(panel, row));
        }
    }

    void finish(int) override {}

   private:
    // Inputs of a panel at once: with those of a strip, half of the nearest cache.
    static constexpr int MOST_DEPTH = 24 * 1024 / (4 * PANEL);
    // Activations of a block stay in the second cache while the panels of a chunk go by.
    static constexpr int BLOCK_ROWS = 256;
    static constexpr int PANELS_EACH = GATED ? 2 : 3;

    struct Memory {
        Lines<float> turned = Lines<float>(static_cast<std::size_t>(MOST_DEPTH + 8) * PANEL);
        Lines<float> up;

        void fit(std::size_t sums) {
            if (up.size() < sums) up.resize(sums);
        }
    };

    // Inputs [first, first + depth) of a block of rows; `x`: where they begin.
    struct Part {
        const float* x;
        int rows, first, depth;
    };

    struct Sums {
        float* to;
        std::size_t stride;
    };

    static Memory& memory() {
        thread_local Memory held;
        return held;
    }

    int panels() const { return (product_.outputs + PANEL - 1) / PANEL; }
    int groups() const { return (panels() + panels_each_ - 1) / panels_each_; }
    int columns(int panel) const { return std::min(PANEL, product_.outputs - panel * PANEL); }

    Sums out(int panel, int row) const {
        const std::size_t stride = product_.outputs;
        return {product_.out + row * stride + panel * PANEL, stride};
    }

    // What the gates of a panel are multiplied with, until all of the chunk's sums are there.
    Sums up(int place) const {
        return {memory().up.data() + static_cast<std::size_t>(place) * PANEL, static_cast<std::size_t>(panels_each_) * PANEL};
    }

    // Adds a part to the sums of the weight's rows [first, first + columns); the first part begins them.
    void multiply_panel(int first, int columns, const Part& part, const Sums& sums) const {
        const Weight* weight = static_cast<const Weight*>(product_.linear.weight) +
                               static_cast<std::size_t>(first) * product_.inputs + part.first;
        float* turned = memory().turned.data();
        turn_panel(weight, product_.inputs, columns, part.depth, turned);
        for (int done = 0; done < part.rows; done += STRIP) {
            const int count = std::min(STRIP, part.rows - done);
            const float* from = part.x + static_cast<std::size_t>(done) * product_.inputs;
            const Strip strip{sums.to + done * sums.stride, sums.stride, part.first == 0};
            if (columns == PANEL) {
                multiply_rows(count, from, product_.inputs, turned, part.depth, strip);
            } else {
                multiply_edge(count, from, turned, part.depth, columns, strip);
            }
        }
    }

    // The last panel, narrower than the registers: through a strip of its own.
    void multiply_edge(int count, const float* x, const float* turned, int depth, int columns, const Strip& strip) const {
        float edge[STRIP][PANEL] = {};
        for (int i = 0; i < count && !strip.begins; ++i) std::copy_n(strip.out + i * strip.stride, columns, edge[i]);
        multiply_rows(count, x, product_.inputs, turned, depth, Strip{edge[0], PANEL, strip.begins});
        for (int i = 0; i < count; ++i) std::copy_n(edge[i], columns, strip.out + i * strip.stride);
    }

    void scale(int first, int columns, int rows, const Sums& sums) const {
        const Linear& linear = product_.linear;
        if (!linear.scales && !linear.bias) return;
        for (int i = 0; i < rows; ++i) {
            float* line = sums.to + i * sums.stride;
            for (int column = 0; column < columns; ++column) {
                if (linear.scales) line[column] *= linear.scales[first + column];
                if (linear.bias) line[column] += linear.bias[first + column];
            }
        }
    }

    static void gate(int columns, int rows, const Sums& up, const Sums& out) {
        for (int i = 0; i < rows; ++i) {
            float* line = out.to + i * out.stride;
            gate_values(line, up.to + i * up.stride, columns, line);
        }
    }

    const dynofarm_product product_;
    int block_rows_, depth_, panels_each_;
};

// The same for so few activations that turning the weight would cost more than it gains.
template <class Weight, bool GATED>
class FewRowsJob : public Job {
   public:
    static constexpr int MOST_ROWS = 11;

    explicit FewRowsJob(const dynofarm_product& product)
        : product_(product), division_(Division::of(product.outputs, row_bytes(product), product.threads, Pool::MOST_CHUNKS)) {}

    int phases() const override { return 1; }
    int chunks(int) const override { return division_.pieces; }

    void run(int, int chunk) override {
        const int first = division_.begin(chunk), last = division_.begin(chunk + 1);
        if constexpr (GATED) {
            multiply_gated<Weight>(product_.linear, product_.x, product_.rows, product_.inputs, product_.outputs, first, last, product_.out);
        } else {
            const Sink sink{product_.out, static_cast<std::size_t>(product_.outputs), 0, false};
            multiply<Weight>(product_.linear, product_.x, product_.rows, product_.inputs, first, last, sink);
        }
    }

    void finish(int) override {}

   private:
    static std::int64_t row_bytes(const dynofarm_product& product) {
        return static_cast<std::int64_t>(product.inputs) * static_cast<int>(sizeof(Weight)) * (GATED ? 2 : 1);
    }

    const dynofarm_product product_;
    const Division division_;
};

}  // namespace dynofarm
