// The multiplying warps: each has its chunks of K of every unit, and its part of the rows in registers.
#pragma once
#include "phase.cuh"

// Chains of sums: the matrix units need not wait for their own last result.
constexpr int CHAINS = 2;

// Place of a thread in the fragments of the matrix units.
struct Lane {
  int warp, group, part;
  __device__ Lane() : warp(threadIdx.x / 32), group(threadIdx.x % 32 / 4), part(threadIdx.x % 4) {}
};

struct Inputs {
  uint4 values[CHUNKS_PER_WARP][ROW_TILES];

  // A warp's chunks of one slice; 0 where there is none or where the batch has no row.
  __device__ __forceinline__ void load(const Chain& chain, const Phase& phase, const Unit& unit, const Lane& lane) {
#pragma unroll
    for (int step = 0; step < CHUNKS_PER_WARP; ++step) {
      int chunk = step * MULTIPLYING_WARPS + lane.warp;
#pragma unroll
      for (int tile = 0; tile < ROW_TILES; ++tile) {
        int row = tile * 8 + lane.group;
        int place = (row * phase.chunks + unit.first_chunk + chunk) * CHUNK + lane.part * 8;
        values[step][tile] = make_uint4(0, 0, 0, 0);
        if (chunk < unit.chunks && row < chain.rows) values[step][tile] = load_16(phase.input + place);
      }
    }
  }
};

struct Sums {
  float values[CHAINS][ROW_TILES][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) {
#pragma unroll
      for (int tile = 0; tile < ROW_TILES; ++tile) {
#pragma unroll
        for (int cell = 0; cell < 4; ++cell) values[chain][tile][cell] = 0.0f;
      }
    }
  }

  // Weights are the left operand. A thread's 16 bytes of a row are k = 8 part .. 8 part + 7 of a chunk, on both sides:
  // which k the matrix units take together does not matter as long as it is the same.
  __device__ __forceinline__ void add(const Inputs& inputs, const unsigned char* stage, const Unit& unit,
                                      const Lane& lane) {
    const unsigned char* place = stage + lane.group * unit.stride() + lane.part * 16;
    uint4 low[CHUNKS_PER_WARP], high[CHUNKS_PER_WARP];
#pragma unroll
    for (int step = 0; step < CHUNKS_PER_WARP; ++step) {
      // Beyond the end the last chunk is read again: the inputs are 0 there.
      int chunk = min(step * MULTIPLYING_WARPS + lane.warp, unit.chunks - 1);
      low[step] = *reinterpret_cast<const uint4*>(place + chunk * CHUNK_BYTES);
      high[step] = *reinterpret_cast<const uint4*>(place + chunk * CHUNK_BYTES + 8 * unit.stride());
    }
#pragma unroll
    for (int step = 0; step < CHUNKS_PER_WARP; ++step) {
#pragma unroll
      for (int tile = 0; tile < ROW_TILES; ++tile) {
        const uint4& b = inputs.values[step][tile];
        multiply_add(values[0][tile], low[step].x, high[step].x, low[step].y, high[step].y, b.x, b.y);
        multiply_add(values[1][tile], low[step].z, high[step].z, low[step].w, high[step].w, b.z, b.w);
      }
    }
  }

  __device__ __forceinline__ float total(int tile, int cell) const {
    return values[0][tile][cell] + values[1][tile][cell];
  }

  __device__ __forceinline__ void keep(float (&kept)[ROWS][SUMS_STRIDE], const Lane& lane) const {
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile) {
      int row = tile * 8 + 2 * lane.part;
      kept[row][lane.group] = total(tile, 0);
      kept[row + 1][lane.group] = total(tile, 1);
      kept[row][lane.group + 8] = total(tile, 2);
      kept[row + 1][lane.group + 8] = total(tile, 3);
    }
  }
};

// Where a block is in the rings of weights and of sums.
struct Turns {
  Turn weights, sums;
};

__device__ __forceinline__ void hand_over(const Block& block, const Sums& sums, Turn& turn, const Lane& lane) {
  mbarrier_wait(shared_address(&block.board.sums_empty[turn.stage]), turn.parity ^ 1);
  sums.keep(block.board.sums[turn.stage][lane.warp], lane);
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(shared_address(&block.board.sums_full[turn.stage]));
  turn.next(SUMS);
}

__device__ __forceinline__ void multiply_phase(const Block& block, const Phase& phase, int begin, int end,
                                               Turns& turns, const Lane& lane) {
  const Chain& chain = block.chain;
  Inputs inputs;
  Item item(phase, begin);
  if (begin < end) inputs.load(chain, phase, Unit(phase, 0, item.first_slice), lane);
  for (int number = begin; number < end; ++number) {
    Sums sums;
    sums.clear();
    int end_slice = item.end_slice;
    for (int slice = item.first_slice; slice < end_slice; ++slice) {
      Unit unit(phase, item.tile, slice);
      mbarrier_wait(shared_address(&block.board.full[turns.weights.stage]), turns.weights.parity);
      sums.add(inputs, block.stage(turns.weights), unit, lane);
      // Without the fence a row was now and then overwritten before it had been read.
      fence_before_copies();
      __syncwarp();
      if (threadIdx.x % 32 == 0) mbarrier_arrive(shared_address(&block.board.empty[turns.weights.stage]));
      turns.weights.next(chain.stages);
      // The rows of the next slice arrive while this one is handed over.
      int next = slice + 1;
      if (next == end_slice) {
        item.next(phase);
        next = number + 1 < end ? item.first_slice : slice;
      }
      if (next != slice) inputs.load(chain, phase, Unit(phase, 0, next), lane);
    }
    hand_over(block, sums, turns.sums, lane);
  }
}

__device__ void multiply(const Block& block) {
  const Chain& chain = block.chain;
  Lane lane;
  Turns turns;
  for (int index = chain.first; index < chain.end; ++index) {
    const Phase phase = chain.phases[index];
    if (index == chain.first) {
      wait_for_kernel_before();
    } else {
      sync_phase();
    }
    if (phase.weight == nullptr) continue;
    multiply_phase(block, phase, block.board.range[index][0], block.board.range[index][1], turns, lane);
  }
}
