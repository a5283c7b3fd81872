"""Matrix products of few rows with large weights, each weight read once, with what surrounds them fused in.

At 1 to 64 rows a product is bound by reading its weight [out, in]. One program takes BLOCK_N outputs for all
rows. RMS norm is split: who makes the residual stream also stores it times the next norm's weight and, per
program, its sums of squares; who reads that only multiplies its own sums by the row's factor.
Constexprs (capitals) are the shapes of the model and of the tile; `rows` is the batch bucket.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

MOST_ROWS = tl.constexpr(64)


@triton.jit
def prefetch(lines):
    """Asks L2 for the 128-byte lines at these addresses; nothing waits for them."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [lines], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def wait_for_kernel_before(RELEASES_FIRST: tl.constexpr):
    """RELEASES_FIRST: the kernel after may start before this one waits, so that two are ahead, not one."""
    if RELEASES_FIRST:
        gdc_launch_dependents()
    gdc_wait()
    if not RELEASES_FIRST:
        gdc_launch_dependents()


@triton.jit
def start_early(weight, row_ids, first_k, K: tl.constexpr, LINES: tl.constexpr, RELEASES_FIRST: tl.constexpr):
    """Asks for LINES lines of each weight row while the kernel before ends, then waits for that end."""
    if LINES > 0:
        offsets = (first_k + tl.arange(0, LINES) * 64) % K
        prefetch(weight + row_ids[:, None].to(tl.int64) * K + offsets[None, :])
    wait_for_kernel_before(RELEASES_FIRST)


@triton.jit
def load_rows(weight, row_ids, ks, K: tl.constexpr, IS_EVEN: tl.constexpr):
    """[rows, ks] of weight [., K]; what lies beyond K is 0."""
    places = weight + row_ids[:, None].to(tl.int64) * K + ks[None, :]
    if IS_EVEN:
        return tl.load(places)
    return tl.load(places, mask=(ks < K)[None, :], other=0.0)


@triton.jit
def accumulate(
    x, weight, rows, row_ids, first_k, N: tl.constexpr, K: tl.constexpr, SPAN_K: tl.constexpr,
    SPLITS: tl.constexpr, IS_GATED: tl.constexpr, IS_TURNED: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """x[:, first_k : first_k + SPAN_K] @ weight[row_ids].T, and gated the same for rows N further on.

    IS_TURNED: weights are the left operand, so that tiles of 64 of them feed the matrix units from shared
    memory; otherwise x is, which allows tiles of 16.
    """
    # Reading a row beyond its end unmasked would read the next one, and beyond the tensor at its last row.
    is_even: tl.constexpr = SPLITS * SPAN_K == K
    lines = tl.arange(0, BLOCK_M)
    shape: tl.constexpr = (row_ids.shape[0], BLOCK_M) if IS_TURNED else (BLOCK_M, row_ids.shape[0])
    product = tl.zeros(shape, tl.float32)
    second = tl.zeros(shape, tl.float32)
    for start in range(0, SPAN_K, BLOCK_K):
        ks = first_k + start + tl.arange(0, BLOCK_K)
        is_value = (lines < rows)[:, None]
        if not is_even:
            is_value = is_value & (ks < K)[None, :]
        values = tl.load(x + lines[:, None] * K + ks[None, :], mask=is_value, other=0.0)
        tile = load_rows(weight, row_ids, ks, K, is_even)
        if IS_TURNED:
            product = tl.dot(tile, tl.trans(values), product, input_precision="ieee")
        else:
            product = tl.dot(values, tl.trans(tile), product, input_precision="ieee")
        if IS_GATED:
            tile = load_rows(weight, row_ids + N, ks, K, is_even)
            if IS_TURNED:
                second = tl.dot(tile, tl.trans(values), second, input_precision="ieee")
            else:
                second = tl.dot(values, tl.trans(tile), second, input_precision="ieee")
    if IS_TURNED:
        product, second = tl.trans(product), tl.trans(second)
    return product, second


@triton.jit
def norm_factors(squares, eps, tiles_before, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_T: tl.constexpr):
    """[BLOCK_M, 1]: 1 / root mean square of each row, from the sums that so many programs left."""
    tiles, lines = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_M)
    places = squares + tiles[:, None] * MOST_ROWS + lines[None, :]
    total = tl.sum(tl.load(places, mask=(tiles < tiles_before)[:, None], other=0.0), axis=0)
    return tl.rsqrt(total / K + eps)[:, None]


@triton.jit
def sum_of_splits(
    product, second, partials, counters, tile, split, SPLITS: tl.constexpr, IS_GATED: tl.constexpr
):  # fmt: skip
    """Whether this program came last for its tile, and then the sums of all, in their order."""
    rows: tl.constexpr = product.shape[0]
    columns: tl.constexpr = product.shape[1]
    cells = tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :]
    plane = tl.num_programs(0) * rows * columns
    places = partials + tile * rows * columns + cells
    tl.store(places + split * plane, product)
    if IS_GATED:
        tl.store(places + (SPLITS + split) * plane, second)
    # Every thread's store must have happened before the one thread counts this program in.
    tl.debug_barrier()
    is_last = tl.atomic_add(counters + tile, 1, sem="acq_rel") == SPLITS - 1
    if is_last:
        product = tl.zeros((rows, columns), tl.float32)
        second = tl.zeros((rows, columns), tl.float32)
        for part in tl.static_range(SPLITS):
            product += tl.load(places + part * plane, cache_modifier=".cg")
            if IS_GATED:
                second += tl.load(places + (SPLITS + part) * plane, cache_modifier=".cg")
        tl.store(counters + tile, 0)
    return is_last, product, second


@triton.jit
def finish(
    product, second, factors, offset, before, scale, squares, out, scaled, places, is_value, tile,
    HAS_NORM: tl.constexpr, HAS_BIAS: tl.constexpr, IS_GATED: tl.constexpr, IS_STREAM: tl.constexpr,
):  # fmt: skip
    """Norm's factor, bias, SiLU gate; or, for the stream, its residual and what the next norm needs."""
    if HAS_NORM:
        product = product * factors
        second = second * factors
    if HAS_BIAS:
        product += offset
    if IS_GATED:
        product = product * tl.sigmoid(product) * second
    if IS_STREAM:
        kept = tl.where(is_value, product + before, 0.0).to(out.dtype.element_ty)
        wide = kept.to(tl.float32)
        tl.store(scaled + places, (wide * scale).to(scaled.dtype.element_ty), mask=is_value)
        sums = squares + tile * MOST_ROWS + tl.arange(0, product.shape[0])
        tl.store(sums, tl.sum(wide * wide, axis=1))
        tl.store(out + places, kept, mask=is_value)
    else:
        tl.store(out + places, product.to(out.dtype.element_ty), mask=is_value)


@triton.jit(do_not_specialize=["rows", "tiles_before"])
def linear(
    x, weight, bias, squares, stream, out, scaled, next_norm, partials, counters, eps, rows, tiles_before,
    N: tl.constexpr, K: tl.constexpr, HAS_NORM: tl.constexpr, BLOCK_T: tl.constexpr, HAS_BIAS: tl.constexpr,
    IS_GATED: tl.constexpr, IS_STREAM: tl.constexpr, IS_TURNED: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLITS: tl.constexpr, LINES: tl.constexpr,
    RELEASES_FIRST: tl.constexpr, STARTS_EARLY: tl.constexpr,
):  # fmt: skip
    """out [rows, N]: norm's factor times x [rows, K] @ weight [N, K].T, plus bias; gated: weight [2 N, K].

    IS_STREAM: out is the residual stream; it is added to, and what the next norm needs is stored beside it.
    Grid [ceil(N / BLOCK_N), SPLITS]: K is divided among SPLITS programs, and the one that comes last adds all
    partials in their order, so that the sum does not depend on who was last.
    partials [2 SPLITS, tiles * BLOCK_N * BLOCK_M] float32; counters [tiles] int32, 0 before and after.
    """
    tile, split = tl.program_id(0), tl.program_id(1)
    span_k: tl.constexpr = ((K + SPLITS - 1) // SPLITS + BLOCK_K - 1) // BLOCK_K * BLOCK_K
    columns, lines = tile * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M)
    row_ids = columns % N
    # What the end needs is asked for before the products: its latency passes meanwhile.
    offset, scale, before, factors = 0.0, 0.0, 0.0, 1.0
    if HAS_BIAS:
        offset = tl.load(bias + row_ids).to(tl.float32)[None, :]
    if IS_STREAM:
        scale = tl.load(next_norm + row_ids).to(tl.float32)[None, :]
    if STARTS_EARLY:
        if IS_GATED and LINES > 0:
            second_ids = (row_ids + N)[:, None].to(tl.int64) * K
            prefetch(weight + second_ids + ((split * span_k + tl.arange(0, LINES) * 64) % K)[None, :])
        start_early(weight, row_ids, split * span_k, K, LINES, RELEASES_FIRST)
    places = lines[:, None] * N + columns[None, :]
    is_value = (lines < rows)[:, None] & (columns < N)[None, :]
    if IS_STREAM:
        before = tl.load(stream + places, mask=is_value, other=0.0).to(tl.float32)
    if HAS_NORM:
        factors = norm_factors(squares, eps, tiles_before, K, BLOCK_M, BLOCK_T)
    product, second = accumulate(
        x, weight, rows, row_ids, split * span_k, N, K, span_k, SPLITS, IS_GATED, IS_TURNED, BLOCK_M,
        BLOCK_K,
    )  # fmt: skip
    is_last = True
    if SPLITS > 1:
        is_last, product, second = sum_of_splits(
            product, second, partials, counters, tile, split, SPLITS, IS_GATED
        )
    if is_last:
        finish(
            product, second, factors, offset, before, scale, squares, out, scaled, places, is_value, tile,
            HAS_NORM, HAS_BIAS, IS_GATED, IS_STREAM,
        )  # fmt: skip
