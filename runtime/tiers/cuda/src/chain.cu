// The matrix products between two attentions as one kernel, one block on each processor of the device.
//
// One warp copies weights into a ring in shared memory, through all phases without a stop; eight warps multiply, two
// to four finish. With more than 8 rows two blocks are a cluster and share each tile. Only finishers of all blocks wait
// for one another, between phases. Everything is added up in a fixed order: results do not depend on timing.
#include "copy.cuh"
#include "finish.cuh"
#include "multiply.cuh"

__device__ void prepare(const Block& block) {
  const Chain& chain = block.chain;
  Board& board = block.board;
  int thread = threadIdx.x;
  if (thread < 2 * MOST_PHASES) {
    int index = thread / 2, side = thread % 2;
    board.range[index][side] = chain.starts[chain.phases[index].starts_at + blockIdx.x / CLUSTER + side];
  }
  if (thread < chain.stages) {
    mbarrier_init(shared_address(&board.full[thread]), 1);
    mbarrier_init(shared_address(&board.empty[thread]), MULTIPLYING_WARPS);
  } else if (thread >= 32 && thread < 32 + SUMS) {
    mbarrier_init(shared_address(&board.sums_full[thread - 32]), MULTIPLYING_WARPS);
    mbarrier_init(shared_address(&board.sums_empty[thread - 32]), FINISHING_WARPS);
  } else if (thread >= 64 && thread < 64 + PASSED) {
    mbarrier_init(shared_address(&board.passed_full[thread - 64]), 1);
  }
  mbarrier_fence();
  __syncthreads();
  sync_cluster();
}

#if CLUSTER > 1
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTERED
#endif

extern "C" __global__ void CLUSTERED __launch_bounds__(THREADS, 1) chain(const __grid_constant__ Chain chain) {
  extern __shared__ __align__(128) unsigned char shared[];
  release_kernel_after();
  Block block{chain, *reinterpret_cast<Board*>(shared), shared + BOARD_BYTES};
  prepare(block);
  if (threadIdx.x < MULTIPLIERS) {
    multiply(block);
  } else if (threadIdx.x < MULTIPLIERS + FINISHERS) {
    finish(block);
  } else {
    copy_weights(block);
  }
  sync_cluster();
}
