// The finishing warps: sums of all multiplying warps, norm's factor, bias, gate or residual, the store, and the
// barrier of all blocks between two phases.
#pragma once
#include "phase.cuh"

constexpr int SQUARES_PER_LANE = (CHUNKS_PER_WARP + 7) / 8;
constexpr int PARTS_AT_ONCE = 8;

// Two neighbouring outputs of one row: 8 threads make a row of a tile, all finishers 8 rows.
struct Cell {
  int row, pair;
  __device__ Cell(int thread, int row_tile) : row(row_tile * 8 + thread / 8), pair(thread % 8) {}
};

// What is added to and multiplied with a cell of the stream, asked for before it is needed.
struct Beside {
  u32 residual, scale;

  __device__ __forceinline__ void load(const Chain& chain, const Phase& phase, int tile, Cell cell) {
    residual = scale = 0;
    if ((phase.kind != STREAM && phase.kind != SUM) || cell.row >= chain.rows) return;
    int column = tile * TILE + 2 * cell.pair;
    residual = load_4(chain.stream + cell.row * phase.outputs + column);
    scale = *reinterpret_cast<const u32*>(phase.next_norm + column);
  }
};

__device__ __forceinline__ void finish_stream(const Chain& chain, const Phase& phase, int tile, Cell cell, float2 sum,
                                              Beside beside) {
  float2 before = floats_of(beside.residual), scale = floats_of(beside.scale);
  u32 kept = bfloat16_of(make_float2(sum.x + before.x, sum.y + before.y));
  float2 wide = floats_of(kept);
  float square = wide.x * wide.x + wide.y * wide.y;
#pragma unroll
  for (int step = 1; step < 8; step *= 2) square += __shfl_xor_sync(0xffffffffu, square, step);
  if (cell.row >= chain.rows) return;
  int place = cell.row * phase.outputs + tile * TILE + 2 * cell.pair;
  *reinterpret_cast<u32*>(chain.stream + place) = kept;
  *reinterpret_cast<u32*>(chain.scaled + place) = bfloat16_of(make_float2(wide.x * scale.x, wide.y * scale.y));
  if (cell.pair == 0) chain.squares[cell.row * chain.squares_stride + tile] = square;
}

__device__ __forceinline__ void finish_gated(const Chain& chain, const Phase& phase, int tile, Cell cell, float2 sum) {
  float up_x = __shfl_down_sync(0xffffffffu, sum.x, 4, 8);
  float up_y = __shfl_down_sync(0xffffffffu, sum.y, 4, 8);
  if (cell.row >= chain.rows || cell.pair >= 4) return;
  float2 gated = make_float2(sum.x / (1.0f + __expf(-sum.x)) * up_x, sum.y / (1.0f + __expf(-sum.y)) * up_y);
  int place = cell.row * phase.outputs + tile * (TILE / 2) + 2 * cell.pair;
  *reinterpret_cast<u32*>(static_cast<u16*>(phase.output) + place) = bfloat16_of(gated);
}

__device__ __forceinline__ void finish_plain(const Chain& chain, const Phase& phase, int tile, Cell cell, float2 sum) {
  if (cell.row >= chain.rows) return;
  int column = tile * TILE + 2 * cell.pair;
  if (phase.bias != nullptr) {
    float2 bias = floats_of(*reinterpret_cast<const u32*>(phase.bias + column));
    sum = make_float2(sum.x + bias.x, sum.y + bias.y);
  }
  int place = cell.row * phase.outputs + column;
  if (phase.kind == LOGITS) {
    *reinterpret_cast<float2*>(static_cast<float*>(phase.output) + place) = sum;
  } else {
    *reinterpret_cast<u32*>(static_cast<u16*>(phase.output) + place) = bfloat16_of(sum);
  }
}

__device__ __forceinline__ float* partial_place(const Chain& chain, const Phase& phase, int slice, int tile, Cell cell) {
  int cells = ((slice * phase.tiles + tile) * ROWS + cell.row) * TILE;
  return chain.partials + cells + 2 * cell.pair;
}

// Whole warps call this together: neighbours exchange what they have.
__device__ __forceinline__ void finish_cell(const Block& block, const Phase& phase, const Item& item, Cell cell,
                                            float2 sum, Beside beside) {
  const Chain& chain = block.chain;
  if (phase.kind == PARTIAL) {
    *reinterpret_cast<float2*>(partial_place(chain, phase, item.first_slice, item.tile, cell)) = sum;
    return;
  }
  if (phase.tiles_before > 0) {
    float factor = block.board.factors[cell.row];
    sum = make_float2(sum.x * factor, sum.y * factor);
  }
  if (phase.kind == GATED) {
    finish_gated(chain, phase, item.tile, cell, sum);
  } else if (phase.kind == STREAM || phase.kind == SUM) {
    finish_stream(chain, phase, item.tile, cell, sum, beside);
  } else {
    finish_plain(chain, phase, item.tile, cell, sum);
  }
}

__device__ __forceinline__ float2 sum_of_warps(const float (&sums)[MULTIPLYING_WARPS][ROWS][SUMS_STRIDE], Cell cell) {
  float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
  for (int warp = 0; warp < MULTIPLYING_WARPS; ++warp) {
    float2 part = *reinterpret_cast<const float2*>(&sums[warp][cell.row][2 * cell.pair]);
    sum = make_float2(sum.x + part.x, sum.y + part.y);
  }
  return sum;
}

// The slices of a tile in their order, however they came about.
__device__ __forceinline__ float2 sum_of_slices(const Chain& chain, const Phase& phase, int tile, Cell cell) {
  float2 sum = make_float2(0.0f, 0.0f);
  for (int first = 0; first < phase.slices; first += PARTS_AT_ONCE) {
    float2 parts[PARTS_AT_ONCE];
#pragma unroll
    for (int part = 0; part < PARTS_AT_ONCE; ++part) {
      parts[part] = make_float2(0.0f, 0.0f);
      if (first + part < phase.slices) parts[part] = load_floats(partial_place(chain, phase, first + part, tile, cell));
    }
#pragma unroll
    for (int part = 0; part < PARTS_AT_ONCE; ++part) sum = make_float2(sum.x + parts[part].x, sum.y + parts[part].y);
  }
  return sum;
}

// 1 / root mean square of each row, from the sums that the tiles of the stream left.
__device__ __forceinline__ void find_factors(const Block& block, const Phase& phase, int warp, int lane) {
  constexpr int ROWS_PER_WARP = ROWS / FINISHING_WARPS;
  const Chain& chain = block.chain;
  float4 squares[ROWS_PER_WARP][SQUARES_PER_LANE];
#pragma unroll
  for (int index = 0; index < ROWS_PER_WARP; ++index) {
    int row = index * FINISHING_WARPS + warp;
#pragma unroll
    for (int part = 0; part < SQUARES_PER_LANE; ++part) {
      int tile = 4 * (part * 32 + lane);
      squares[index][part] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (row < chain.rows && tile < phase.tiles_before) {
        squares[index][part] = load_4_floats(chain.squares + row * chain.squares_stride + tile);
      }
    }
  }
#pragma unroll
  for (int index = 0; index < ROWS_PER_WARP; ++index) {
    float total = 0.0f;
#pragma unroll
    for (int part = 0; part < SQUARES_PER_LANE; ++part) {
      int left = phase.tiles_before - 4 * (part * 32 + lane);
      float4 v = squares[index][part];
      total += v.x + (left > 1 ? v.y : 0.0f) + (left > 2 ? v.z : 0.0f) + (left > 3 ? v.w : 0.0f);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    float mean = total / (phase.chunks * CHUNK);
    if (lane == 0) block.board.factors[index * FINISHING_WARPS + warp] = rsqrtf(mean + chain.eps);
  }
  sync_finishers();
}

__device__ __forceinline__ void finish_item(const Block& block, const Phase& phase, const Item& item, Turn& turn,
                                            int thread) {
  Beside besides[ROW_TILES];
#pragma unroll
  for (int tile = 0; tile < ROW_TILES; ++tile) {
    besides[tile].load(block.chain, phase, item.tile, Cell(thread, tile));
  }
  float2 sums[ROW_TILES];
  if (phase.kind == SUM) {
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile) {
      sums[tile] = sum_of_slices(block.chain, phase, item.tile, Cell(thread, tile));
    }
  } else {
    mbarrier_wait(shared_address(&block.board.sums_full[turn.stage]), turn.parity);
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile) {
      sums[tile] = sum_of_warps(block.board.sums[turn.stage], Cell(thread, tile));
    }
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(shared_address(&block.board.sums_empty[turn.stage]));
    turn.next(SUMS);
  }
#pragma unroll
  for (int tile = 0; tile < ROW_TILES; ++tile) {
    finish_cell(block, phase, item, Cell(thread, tile), sums[tile], besides[tile]);
  }
}

// Bit 31 turns when all blocks have come, the lower bits are 0 again: it can go on for ever. A block that waits
// too long ends the kernel with an error rather than never.
__device__ __forceinline__ void wait_for_all(u32* barrier, u32& sense, int thread) {
  sync_finishers();
  if (thread == 0) {
    add_releasing(barrier, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
    u64 began_ns = clock_ns();
    for (u32 polls = 1; ((load_acquiring(barrier) ^ sense) & 0x80000000u) == 0; ++polls) {
      if (polls % 1024 == 0 && clock_ns() - began_ns > BARRIER_DEADLINE_NS) __trap();
    }
    sense ^= 0x80000000u;
  }
  sync_phase();
}

__device__ void finish(const Block& block) {
  const Chain& chain = block.chain;
  int thread = threadIdx.x - MULTIPLIERS;
  u32 sense = 0;
  Turn turn;
  for (int index = chain.first; index < chain.end; ++index) {
    const Phase phase = chain.phases[index];
    if (index == chain.first) {
      wait_for_kernel_before();
      // Cannot turn before this block has come, too.
      if (thread == 0) sense = load_acquiring(chain.barrier);
    } else {
      wait_for_all(chain.barrier, sense, thread);
    }
    if (phase.tiles_before > 0) find_factors(block, phase, thread / 32, thread % 32);
    int begin = block.board.range[index][0], end = block.board.range[index][1];
    Item item(phase, begin);
    for (int number = begin; number < end; ++number, item.next(phase)) {
      finish_item(block, phase, item, turn, thread);
    }
  }
}
