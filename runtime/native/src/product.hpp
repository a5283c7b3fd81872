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
            sums[row][0] += value * low;
            sums[row][1] += value * high;
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
template <class Weight>
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
        thread_local Lines<float> held;
        held.resize(std::max<std::size_t>(held.size(), static_cast<std::size_t>(MOST_DEPTH + 8) * PANEL));
        for (int k = 0; k < product_.inputs; k += depth_) {
            const int depth = std::min(depth_, product_.inputs - k);
            for (int panel = first; panel < last; ++panel) multiply_panel(panel, row, rows, k, depth, held.data());
        }
        for (int panel = first; panel < last; ++panel) put_scales(panel, row, rows);
    }

    void finish(int) override {}

   private:
    // Inputs of a panel at once: with those of a strip, half of the nearest cache.
    static constexpr int MOST_DEPTH = 24 * 1024 / (4 * PANEL);
    // Activations of a block stay in the second cache while the panels of a chunk go by.
    static constexpr int BLOCK_ROWS = 256;
    static constexpr int PANELS_EACH = 3;

    int panels() const { return (product_.outputs + PANEL - 1) / PANEL; }
    int groups() const { return (panels() + panels_each_ - 1) / panels_each_; }
    int columns(int panel) const { return std::min(PANEL, product_.outputs - panel * PANEL); }

    float* out(int panel, int row) const {
        return product_.out + static_cast<std::size_t>(row) * product_.outputs + panel * PANEL;
    }

    void multiply_panel(int panel, int row, int rows, int k, int depth, float* turned) const {
        const Weight* weight = static_cast<const Weight*>(product_.linear.weight) +
                               static_cast<std::size_t>(panel) * PANEL * product_.inputs + k;
        turn_panel(weight, product_.inputs, columns(panel), depth, turned);
        const float* x = product_.x + static_cast<std::size_t>(row) * product_.inputs + k;
        for (int done = 0; done < rows; done += STRIP) {
            const int count = std::min(STRIP, rows - done);
            const float* from = x + static_cast<std::size_t>(done) * product_.inputs;
            if (columns(panel) == PANEL) {
                const Strip strip{out(panel, row + done), static_cast<std::size_t>(product_.outputs), k == 0};
                multiply_rows(count, from, product_.inputs, turned, depth, strip);
            } else {
                multiply_edge(count, from, turned, depth, panel, row + done, k == 0);
            }
        }
    }

    // The last panel, narrower than the registers: through a strip of its own.
    void multiply_edge(int count, const float* x, const float* turned, int depth, int panel, int row, bool begins) const {
        float edge[STRIP][PANEL] = {};
        for (int i = 0; i < count && !begins; ++i) std::copy_n(out(panel, row + i), columns(panel), edge[i]);
        multiply_rows(count, x, product_.inputs, turned, depth, Strip{edge[0], PANEL, begins});
        for (int i = 0; i < count; ++i) std::copy_n(edge[i], columns(panel), out(panel, row + i));
    }

    void put_scales(int panel, int row, int rows) const {
        const Linear& linear = product_.linear;
        if (!linear.scales && !linear.bias) return;
        const int first = panel * PANEL;
        for (int i = 0; i < rows; ++i) {
            float* line = out(panel, row + i);
            for (int column = 0; column < columns(panel); ++column) {
                if (linear.scales) line[column] *= linear.scales[first + column];
                if (linear.bias) line[column] += linear.bias[first + column];
            }
        }
    }

    const dynofarm_product product_;
    int block_rows_, depth_, panels_each_;
};

}  // namespace dynofarm
