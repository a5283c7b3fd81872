// The plan of one launch, as runtime/tiers/cuda/chain.py fills it in: both sides must agree to the byte.
#pragma once
#include "ptx.cuh"

// PLAIN: bfloat16 with bias. GATED: SiLU of the first half of the outputs times the second. STREAM: added to the
// residual stream, with what the next norm needs beside it. LOGITS: float32. PARTIAL: sums over one slice of K, for
// SUM, which adds them up into the stream.
enum Kind { PLAIN = 0, GATED = 1, STREAM = 2, LOGITS = 3, PARTIAL = 4, SUM = 5 };

constexpr int MULTIPLYING_WARPS = 8;
constexpr int MULTIPLIERS = 32 * MULTIPLYING_WARPS;
// The blocks of a cluster share each tile: K is divided among them, and each finishes its own rows. Within a block the
// multiplying warps divide K and, in the same way, the rows.
constexpr int K_WARPS = MULTIPLYING_WARPS / CLUSTER;
constexpr int WARP_TILES = ROW_TILES / CLUSTER;
constexpr int OWN_ROWS = 8 * WARP_TILES;
constexpr int FINISHING_WARPS = CLUSTER > 1 ? 2 * WARP_TILES : 2;
constexpr int FINISHERS = 32 * FINISHING_WARPS;
constexpr int THREADS = MULTIPLIERS + FINISHERS + 32;
constexpr int MOST_PHASES = 5;
constexpr int ROWS = 8 * ROW_TILES;
constexpr int TILE = 16;
constexpr int CHUNK = 32;
constexpr int CHUNK_BYTES = 2 * CHUNK;
constexpr int SUMS_STRIDE = TILE + 4;
constexpr int SUMS = 2;
constexpr int MOST_STAGES = 16;
// What the other block has of an item; four, because each may be one item ahead of what the other has read.
constexpr int PASSED = CLUSTER > 1 ? 4 : 1;
static_assert(CLUSTER <= 2 && WARP_TILES <= 2, "a block knows of one other, a warp of two tiles");
constexpr u64 BARRIER_DEADLINE_NS = 20000000000ull;

__device__ __forceinline__ int rank_in_cluster() { return blockIdx.x % CLUSTER; }

struct Phase {
  const u16* weight;     // [outputs or 2 outputs, 32 chunks]; null where nothing is multiplied
  const u16* bias;       // [outputs], or null
  const u16* next_norm;  // [outputs] where the stream is written
  const u16* input;      // [rows, 32 chunks]
  void* output;
  int kind;
  int outputs;
  int chunks;
  int slices;  // of K, each at most slice_chunks
  int slice_chunks;
  int tiles;         // of 16 weight rows
  int tiles_before;  // how many sums of squares of each row the input's norm has; 0 without a norm
  int starts_at;     // where its first items stand in `starts`
};

struct Chain {
  Phase phases[MOST_PHASES];
  const int* starts;    // [phase][cluster]: first item; one more: end
  u16* stream;
  u16* scaled;
  float* squares;  // [row][tile of the stream]
  float* partials;
  u32* barrier;
  int first;
  int end;
  int rows;
  int stages;
  int stage_bytes;
  int squares_stride;
  float eps;
};

// A tile over all slices of K, or over one of them where the sums are PARTIAL: one result of a cluster.
struct Item {
  int tile, first_slice, end_slice;

  __device__ Item(const Phase& phase, int number) : tile(number), first_slice(0), end_slice(phase.slices) {
    if (phase.kind != PARTIAL) return;
    first_slice = number / phase.tiles;
    end_slice = first_slice + 1;
    tile = number - first_slice * phase.tiles;
  }

  __device__ void next(const Phase& phase) {
    if (++tile < phase.tiles || phase.kind != PARTIAL) return;
    tile = 0;
    ++first_slice;
    ++end_slice;
  }
};

// A block's share of one slice of a tile as it is copied: 16 weight rows. A short slice can leave it no chunk.
struct Unit {
  int tile, first_chunk, chunks;

  __device__ Unit(const Phase& phase, int tile, int slice) : tile(tile) {
    int first = slice * phase.slice_chunks, held = min(phase.slice_chunks, phase.chunks - first);
    int share = (held + CLUSTER - 1) / CLUSTER, before = share * rank_in_cluster();
    first_chunk = first + before;
    chunks = max(0, min(share, held - before));
  }

  // Rows lie an odd number of 64 bytes apart: two neighbours then cover all banks of shared memory.
  __device__ int stride() const { return (chunks | 1) * CHUNK_BYTES; }

  // Lines n and n + 8 are a pair that one thread gets: neighbouring outputs, or a gate and what it lets pass.
  __device__ const u16* row(const Phase& phase, int line) const {
    long row = tile * TILE + line % 8 * 2 + line / 8;
    if (phase.kind == GATED) row = tile * (TILE / 2) + line % 8 + (line < 8 ? 0 : phase.outputs);
    return phase.weight + row * phase.chunks * CHUNK + first_chunk * CHUNK;
  }
};

// Place in a ring, and how often it went round.
struct Turn {
  int stage = 0;
  u32 parity = 0;

  __device__ void next(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Beginning of the dynamic shared memory; the ring of weights follows.
struct Board {
  u64 full[MOST_STAGES];
  u64 empty[MOST_STAGES];
  u64 sums_full[SUMS];
  u64 sums_empty[SUMS];
  u64 passed_full[PASSED];
  int range[MOST_PHASES][2];
  float factors[OWN_ROWS];
  alignas(16) float sums[SUMS][K_WARPS][ROWS][SUMS_STRIDE];  // see `Sums.keep`
  float2 passed[PASSED][OWN_ROWS * TILE / 2];
};

constexpr int BOARD_BYTES = (sizeof(Board) + 127) / 128 * 128;
static_assert(sizeof(Chain) == CHAIN_BYTES && BOARD_BYTES == BOARD_BYTES_HERE, "chain.py describes another structure");

struct Block {
  const Chain& chain;
  Board& board;
  unsigned char* ring;

  __device__ unsigned char* stage(Turn turn) const { return ring + turn.stage * chain.stage_bytes; }
};

__device__ __forceinline__ void sync_finishers() { asm volatile("bar.sync 2, %0;" ::"n"(FINISHERS) : "memory"); }

__device__ __forceinline__ void sync_phase() {
  asm volatile("bar.sync 1, %0;" ::"n"(MULTIPLIERS + FINISHERS) : "memory");
}
