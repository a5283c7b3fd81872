"""Attention over block tables: decode by work items (cascade), prefill by query tiles.

Constexprs (capitals) are the shapes of the model, of the tile and of the plan (see `plan.PlanLayout`).
Exponentials are powers of two: scores carry the factor log2(e).
"""

import triton
import triton.language as tl

from runtime.tiers.cuda.linear_kernels import prefetch, wait_for_kernel_before

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def embed(
    table, wavelengths, plan, norm, x, scaled, squares, rotations, ROWS: tl.constexpr, HIDDEN: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr, SQUARES_STRIDE: tl.constexpr,
):  # fmt: skip
    """x[row] = table[token] and what the first norm needs; rotations[row] = cos and sin of its position.

    rotations [rows, 2, head_dim / 2] float32; squares: row r's sum of squares at r * SQUARES_STRIDE.
    """
    row = tl.program_id(0)
    token = tl.load(plan + 2 + row).to(tl.int64)
    places = tl.arange(0, BLOCK_H)
    inside = places < HIDDEN
    values = tl.load(table + token * HIDDEN + places, mask=inside, other=0.0).to(x.dtype.element_ty)
    wide = values.to(tl.float32)
    scale = tl.load(norm + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(x + row * HIDDEN + places, values, mask=inside)
    tl.store(scaled + row * HIDDEN + places, (wide * scale).to(scaled.dtype.element_ty), mask=inside)
    tl.store(squares + row * SQUARES_STRIDE, tl.sum(wide * wide, axis=0))
    half: tl.constexpr = HEAD_DIM // 2
    dims = tl.arange(0, BLOCK_D // 2)
    is_dim = dims < half
    angles = tl.load(plan + 2 + ROWS + row).to(tl.float32) * tl.load(
        wavelengths + dims, mask=is_dim, other=0.0
    )
    tl.store(rotations + row * HEAD_DIM + dims, tl.cos(angles), mask=is_dim)
    tl.store(rotations + row * HEAD_DIM + half + dims, tl.sin(angles), mask=is_dim)


@triton.jit
def rotated_heads(
    qkv, rotations, head_norms, rows, heads, is_head, eps, WIDTH: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, HAS_NORMS: tl.constexpr,
):  # fmt: skip
    """Both halves, [M, BLOCK_D / 2] float32 each, of head `heads[m]` of row `rows[m]`, at its position.

    Normalised where the model does. Halves, because rotary positions turn one half against the other.
    """
    half: tl.constexpr = HEAD_DIM // 2
    dims = tl.arange(0, BLOCK_D // 2)[None, :]
    inside = is_head[:, None] & (dims < half)
    places = qkv + (rows * WIDTH + heads * HEAD_DIM)[:, None] + dims
    low = tl.load(places, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(places + half, mask=inside, other=0.0).to(tl.float32)
    if HAS_NORMS:
        squares = tl.sum(low * low, axis=1) + tl.sum(high * high, axis=1)
        factor = tl.rsqrt(squares / HEAD_DIM + eps)[:, None]
        norms = head_norms + (heads * HEAD_DIM)[:, None] + dims
        low = low * factor * tl.load(norms, mask=inside, other=0.0).to(tl.float32)
        high = high * factor * tl.load(norms + half, mask=inside, other=0.0).to(tl.float32)
    turns = rotations + (rows * HEAD_DIM)[:, None] + dims
    cosines = tl.load(turns, mask=inside, other=0.0)
    sines = tl.load(turns + half, mask=inside, other=0.0)
    return low * cosines - high * sines, high * cosines + low * sines


@triton.jit
def kv_places(base, table, positions, kv_head, block_tokens, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Where K of these positions begins; V is KV_HEADS * HEAD_DIM further."""
    blocks = tl.load(table + positions // block_tokens).to(tl.int64)
    slots = blocks * block_tokens + positions % block_tokens
    return base + slots * (2 * KV_HEADS * HEAD_DIM) + kv_head * HEAD_DIM


@triton.jit
def load_keys(
    base, table, start, last, kv_head, block_tokens, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Both halves of keys start .. start + BLOCK_S - 1, and their values; beyond `last` that one again.

    The caller hides those: the table may end there.
    """
    half: tl.constexpr = HEAD_DIM // 2
    dims, halves = tl.arange(0, BLOCK_D)[None, :], tl.arange(0, BLOCK_D // 2)[None, :]
    held = tl.minimum(start + tl.arange(0, BLOCK_S), last)
    places = kv_places(base, table, held, kv_head, block_tokens, KV_HEADS, HEAD_DIM)[:, None]
    low_keys = tl.load(places + halves, mask=halves < half, other=0.0)
    high_keys = tl.load(places + half + halves, mask=halves < half, other=0.0)
    values = tl.load(places + KV_HEADS * HEAD_DIM + dims, mask=dims < HEAD_DIM, other=0.0)
    return low_keys, high_keys, values


@triton.jit
def attend_block(
    low, high, best, weight, out, low_keys, high_keys, values, start, stop, limits, BLOCK_S: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """Goes on with a softmax over the keys that `load_keys` gave."""
    positions = start + tl.arange(0, BLOCK_S)
    scores = tl.dot(low, tl.trans(low_keys), input_precision="ieee")
    scores = tl.dot(high, tl.trans(high_keys), scores, input_precision="ieee")
    visible = (positions < stop)[None, :]
    if IS_CAUSAL:
        visible = visible & (positions[None, :] <= limits[:, None])
    scores = tl.where(visible, scores, float("-inf"))
    # Finite even where a row sees nothing yet: -inf minus -inf would be NaN.
    higher = tl.maximum(tl.maximum(best, tl.max(scores, axis=1)), -1e30)
    shares = tl.exp2(scores - higher[:, None])
    fading = tl.exp2(best - higher)
    weight = weight * fading + tl.sum(shares, axis=1)
    out = tl.dot(shares.to(values.dtype), values, out * fading[:, None], input_precision="ieee")
    return higher, weight, out


@triton.jit
def attend_keys(
    low, high, best, weight, out, base, table, first, stop, kv_head, block_tokens, limits,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """Goes on with a softmax over keys [first, stop); causal: row m sees positions up to limits[m].

    low, high: the halves of the queries, [M, BLOCK_D / 2], in the precision of the keys.
    """
    for start in range(first, stop, BLOCK_S):
        low_keys, high_keys, values = load_keys(
            base, table, start, stop - 1, kv_head, block_tokens, KV_HEADS, HEAD_DIM, BLOCK_D, BLOCK_S
        )
        best, weight, out = attend_block(
            low, high, best, weight, out, low_keys, high_keys, values, start, stop, limits, BLOCK_S, IS_CAUSAL
        )
    return best, weight, out


@triton.jit
def write_newest(
    qkv, rotations, head_norms, base, table, row, position, kv_head, block_tokens, eps, HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, HAS_NORMS: tl.constexpr,
):  # fmt: skip
    """Stores K and V of a row's own token in its slot; returns both halves of K and V, as they are stored."""
    width: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    half: tl.constexpr = HEAD_DIM // 2
    dims, halves = tl.arange(0, BLOCK_D)[None, :], tl.arange(0, BLOCK_D // 2)[None, :]
    one = tl.zeros((1,), tl.int32)
    low, high = rotated_heads(
        qkv, rotations, head_norms, one + row, one + HEADS + kv_head, one == 0, eps, width, HEAD_DIM, BLOCK_D,
        HAS_NORMS,
    )  # fmt: skip
    low, high = low.to(qkv.dtype.element_ty), high.to(qkv.dtype.element_ty)
    value_at = qkv + row * width + (HEADS + KV_HEADS + kv_head) * HEAD_DIM + dims
    value = tl.load(value_at, mask=dims < HEAD_DIM, other=0.0)
    places = kv_places(base, table, one + position, kv_head, block_tokens, KV_HEADS, HEAD_DIM)[:, None]
    tl.store(places + halves, low, mask=halves < half)
    tl.store(places + half + halves, high, mask=halves < half)
    tl.store(places + KV_HEADS * HEAD_DIM + dims, value, mask=dims < HEAD_DIM)
    return low, high, value


@triton.jit
def prefetch_share(weight, share, shares, LINES: tl.constexpr):
    """Asks L2 for this program's share of the first LINES 128-byte lines of a weight."""
    values_per_line: tl.constexpr = 1024 // weight.dtype.element_ty.primitive_bitwidth
    for start in range(share * 256, LINES, shares * 256):
        prefetch(weight + (start + tl.arange(0, 256)) * values_per_line)


@triton.jit
def prefetch_keys(
    base, table, first, stop, kv_head, block_tokens, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Asks L2 for the first keys and values that the program will read."""
    held = tl.minimum(first + tl.arange(0, BLOCK_S), tl.maximum(stop - 1, 0))
    keys = kv_places(base, table, held, kv_head, block_tokens, KV_HEADS, HEAD_DIM)[:, None]
    keys += tl.arange(0, BLOCK_D // 32)[None, :] * 32
    prefetch(keys)
    prefetch(keys + KV_HEADS * HEAD_DIM)


@triton.jit
def begin_softmax(
    low, high, qkv, rotations, head_norms, base, table, row, position, kv_head, block_tokens, eps, has_newest,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    HAS_NORMS: tl.constexpr,
):  # fmt: skip
    """Nothing seen yet; or, for a row's last item, its newest token, which is stored too."""
    best = tl.full((low.shape[0],), float("-inf"), tl.float32)
    weight = tl.zeros((low.shape[0],), tl.float32)
    out = tl.zeros((low.shape[0], BLOCK_D), tl.float32)
    if has_newest == 1:
        low_key, high_key, value = write_newest(
            qkv, rotations, head_norms, base, table, row, position, kv_head, block_tokens, eps, HEADS,
            KV_HEADS, HEAD_DIM, BLOCK_D, HAS_NORMS,
        )  # fmt: skip
        best = tl.sum(low.to(tl.float32) * low_key.to(tl.float32), axis=1)
        best += tl.sum(high.to(tl.float32) * high_key.to(tl.float32), axis=1)
        weight = weight + 1.0
        out = out + value.to(tl.float32)
    return best, weight, out


@triton.jit
def scaled_queries(
    qkv, rotations, head_norms, rows, kv_head, is_line, eps, scale, HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, HAS_NORMS: tl.constexpr,
):  # fmt: skip
    """Halves of the queries of one KV group, rows after rows, in the precision of the keys."""
    group: tl.constexpr = HEADS // KV_HEADS
    width: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    heads = kv_head * group + tl.arange(0, rows.shape[0]) % group
    low, high = rotated_heads(
        qkv, rotations, head_norms, rows, heads, is_line, eps, width, HEAD_DIM, BLOCK_D, HAS_NORMS
    )
    factor = scale * LOG2_E
    return (low * factor).to(qkv.dtype.element_ty), (high * factor).to(qkv.dtype.element_ty)


@triton.jit
def keep_partial(
    best, weight, out, partial_out, partial_lse, place, is_line, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    """The item's outputs and log-sum-exps, for the merge."""
    places = place + tl.arange(0, best.shape[0])
    dims = tl.arange(0, BLOCK_D)[None, :]
    tl.store(partial_lse + places, best + tl.log2(weight), mask=is_line)
    inside = is_line[:, None] & (dims < HEAD_DIM)
    tl.store(partial_out + places[:, None] * HEAD_DIM + dims, out / weight[:, None], mask=inside)


@triton.jit
def attend_item(
    low_keys, high_keys, values, qkv, rotations, head_norms, base, table, rows, is_line, first, stop,
    first_row, position, has_newest, kv_head, block_tokens, eps, scale, HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
    HAS_NORMS: tl.constexpr, KEYS_FIRST: tl.constexpr,
):  # fmt: skip
    """Softmax of an item's queries over its keys; KEYS_FIRST: the first of them are given."""
    low, high = scaled_queries(
        qkv, rotations, head_norms, rows, kv_head, is_line, eps, scale, HEADS, KV_HEADS, HEAD_DIM, BLOCK_D,
        HAS_NORMS,
    )  # fmt: skip
    best, weight, out = begin_softmax(
        low, high, qkv, rotations, head_norms, base, table, first_row, position, kv_head, block_tokens, eps,
        has_newest, HEADS, KV_HEADS, HEAD_DIM, BLOCK_D, HAS_NORMS,
    )  # fmt: skip
    if KEYS_FIRST:
        if first < stop:
            best, weight, out = attend_block(
                low, high, best, weight, out, low_keys, high_keys, values, first, stop, rows, BLOCK_S, False
            )
        first += BLOCK_S
    return attend_keys(
        low, high, best, weight, out, base, table, first, stop, kv_head, block_tokens, rows, KV_HEADS,
        HEAD_DIM, BLOCK_D, BLOCK_S, False,
    )  # fmt: skip


@triton.jit(do_not_specialize=["layer"])
def attend_items(
    qkv, rotations, head_norms, bases, plan, partial_out, partial_lse, ahead, layer, eps, scale,
    ROWS: tl.constexpr, TABLES_AT: tl.constexpr, TABLE_BLOCKS: tl.constexpr, ITEMS_AT: tl.constexpr,
    ROWS_PER_ITEM: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr, HAS_NORMS: tl.constexpr,
    AHEAD_LINES: tl.constexpr, RELEASES_FIRST: tl.constexpr, KEYS_FIRST: tl.constexpr,
    STARTS_EARLY: tl.constexpr,
):  # fmt: skip
    """Each work item: queries of its rows over its keys, one KV head; a row's last item writes its KV.

    The newest token's key is taken from qkv, not from its slot, so no program reads what another one writes.
    Grid [items at most, KV_HEADS]; partial_out [items, KV_HEADS, BLOCK_M, head_dim] float32. Programs without
    an item ask L2 for the weight `ahead`: attention leaves the memory idle, the products after it do not.
    """
    item, kv_head = tl.program_id(0), tl.program_id(1)
    items = tl.load(plan)
    if item >= items:
        if STARTS_EARLY:
            spares = (tl.num_programs(0) - items) * KV_HEADS
            prefetch_share(ahead, (item - items) * KV_HEADS + kv_head, spares, AHEAD_LINES)
        return
    line_rows = tl.arange(0, BLOCK_M) // (HEADS // KV_HEADS)
    # In steps of 16 bytes from an argument: a plain address would be read two bytes at a time.
    base = qkv + tl.load(bases + layer) * (128 // qkv.dtype.element_ty.primitive_bitwidth)
    block_tokens = tl.load(plan + 1)
    entry = plan + ITEMS_AT + item * (4 + ROWS_PER_ITEM)
    first_row, first, has_newest = tl.load(entry + 4), tl.load(entry + 1), tl.load(entry + 3)
    table = plan + TABLES_AT + first_row * TABLE_BLOCKS
    position = tl.load(plan + 2 + ROWS + first_row)
    stop = tl.minimum(tl.load(entry + 2), position)
    is_line = line_rows < tl.load(entry)
    rows = tl.load(entry + 4 + line_rows, mask=is_line, other=0)
    low_keys, high_keys, values = 0, 0, 0
    if KEYS_FIRST:
        low_keys, high_keys, values = load_keys(
            base, table, first, tl.maximum(stop - 1, 0), kv_head, block_tokens, KV_HEADS, HEAD_DIM, BLOCK_D,
            BLOCK_S,
        )  # fmt: skip
    if STARTS_EARLY:
        # Plan and old keys are older than this step: only qkv has to be waited for.
        prefetch_keys(base, table, first, stop, kv_head, block_tokens, KV_HEADS, HEAD_DIM, BLOCK_D, BLOCK_S)
        wait_for_kernel_before(RELEASES_FIRST)
    best, weight, out = attend_item(
        low_keys, high_keys, values, qkv, rotations, head_norms, base, table, rows, is_line, first, stop,
        first_row, position, has_newest, kv_head, block_tokens, eps, scale, HEADS, KV_HEADS, HEAD_DIM,
        BLOCK_D, BLOCK_S, HAS_NORMS, KEYS_FIRST,
    )  # fmt: skip
    place = (item * KV_HEADS + kv_head) * BLOCK_M
    keep_partial(best, weight, out, partial_out, partial_lse, place, is_line, HEAD_DIM, BLOCK_D)


@triton.jit
def merge_items(
    plan, partial_out, partial_lse, attended, COUNTS_AT: tl.constexpr, PARTS_AT: tl.constexpr,
    PARTS: tl.constexpr, ROWS_PER_ITEM: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_P: tl.constexpr,
    RELEASES_FIRST: tl.constexpr, STARTS_EARLY: tl.constexpr,
):  # fmt: skip
    """attended [rows, HEADS * head_dim]: partials weighed by their log-sum-exps. Grid [rows, HEADS]."""
    row, head = tl.program_id(0), tl.program_id(1)
    group: tl.constexpr = HEADS // KV_HEADS
    dims = tl.arange(0, BLOCK_D)
    count = tl.load(plan + COUNTS_AT + row)
    numbers = tl.arange(0, BLOCK_P)
    entries = tl.load(plan + PARTS_AT + row * PARTS + numbers, mask=numbers < count, other=0)
    if STARTS_EARLY:
        wait_for_kernel_before(RELEASES_FIRST)
    best = tl.full((1,), -1e30, tl.float32)
    weight = tl.zeros((1,), tl.float32)
    out = tl.zeros((BLOCK_D,), tl.float32)
    for start in range(0, count, BLOCK_P):
        is_part = start + numbers < count
        lines = entries % ROWS_PER_ITEM * group + head % group
        places = (entries // ROWS_PER_ITEM * KV_HEADS + head // group) * BLOCK_M + lines
        logs = tl.load(partial_lse + places, mask=is_part, other=float("-inf"))
        inside = is_part[:, None] & (dims < HEAD_DIM)[None, :]
        values = tl.load(partial_out + places[:, None] * HEAD_DIM + dims[None, :], mask=inside, other=0.0)
        following = start + BLOCK_P + numbers
        entries = tl.load(plan + PARTS_AT + row * PARTS + following, mask=following < count, other=0)
        higher = tl.maximum(best, tl.max(logs, axis=0))
        shares = tl.exp2(logs - higher)
        fading = tl.exp2(best - higher)
        weight = weight * fading + tl.sum(shares, axis=0)
        out = out * fading + tl.sum(values * shares[:, None], axis=0)
        best = higher
    merged = tl.where(count > 0, out / tl.maximum(weight, 1e-30), 0.0)
    place = attended + (row * HEADS + head) * HEAD_DIM + dims
    tl.store(place, merged.to(attended.dtype.element_ty), mask=dims < HEAD_DIM)


@triton.jit(do_not_specialize=["table_blocks", "block_tokens"])
def attend_tiles(
    q, kv_rows, tiles, tables, out, q_stride, scale, block_tokens, table_blocks, HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Causal attention of a ragged batch whose KV is in place. Grid [tiles, KV_HEADS].

    q [T, HEADS, head_dim] with rows q_stride apart; tiles [., 4] int32: first row, rows, position of the
    first row, block table. out [T, HEADS * head_dim].
    """
    tile, kv_head = tiles + tl.program_id(0) * 4, tl.program_id(1)
    first_row, count, position = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)
    group: tl.constexpr = HEADS // KV_HEADS
    lines, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    steps = lines // group
    heads = kv_head * group + lines % group
    half: tl.constexpr = HEAD_DIM // 2
    halves = tl.arange(0, BLOCK_D // 2)[None, :]
    q_at = q + (first_row + steps)[:, None] * q_stride + heads[:, None] * HEAD_DIM + halves
    in_half = (steps < count)[:, None] & (halves < half)
    low = tl.load(q_at, mask=in_half, other=0.0).to(tl.float32) * (scale * LOG2_E)
    high = tl.load(q_at + half, mask=in_half, other=0.0).to(tl.float32) * (scale * LOG2_E)
    _, weight, total = attend_keys(
        low.to(q.dtype.element_ty),
        high.to(q.dtype.element_ty),
        tl.full((BLOCK_M,), float("-inf"), tl.float32),
        tl.zeros((BLOCK_M,), tl.float32),
        tl.zeros((BLOCK_M, BLOCK_D), tl.float32),
        kv_rows, tables + tl.load(tile + 3) * table_blocks, 0, position + count, kv_head, block_tokens,
        position + steps, KV_HEADS, HEAD_DIM, BLOCK_D, BLOCK_S, True,
    )  # fmt: skip
    inside = (steps < count)[:, None] & (dims < HEAD_DIM)[None, :]
    out_at = out + ((first_row + steps) * HEADS + heads)[:, None] * HEAD_DIM + dims[None, :]
    tl.store(out_at, (total / weight[:, None]).to(out.dtype.element_ty), mask=inside)
