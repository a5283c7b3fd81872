// The finishing warps: sums of all multiplying warps, norm's factor, bias, gate or residual, the store, and the
// barrier of all blocks between two phases.
#pragma once
#include "phase.cuh"

constexpr int SQUARES_PER_LANE = (CHUNKS_PER_WARP * K_WARPS * CLUSTER + 63) / 64;
constexpr int PARTS_AT_ONCE = 8;
constexpr int ROWS_AT_ONCE = FINISHERS / 8;
constexpr int TURNS = OWN_ROWS / ROWS_AT_ONCE;

// Two neighbouring outputs of one row: 8 threads make a row of a tile. line: the row among those of the block.
struct Cell {
  int line, row, pair;
  __device__ Cell(int thread, int turn)
      : line(turn * ROWS_AT_ONCE + thread / 8), row(rank_in_cluster() * OWN_ROWS + line), pair(thread % 8) {}
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

// A gate and what it lets pass; every second thread stores its own and its neighbour's.
__device__ __forceinline__ void finish_gated(const Chain& chain, const Phase& phase, int tile, Cell cell, float2 sum) {
  float gated = __fdividef(sum.x, 1.0f + __expf(-sum.x)) * sum.y;
  float after = __shfl_down_sync(0xffffffffu, gated, 1, 8);
  if (cell.row >= chain.rows || cell.pair % 2 != 0) return;
  int place = cell.row * phase.outputs + tile * (TILE / 2) + cell.pair;
  *reinterpret_cast<u32*>(static_cast<u16*>(phase.output) + place) = bfloat16_of(make_float2(gated, after));
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
    float factor = block.board.factors[cell.line];
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

// line: of the whole batch, not only of the block's own.
__device__ __forceinline__ float2 sum_of_warps(const float (&sums)[K_WARPS][ROWS][SUMS_STRIDE], int line, int pair) {
  float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
  for (int warp = 0; warp < K_WARPS; ++warp) {
    float2 part = *reinterpret_cast<const float2*>(&sums[warp][line][2 * pair]);
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
  constexpr int ROWS_PER_WARP = OWN_ROWS / FINISHING_WARPS;
  const Chain& chain = block.chain;
  float4 squares[ROWS_PER_WARP][SQUARES_PER_LANE];
#pragma unroll
  for (int index = 0; index < ROWS_PER_WARP; ++index) {
    int row = rank_in_cluster() * OWN_ROWS + index * FINISHING_WARPS + warp;
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

// An item of which this block has its part; that of the other block of the cluster may still be on its way.
struct Gathered {
  Item item;
  float2 sums[TURNS];
  Beside besides[TURNS];

  __device__ explicit Gathered(const Item& item) : item(item) {}
};

// Where the finishers are in the ring of sums, and in what the other block passes on.
struct FinishTurns {
  Turn sums, passed;
};

__device__ __forceinline__ void expect_passed(const Block& block, int stage) {
  constexpr u32 bytes = OWN_ROWS * TILE * sizeof(float);
  mbarrier_arrive_expecting(shared_address(&block.board.passed_full[stage]), bytes);
}

// To the other block of the cluster: sums of the rows that are its own. A finisher may send an item when it has
// finished the last but one; the other then has, too, so four places are enough without a word back.
__device__ __forceinline__ void pass_on(const Block& block, Turn sums, u32 place, int thread) {
  Board& board = block.board;
  u32 other = 1 - rank_in_cluster(), full = shared_address(&board.passed_full[place]);
#pragma unroll
  for (int rows = 0; rows < TURNS; ++rows) {
    int line = rows * ROWS_AT_ONCE + thread / 8;
    float2 sum = sum_of_warps(board.sums[sums.stage], other * OWN_ROWS + line, thread % 8);
    store_on(other, shared_address(&board.passed[place][rows * FINISHERS + thread]), full, sum);
  }
}

__device__ __forceinline__ void gather(const Block& block, const Phase& phase, Gathered& made, FinishTurns& turns,
                                       u32 place, int thread) {
#pragma unroll
  for (int rows = 0; rows < TURNS; ++rows) {
    made.besides[rows].load(block.chain, phase, made.item.tile, Cell(thread, rows));
  }
  if (phase.kind == SUM) {
#pragma unroll
    for (int rows = 0; rows < TURNS; ++rows) {
      made.sums[rows] = sum_of_slices(block.chain, phase, made.item.tile, Cell(thread, rows));
    }
    return;
  }
  Turn& turn = turns.sums;
  mbarrier_wait(shared_address(&block.board.sums_full[turn.stage]), turn.parity);
  if (CLUSTER > 1) pass_on(block, turn, place, thread);
#pragma unroll
  for (int rows = 0; rows < TURNS; ++rows) {
    Cell cell(thread, rows);
    made.sums[rows] = sum_of_warps(block.board.sums[turn.stage], cell.row, cell.pair);
  }
  __syncwarp();
  if (thread % 32 == 0) mbarrier_arrive(shared_address(&block.board.sums_empty[turn.stage]));
  turn.next(SUMS);
}

__device__ __forceinline__ void complete(const Block& block, const Phase& phase, Gathered& made, FinishTurns& turns,
                                         int thread) {
  if (CLUSTER > 1 && phase.kind != SUM) {
    Turn& turn = turns.passed;
    mbarrier_wait(shared_address(&block.board.passed_full[turn.stage]), turn.parity);
#pragma unroll
    for (int rows = 0; rows < TURNS; ++rows) {
      float2 part = block.board.passed[turn.stage][rows * FINISHERS + thread];
      made.sums[rows] = make_float2(made.sums[rows].x + part.x, made.sums[rows].y + part.y);
    }
    if (thread == 0) expect_passed(block, turn.stage);
    turn.next(PASSED);
  }
#pragma unroll
  for (int rows = 0; rows < TURNS; ++rows) {
    finish_cell(block, phase, made.item, Cell(thread, rows), made.sums[rows], made.besides[rows]);
  }
}

// In a cluster an item is completed when the next one has been gathered: what is passed on arrives meanwhile.
__device__ __forceinline__ void finish_phase(const Block& block, const Phase& phase, int begin, int end,
                                             FinishTurns& turns, int thread) {
  Item item(phase, begin);
  Gathered held(item);
  for (int number = begin; number < end; ++number, item.next(phase)) {
    bool is_late = CLUSTER > 1 && number > begin;
    Gathered made(item);
    gather(block, phase, made, turns, (turns.passed.stage + (is_late ? 1 : 0)) % PASSED, thread);
    if (CLUSTER == 1) {
      complete(block, phase, made, turns, thread);
    } else {
      if (is_late) complete(block, phase, held, turns, thread);
      held = made;
    }
  }
  if (CLUSTER > 1 && begin < end) complete(block, phase, held, turns, thread);
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
  FinishTurns turns;
  if (CLUSTER > 1 && thread == 0) {
    for (int stage = 0; stage < PASSED; ++stage) expect_passed(block, stage);
  }
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
    finish_phase(block, phase, block.board.range[index][0], block.board.range[index][1], turns, thread);
  }
}
