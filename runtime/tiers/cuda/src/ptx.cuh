// What the chain needs of the machine, as PTX: NVRTC has no headers.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u32 shared_address(const void* place) {
  return static_cast<u32>(__cvta_generic_to_shared(place));
}

__device__ __forceinline__ void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

__device__ __forceinline__ void release_kernel_after() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine and to the cluster's other block.
__device__ __forceinline__ void mbarrier_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive_expecting(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// What this thread has read of shared memory is read before the copy engine may write there.
__device__ __forceinline__ void fence_before_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {
  u32 is_done = 0;
  while (!is_done) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n}"
        : "=r"(is_done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// Two floats to the same place in another block of the cluster, whose barrier counts their bytes once they are there.
__device__ __forceinline__ void store_on(u32 rank, u32 place, u32 barrier, float2 v) {
  asm volatile(
      "{\n.reg .b32 there, counted;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 counted, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, [counted];\n}" ::"r"(place),
      "r"(barrier), "r"(rank), "f"(v.x), "f"(v.y)
      : "memory");
}

// All threads of the cluster have come: nobody writes to a block that has not begun or that has ended.
__device__ __forceinline__ void sync_cluster() {
#if CLUSTER > 1
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
#endif
}

// Weights are read once a step: L2 gives their lines away first.
__device__ __forceinline__ u64 streaming_policy() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void copy_to_shared(u32 target, const void* source, u32 bytes, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
          target),
      "l"(source), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// Loads of what other processors wrote in this kernel: past L1, which does not see their writes.
__device__ __forceinline__ uint4 load_16(const void* place) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(place)
               : "memory");
  return v;
}

__device__ __forceinline__ u32 load_4(const void* place) {
  u32 v;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(place) : "memory");
  return v;
}

__device__ __forceinline__ float4 load_4_floats(const float* place) {
  uint4 v = load_16(place);
  return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}

__device__ __forceinline__ float2 load_floats(const float* place) {
  float2 v;
  asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(place) : "memory");
  return v;
}

__device__ __forceinline__ void add_releasing(u32* place, u32 value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(place), "r"(value) : "memory");
}

__device__ __forceinline__ u32 load_acquiring(const u32* place) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(place) : "memory");
  return v;
}

__device__ __forceinline__ u64 clock_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// sums[16 x 8] += a[16 x 16] b[16 x 8]
__device__ __forceinline__ void multiply_add(float (&sums)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float2 floats_of(u32 two_bfloat16) {
  return make_float2(__uint_as_float(two_bfloat16 << 16), __uint_as_float(two_bfloat16 & 0xffff0000u));
}

__device__ __forceinline__ u32 bfloat16_of(float2 values) {
  u32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(values.y), "f"(values.x));
  return packed;
}
