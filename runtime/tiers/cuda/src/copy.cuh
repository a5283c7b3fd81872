// The copying warp: weights depend on nothing, so it runs ahead of all others as far as the ring allows.
#pragma once
#include "phase.cuh"

__device__ __forceinline__ void copy_unit(const Block& block, const Phase& phase, const Unit& unit, Turn turn,
                                          u64 policy) {
  u32 bytes = unit.chunks * CHUNK_BYTES;
  u32 full = shared_address(&block.board.full[turn.stage]);
  mbarrier_wait(shared_address(&block.board.empty[turn.stage]), turn.parity ^ 1);
  if (threadIdx.x % 32 != 0) return;
  mbarrier_arrive_expecting(full, TILE * bytes);
  if (bytes == 0) return;
  u32 target = shared_address(block.stage(turn)), stride = unit.stride();
  int line_values = phase.chunks * CHUNK * (phase.kind == GATED ? 1 : 2);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const u16* source = unit.row(phase, half * 8);
#pragma unroll
    for (int line = 0; line < 8; ++line, target += stride, source += line_values) {
      copy_to_shared(target, source, bytes, full, policy);
    }
  }
}

__device__ void copy_weights(const Block& block) {
  const Chain& chain = block.chain;
  u64 policy = streaming_policy();
  Turn turn;
  for (int index = chain.first; index < chain.end; ++index) {
    const Phase phase = chain.phases[index];
    if (phase.weight == nullptr) continue;
    int begin = block.board.range[index][0], end = block.board.range[index][1];
    Item item(phase, begin);
    for (int number = begin; number < end; ++number, item.next(phase)) {
      for (int slice = item.first_slice; slice < item.end_slice; ++slice, turn.next(chain.stages)) {
        copy_unit(block, phase, Unit(phase, item.tile, slice), turn, policy);
      }
    }
  }
}
