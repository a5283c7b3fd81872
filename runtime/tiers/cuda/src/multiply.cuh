// The multiplying warps: each has its chunks of K of every unit, and its part of the rows in registers.
// Many rows are divided, too: then several warps read the same weights.
#pragma once
#include "phase.cuh"

// Chains of sums: the matrix units need not wait for their own last result.
constexpr int CHAINS = 2;
constexpr int MULTIPLIERS_OF_GROUP = 32 * K_WARPS;

// Place of a thread in the fragments of the matrix units.
struct Lane {
  int warp, first_tile, group, part;
  __device__ Lane()
      : warp(threadIdx.x / 32 % K_WARPS),
        first_tile(threadIdx.x / MULTIPLIERS_OF_GROUP * WARP_TILES),
        group(threadIdx.x % 32 / 4),
        part(threadIdx.x % 4) {}

  // Which chunk of a unit comes at this step.
  __device__ int chunk(int step) const { return step * K_WARPS + warp; }
};

// Rows of the batch by 8: one such tile is the right operand, weights the left; two are a left operand, and the 16
// bytes that a thread reads of a weight are then right operands as they are, without a move between registers.
constexpr bool ARE_ROWS_LEFT = WARP_TILES > 1;

struct Inputs {
  uint4 values[CHUNKS_PER_WARP][WARP_TILES];
  int offsets[CHUNKS_PER_WARP];  // of the weights that belong to them, in a stage
  int eight_lines;
  bool are_there;

  // A warp's chunks of one slice; 0 where there is none or where the batch has no row.
  __device__ __forceinline__ void load(const Chain& chain, const Phase& phase, const Unit& unit, const Lane& lane) {
    are_there = unit.chunks > 0;
    eight_lines = 8 * unit.stride();
#pragma unroll
    for (int step = 0; step < CHUNKS_PER_WARP; ++step) {
      int chunk = lane.chunk(step);
      // Beyond the end the last chunk is read again: the inputs are 0 there.
      offsets[step] = lane.group * unit.stride() + lane.part * 16 + min(chunk, unit.chunks - 1) * CHUNK_BYTES;
#pragma unroll
      for (int tile = 0; tile < WARP_TILES; ++tile) {
        int row = (lane.first_tile + tile) * 8 + lane.group;
        int place = (row * phase.chunks + unit.first_chunk + chunk) * CHUNK + lane.part * 8;
        values[step][tile] = make_uint4(0, 0, 0, 0);
        if (chunk < unit.chunks && row < chain.rows) values[step][tile] = load_16(phase.input + place);
      }
    }
    if (ARE_ROWS_LEFT) interleave(static_cast<u32>(chain.rows) >> 31);
  }

  // Two tiles as the matrix units take them as a left operand. nothing is 0, which the compiler must not know: it
  // would move registers before each product instead of once.
  __device__ __forceinline__ void interleave(u32 nothing) {
#pragma unroll
    for (int step = 0; step < CHUNKS_PER_WARP; ++step) {
      uint4 low = values[step][0], high = values[step][WARP_TILES - 1];
      values[step][0] = make_uint4(low.x ^ nothing, high.x ^ nothing, low.y ^ nothing, high.y ^ nothing);
      values[step][WARP_TILES - 1] = make_uint4(low.z ^ nothing, high.z ^ nothing, low.w ^ nothing, high.w ^ nothing);
    }
  }
};

struct Sums {
  float values[CHAINS][2][4];  // rows left: by half of the weight lines

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) {
#pragma unroll
      for (int cell = 0; cell < 8; ++cell) values[chain][cell / 4][cell % 4] = 0.0f;
    }
  }

  // A thread's 16 bytes of a row are k = 8 part .. 8 part + 7 of a chunk, on both sides: which k the matrix units take
  // together does not matter as long as it is the same. low and high are weight lines n and n + 8.
  __device__ __forceinline__ void add_step(const uint4 (&rows)[WARP_TILES], uint4 low, uint4 high) {
    const uint4 &first = rows[0], &second = rows[WARP_TILES - 1];
    if (ARE_ROWS_LEFT) {
      multiply_add(values[0][0], first.x, first.y, first.z, first.w, low.x, low.y);
      multiply_add(values[0][1], first.x, first.y, first.z, first.w, high.x, high.y);
      multiply_add(values[1][0], second.x, second.y, second.z, second.w, low.z, low.w);
      multiply_add(values[1][1], second.x, second.y, second.z, second.w, high.z, high.w);
    } else {
      multiply_add(values[0][0], low.x, high.x, low.y, high.y, first.x, first.y);
      multiply_add(values[1][0], low.z, high.z, low.w, high.w, first.z, first.w);
    }
  }

  __device__ __forceinline__ void add(const Inputs& inputs, const unsigned char* stage) {
    uint4 low[CHUNKS_PER_WARP], high[CHUNKS_PER_WARP];
#pragma unroll
    for (int step = 0; step < CHUNKS_PER_WARP; ++step) {
      const unsigned char* place = stage + inputs.offsets[step];
      low[step] = *reinterpret_cast<const uint4*>(place);
      high[step] = *reinterpret_cast<const uint4*>(place + inputs.eight_lines);
    }
#pragma unroll
    for (int step = 0; step < CHUNKS_PER_WARP; ++step) add_step(inputs.values[step], low[step], high[step]);
  }

  __device__ __forceinline__ float total(int half, int cell) const {
    return values[0][half][cell] + values[1][half][cell];
  }

  // By row, lines n and n + 8 beside one another.
  __device__ __forceinline__ void keep(float (&kept)[ROWS][SUMS_STRIDE], const Lane& lane) const {
    int first_row = lane.first_tile * 8;
    if (ARE_ROWS_LEFT) {
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        float4 both = make_float4(total(0, 2 * tile), total(1, 2 * tile), total(0, 2 * tile + 1), total(1, 2 * tile + 1));
        *reinterpret_cast<float4*>(&kept[first_row + tile * 8 + lane.group][4 * lane.part]) = both;
      }
    } else {
      int row = first_row + 2 * lane.part;
      *reinterpret_cast<float2*>(&kept[row][2 * lane.group]) = make_float2(total(0, 0), total(0, 2));
      *reinterpret_cast<float2*>(&kept[row + 1][2 * lane.group]) = make_float2(total(0, 1), total(0, 3));
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
      mbarrier_wait(shared_address(&block.board.full[turns.weights.stage]), turns.weights.parity);
      if (CLUSTER == 1 || inputs.are_there) sums.add(inputs, block.stage(turns.weights));
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
