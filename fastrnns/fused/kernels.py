"""The persistent LSTM in Triton: one kernel walks all steps forward, one walks them back.

A program owns BT batch rows and HB hidden units. Its slice of W_hh (4 * HB rows) is read once and stays on the chip;
its cell state stays in registers. What the programs of one batch tile must tell each other at every step is written
to a slot in device memory that carries its own arrival mark, so a reader polls the data itself: there is no counter,
no fence and no barrier, and a word is used only once it has been seen to be new.

* forward: a slot per step holds h as 32-bit words, two halves a word; all ones (a NaN that no rounding produces)
  means "not written yet".
* backward: each program multiplies its own gate gradients by its rows of W_hh, and the owner of a hidden unit adds the
  partial sums in a fixed order. Two slots take turns; the lowest mantissa bit of each fp32 word is the turn's mark.
  A slot is written again only after its reader has answered, because every answer depends on all that was read.

Operands of the recurrent product are 16 bits wide (`OP`). PARTS=2 splits each into a high and a low half and keeps the
three leading products, which is fp32-accurate. SCALED moves the rows of W_hh, and the gate gradients, near one by powers
of two, so that fp16 never leaves its range.

`PHASE` is 0 on a GPU. Programs that run one after another (Triton's interpreter) cannot wait for each other: there
phase 1 ends before the first wait and phase 2 begins with it, one step a launch.
"""
# ruff: noqa: ANN001, ANN201, ANN202, N803
# mypy: ignore-errors
# The language is Triton's: arguments carry no Python types, compile-time ones are in capitals.

from __future__ import annotations

import triton
import triton.language as tl

# 2 ** 11: an fp16 mantissa. The low half of a split number is stored times this, and its products divided by it.
LOW = tl.constexpr(2048.0)


@triton.jit
def _exp(x, EXACT: tl.constexpr):
    """E ** x for x <= 80; EXACT adds what the product with log2(e) rounds away, which tl.exp leaves out."""
    if EXACT:
        n = x * 1.4426950408889634
        rest = tl.fma(x, 1.4426950408889634, -n) + x * 1.925963033500e-8  # log2(e) less its fp32 value
        y = tl.exp2(n)
        y = tl.fma(y, rest * 0.6931471805599453, y)
    else:
        y = tl.exp(x)
    return y


@triton.jit
def _ratio(a, b, EXACT: tl.constexpr):
    """A / b; EXACT mends the quick quotient by one Newton step."""
    if EXACT:
        inverse = 1.0 / b
        y = a * inverse
        y = tl.fma(tl.fma(-y, b, a), inverse, y)
    else:
        y = a / b
    return y


@triton.jit
def _sigmoid(x, EXACT: tl.constexpr):
    if EXACT:  # the Newton step knows no infinity; sigmoid(-80) is 2e-35
        x = tl.maximum(x, -80.0, propagate_nan=tl.PropagateNan.ALL)
    e = 1.0 + _exp(-x, EXACT)
    return _ratio(tl.full(e.shape, 1.0, tl.float32), e, EXACT)


@triton.jit
def _tanh(x, EXACT: tl.constexpr):
    twice = -2.0 * tl.abs(x)
    if EXACT:
        twice = tl.maximum(twice, -80.0, propagate_nan=tl.PropagateNan.ALL)
    e = _exp(twice, EXACT)
    y = _ratio(1.0 - e, 1.0 + e, EXACT)
    y = tl.where(x < 0.0, -y, y)
    if EXACT:  # near zero the quotient cancels: the series to x**11 is good to 1e-8 below 0.35
        s = x * x
        p = s * (-1382.0 / 155925.0) + 62.0 / 2835.0
        p = s * p - 17.0 / 315.0
        p = s * p + 2.0 / 15.0
        p = s * p - 1.0 / 3.0
        y = tl.where(s < 0.1225, x + x * s * p, y)
    return y


@triton.jit
def power_of_two(x):
    """The power of two at or below x >= 0, and never zero."""
    bits = x.to(tl.int32, bitcast=True) & 0x7F800000
    return tl.maximum(bits, 0x0D800000).to(tl.float32, bitcast=True)  # not below 2 ** -100


@triton.jit
def _bits16(x, OP: tl.constexpr):
    """X rounded to OP, as the bits of the low half of a word; the mark 0xFFFF becomes the usual NaN."""
    b = x.to(OP).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    return tl.where(b == 0xFFFF, 0x7FFF, b)


@triton.jit
def _low_operand(w, OP: tl.constexpr):
    return (w & 0xFFFF).to(tl.int16).to(OP, bitcast=True)


@triton.jit
def _high_operand(w, OP: tl.constexpr):
    return (w >> 16).to(tl.int16).to(OP, bitcast=True)


@triton.jit
def _unit_of_word(word, half, PARTS: tl.constexpr, HB: tl.constexpr):
    """The hidden unit that the low (0) or high (1) half of a word tells of."""
    if PARTS == 1:
        unit = (word // (HB // 2)) * HB + word % (HB // 2) + half * (HB // 2)
    else:
        unit = word
    return unit


@triton.jit
def _put_words(base, h, KW, jt, OP: tl.constexpr, PARTS: tl.constexpr, BT: tl.constexpr, HB: tl.constexpr):
    """Tell the others of h (BT, HB): two units a word (i and i + HB/2), or one unit's high and low part."""
    r = tl.arange(0, BT)
    if PARTS == 1:
        left, right = tl.split(tl.permute(tl.reshape(_bits16(h, OP), (BT, 2, HB // 2)), (0, 2, 1)))
        k = jt * (HB // 2) + tl.arange(0, HB // 2)
        tl.store(base + r[:, None] * KW + k[None, :], left | (right << 16), cache_modifier=".cg")
    else:
        low = (h - h.to(OP).to(tl.float32)) * LOW
        k = jt * HB + tl.arange(0, HB)
        words = _bits16(h, OP) | (_bits16(low, OP) << 16)
        tl.store(base + r[:, None] * KW + k[None, :], words, cache_modifier=".cg")


@triton.jit
def _any(x):
    return tl.max(x.to(tl.int32)) != 0


@triton.jit
def _read_words(source, kk, KW: tl.constexpr, BK: tl.constexpr, NK: tl.constexpr):
    words = ()
    for c in tl.static_range(NK):
        if NK * BK == KW:
            words = words + (tl.load(source + c * BK, volatile=True),)
        else:
            words = words + (
                tl.load(source + c * BK, mask=(c * BK + kk < KW)[None, :], other=0, volatile=True),
            )
    return words


@triton.jit
def _unwritten(words, NK: tl.constexpr):
    new = words[0] == -1
    for c in tl.static_range(1, NK):
        new = new | (words[c] == -1)
    return _any(new)


@triton.jit
def _read_partials(source, maker, mark, NT: tl.constexpr, BP: tl.constexpr, NP: tl.constexpr):
    if NP * BP == NT:
        got = tl.load(source, volatile=True)
    else:
        got = tl.load(source, mask=(maker < NT)[:, None], other=mark, volatile=True)
    return got


@triton.jit
def _bias(b_ih, b_hh, at, ok):
    left = tl.load(b_ih + at, mask=ok, other=0.0).to(tl.float32)
    return left + tl.load(b_hh + at, mask=ok, other=0.0).to(tl.float32)


@triton.jit
def _product(a, w, acc, SWAP: tl.constexpr, PHASE: tl.constexpr):
    """Acc + a (BT, K) times w (N, K) transposed, with acc kept as (N, BT) where SWAP."""
    if PHASE != 0:  # the interpreter cannot multiply bf16
        a = a.to(tl.float32)
        w = w.to(tl.float32)
    if SWAP:
        acc = tl.dot(w, tl.trans(a), acc)
    else:
        acc = tl.dot(a, tl.trans(w), acc)
    return acc


@triton.jit(do_not_specialize=["t0", "t1", "tile0"])
def lstm_forward(
    gx,
    w_hh,
    b_ih,
    b_hh,
    h_in,
    c_in,
    h_out,
    c_out,
    y,
    h_prev,
    cells,
    exch,
    lengths,
    offsets,
    t0,
    t1,
    tile0,
    B: tl.constexpr,
    H: tl.constexpr,
    KW: tl.constexpr,
    NT: tl.constexpr,
    NBT: tl.constexpr,
    BT: tl.constexpr,
    HB: tl.constexpr,
    BK: tl.constexpr,
    NK: tl.constexpr,
    OP: tl.constexpr,
    PARTS: tl.constexpr,
    SCALED: tl.constexpr,
    SWAP: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_H: tl.constexpr,
    HAS_C: tl.constexpr,
    TRAIN: tl.constexpr,
    VARLEN: tl.constexpr,
    PHASE: tl.constexpr,
    SPINS: tl.constexpr,
):
    """Steps t0 <= t < t1 of one layer. `gx` holds x W_ih' and is overwritten by the gates where TRAIN."""
    pid = tl.program_id(0)
    tile = tile0 + pid // NT
    jt = pid % NT
    G: tl.constexpr = 4 * HB
    rows = tile * BT + tl.arange(0, BT)
    units = jt * HB + tl.arange(0, HB)
    row_ok = rows < B
    ok = row_ok[:, None] & (units < H)[None, :]
    state = rows[:, None] * H + units[None, :]  # (BT, HB) in a (B, H) array

    # W_hh's rows in an order that leaves the four gates of a unit in one thread: 16 columns are (gate // 2, unit, gate % 2).
    n = tl.arange(0, G)
    gate = ((n % 16) // 8) * 2 + n % 2
    unit = jt * HB + (n // 16) * 4 + (n % 8) // 2
    w_row = w_hh + (gate * H + unit).to(tl.int64)[:, None] * H
    unit_ok = (unit < H)[:, None]
    kk = tl.arange(0, BK)
    w_scale = tl.full((G,), 1.0, tl.float32)
    if SCALED:
        largest = tl.zeros((G,), tl.float32)
        for c in tl.static_range(NK):
            for half in tl.static_range(3 - PARTS):
                k = _unit_of_word(c * BK + kk, half, PARTS, HB)
                w = tl.load(w_row + k[None, :], mask=unit_ok & (k < H)[None, :], other=0.0)
                largest = tl.maximum(largest, tl.max(tl.abs(w.to(tl.float32)), 1))
        w_scale = power_of_two(largest)
    first = ()  # PARTS=1: the columns that meet the low and the high half of a word; PARTS=2: high and low parts
    second = ()
    for c in tl.static_range(NK):
        if PARTS == 1:
            k = _unit_of_word(c * BK + kk, 0, PARTS, HB)
            left = tl.load(w_row + k[None, :], mask=unit_ok & (k < H)[None, :], other=0.0)
            k = _unit_of_word(c * BK + kk, 1, PARTS, HB)
            right = tl.load(w_row + k[None, :], mask=unit_ok & (k < H)[None, :], other=0.0)
            if SCALED:
                left = left / w_scale[:, None]
                right = right / w_scale[:, None]
            first = first + (left.to(OP),)
            second = second + (right.to(OP),)
        else:
            k = c * BK + kk
            w = tl.load(w_row + k[None, :], mask=unit_ok & (k < H)[None, :], other=0.0) / w_scale[:, None]
            high = w.to(OP)
            first = first + (high,)
            second = second + (((w - high.to(tl.float32)) * LOW).to(OP),)

    bi = tl.zeros((HB,), tl.float32)
    bf = bi
    bg = bi
    bo = bi
    if HAS_BIAS:
        bi = _bias(b_ih, b_hh, units, units < H)
        bf = _bias(b_ih, b_hh, H + units, units < H)
        bg = _bias(b_ih, b_hh, 2 * H + units, units < H)
        bo = _bias(b_ih, b_hh, 3 * H + units, units < H)

    h = tl.zeros((BT, HB), tl.float32)
    c_state = tl.zeros((BT, HB), tl.float32)
    if HAS_H:
        h = tl.load(h_in + state, mask=ok, other=0.0).to(tl.float32)
    if HAS_C:
        c_state = tl.load(c_in + state, mask=ok, other=0.0).to(tl.float32)
    if PHASE != 2:
        _put_words(exch + tile.to(tl.int64) * BT * KW, h, KW, jt, OP, PARTS, BT, HB)
    if TRAIN and not VARLEN:
        if t0 == 0:  # h_prev is the array that y is the tail of
            tl.store(h_prev + state, h, mask=ok)

    if VARLEN:
        length = tl.load(lengths + rows, mask=row_ok, other=0)
        end = tl.minimum(t1, tl.load(lengths + tile * BT))  # rows are sorted: the tile's first is its longest
    else:
        end = t1
    begin = t0
    if PHASE == 1:
        end = t0

    r = tl.arange(0, BT)
    for t in range(begin, end):
        if VARLEN:
            row0 = tl.load(offsets + t)
            live = ok & (t < length)[:, None]
        else:
            row0 = tl.cast(t, tl.int64) * B
            live = ok
        at = (row0 + rows)[:, None] * (4 * H) + units[None, :]
        xi = tl.load(gx + at, mask=live, other=0.0)
        xf = tl.load(gx + at + H, mask=live, other=0.0)
        xg = tl.load(gx + at + 2 * H, mask=live, other=0.0)
        xo = tl.load(gx + at + 3 * H, mask=live, other=0.0)

        # Wait for h: read the whole slot until no word carries the mark.
        source = exch + ((t - t0) * NBT + tile).to(tl.int64) * BT * KW + r[:, None] * KW + kk[None, :]
        words = _read_words(source, kk, KW, BK, NK)
        spins = 0
        while _unwritten(words, NK):
            words = _read_words(source, kk, KW, BK, NK)
            if SPINS > 0:
                spins += 1
                tl.device_assert(spins < SPINS, "fused LSTM: a step's hidden state never arrived")

        if SWAP:
            acc = tl.zeros((G, BT), tl.float32)
        else:
            acc = tl.zeros((BT, G), tl.float32)
        acc2 = acc
        acc3 = acc
        for c in tl.static_range(NK):
            a = _low_operand(words[c], OP)
            b = _high_operand(words[c], OP)
            acc = _product(a, first[c], acc, SWAP, PHASE)
            if PARTS == 1:
                acc2 = _product(b, second[c], acc2, SWAP, PHASE)
            else:
                acc2 = _product(a, second[c], acc2, SWAP, PHASE)
                acc3 = _product(b, first[c], acc3, SWAP, PHASE)
        if PARTS == 2:
            acc2 = (acc2 + acc3) * (1.0 / LOW)
        if SWAP:
            acc = tl.trans(acc)
            acc2 = tl.trans(acc2)
        if SCALED:
            acc = acc * w_scale[None, :]
            acc2 = acc2 * w_scale[None, :]
        # Added only after the reshape: a plain sum of two products is compiled into one twice as long chain.
        acc = tl.reshape(acc, (BT, HB // 4, 2, 4, 2)) + tl.reshape(acc2, (BT, HB // 4, 2, 4, 2))
        lower, upper = tl.split(tl.permute(acc, (0, 1, 3, 4, 2)))
        ri, rf = tl.split(lower)
        rg, ro = tl.split(upper)
        i = _sigmoid(tl.reshape(ri, (BT, HB)) + (xi.to(tl.float32) + bi[None, :]), PARTS == 2)
        f = _sigmoid(tl.reshape(rf, (BT, HB)) + (xf.to(tl.float32) + bf[None, :]), PARTS == 2)
        g = _tanh(tl.reshape(rg, (BT, HB)) + (xg.to(tl.float32) + bg[None, :]), PARTS == 2)
        o = _sigmoid(tl.reshape(ro, (BT, HB)) + (xo.to(tl.float32) + bo[None, :]), PARTS == 2)
        c_new = f * c_state + i * g
        h_new = o * _tanh(c_new, PARTS == 2)
        if VARLEN:
            if TRAIN:
                tl.store(h_prev + (row0 + rows)[:, None] * H + units[None, :], h, mask=live)
            c_new = tl.where(live, c_new, c_state)
            h_new = tl.where(live, h_new, h)
        else:  # padding computes zeros anyway; keep it so whatever the weights hold
            h_new = tl.where(ok, h_new, 0.0)
        h = h_new
        c_state = c_new
        if t + 1 < end:
            _put_words(
                exch + ((t + 1 - t0) * NBT + tile).to(tl.int64) * BT * KW, h, KW, jt, OP, PARTS, BT, HB
            )
        here = (row0 + rows)[:, None] * H + units[None, :]
        tl.store(y + here, h, mask=live)
        if TRAIN:
            tl.store(gx + at, i, mask=live)
            tl.store(gx + at + H, f, mask=live)
            tl.store(gx + at + 2 * H, g, mask=live)
            tl.store(gx + at + 3 * H, o, mask=live)
            tl.store(cells + here, c_state, mask=live)
    if PHASE != 1:
        tl.store(h_out + state, h, mask=ok)
        tl.store(c_out + state, c_state, mask=ok)


@triton.jit
def _put_partial(
    p,
    scale,
    base,
    col,
    me,
    mark,
    NT: tl.constexpr,
    BT: tl.constexpr,
    HB: tl.constexpr,
    ALL: tl.constexpr,
    SCALED: tl.constexpr,
    SWAP: tl.constexpr,
):
    """Write partial sums for hidden units `col` to their owners' inboxes, marked."""
    if SWAP:
        p = tl.trans(p)
    if SCALED:
        p = p * scale[:, None]
    bits = (p.to(tl.int32, bitcast=True) & -2) | mark
    at = (((col // HB) * NT + me) * (BT * HB) + col % HB)[None, :] + tl.arange(0, BT)[:, None] * HB
    if ALL:
        tl.store(base + at, bits, cache_modifier=".cg")
    else:
        tl.store(base + at, bits, mask=(col < NT * HB)[None, :], cache_modifier=".cg")


@triton.jit
def _factors(raw_i, raw_f, raw_g, raw_o, c_t, c_prev, EXACT: tl.constexpr):
    """What a step's gate gradients are per unit of dc (i, f, g, then the forget gate) and of dh (o, and dc itself)."""
    i = raw_i.to(tl.float32)
    f = raw_f.to(tl.float32)
    g = raw_g.to(tl.float32)
    o = raw_o.to(tl.float32)
    th = _tanh(c_t, EXACT)
    return (
        g * (i * (1.0 - i)),
        c_prev * (f * (1.0 - f)),
        i * (1.0 - g * g),
        f,
        th * (o * (1.0 - o)),
        o * (1.0 - th * th),
    )


@triton.jit
def _saved(
    gates,
    cells,
    c_in,
    dy,
    offsets,
    rows,
    units,
    ok,
    length,
    t,
    first,
    B: tl.constexpr,
    H: tl.constexpr,
    HAS_C: tl.constexpr,
    HAS_DY: tl.constexpr,
    VARLEN: tl.constexpr,
):
    """What the forward pass left for step t, as it was stored, and the gradient of its output; nothing below `first`."""
    wanted = t >= first
    if VARLEN:
        row0 = tl.load(offsets + t, mask=wanted, other=0)
        before = tl.load(offsets + t - 1, mask=wanted & (t > 0), other=0)
        live = ok & (t < length)[:, None] & wanted
        ahead = ok & (t - 1 < length)[:, None] & (wanted & (t > 0))
    else:
        row0 = t.to(tl.int64) * B
        before = row0 - B
        live = ok & wanted
        ahead = ok & (wanted & (t > 0))
    at = (row0 + rows)[:, None] * (4 * H) + units[None, :]
    i = tl.load(gates + at, mask=live, other=0.0)
    f = tl.load(gates + at + H, mask=live, other=0.0)
    g = tl.load(gates + at + 2 * H, mask=live, other=0.0)
    o = tl.load(gates + at + 3 * H, mask=live, other=0.0)
    c_prev = tl.load(cells + (before + rows)[:, None] * H + units[None, :], mask=ahead, other=0.0)
    if HAS_C:
        c_prev += tl.load(c_in + rows[:, None] * H + units[None, :], mask=live & (t == 0), other=0.0).to(
            tl.float32
        )
    grad = i
    if HAS_DY:
        grad = tl.load(dy + (row0 + rows)[:, None] * H + units[None, :], mask=live, other=0.0)
    return i, f, g, o, c_prev, grad


@triton.jit(do_not_specialize=["t0", "t1", "steps", "tile0"])
def lstm_backward(
    gates,
    cells,
    c_in,
    dy,
    dh_in,
    dc_in,
    dh_out,
    dc_out,
    w_hh,
    dgates,
    db,
    inboxes,
    lengths,
    offsets,
    t0,
    t1,
    steps,
    tile0,
    B: tl.constexpr,
    H: tl.constexpr,
    NT: tl.constexpr,
    NBT: tl.constexpr,
    BT: tl.constexpr,
    HB: tl.constexpr,
    BN: tl.constexpr,
    NN: tl.constexpr,
    BP: tl.constexpr,
    NP: tl.constexpr,
    VEC: tl.constexpr,
    OP: tl.constexpr,
    PARTS: tl.constexpr,
    SCALED: tl.constexpr,
    SWAP: tl.constexpr,
    HAS_C: tl.constexpr,
    HAS_DY: tl.constexpr,
    HAS_DH: tl.constexpr,
    HAS_DC: tl.constexpr,
    WANT_DH: tl.constexpr,
    WANT_DC: tl.constexpr,
    VARLEN: tl.constexpr,
    PHASE: tl.constexpr,
    SPINS: tl.constexpr,
):
    """Steps t1 > t >= t0 of one layer, last first; `steps` is the whole sequence's length."""
    pid = tl.program_id(0)
    tile = tile0 + pid // NT
    jt = pid % NT
    rows = tile * BT + tl.arange(0, BT)
    units = jt * HB + tl.arange(0, HB)
    row_ok = rows < B
    unit_ok = units < H
    ok = row_ok[:, None] & unit_ok[None, :]
    state = rows[:, None] * H + units[None, :]

    # The program's own rows of W_hh, (HB, BN) chunks, gate by gate.
    kk = tl.arange(0, BN)
    w_first = ()
    w_second = ()
    w_scales = ()
    for q in tl.static_range(4):
        w_row = w_hh + (q * H + units).to(tl.int64)[:, None] * H
        w_scale = tl.full((HB,), 1.0, tl.float32)
        if SCALED:
            largest = tl.zeros((HB,), tl.float32)
            for c in tl.static_range(NN):
                k = c * BN + kk
                w = tl.load(w_row + k[None, :], mask=unit_ok[:, None] & (k < H)[None, :], other=0.0)
                largest = tl.maximum(largest, tl.max(tl.abs(w.to(tl.float32)), 1))
            w_scale = power_of_two(largest)
        w_scales = w_scales + (w_scale,)
        for c in tl.static_range(NN):
            k = c * BN + kk
            w = tl.load(w_row + k[None, :], mask=unit_ok[:, None] & (k < H)[None, :], other=0.0)
            if SCALED:
                w = w / w_scale[:, None]
            high = w.to(OP)
            w_first = w_first + (high,)
            if PARTS == 2:
                w_second = w_second + (((w - high.to(tl.float32)) * LOW).to(OP),)

    dh = tl.zeros((BT, HB), tl.float32)
    dc = tl.zeros((BT, HB), tl.float32)
    if HAS_DH:
        dh = tl.load(dh_in + state, mask=ok, other=0.0).to(tl.float32)
    if HAS_DC:
        dc = tl.load(dc_in + state, mask=ok, other=0.0).to(tl.float32)
    if VARLEN:
        length = tl.load(lengths + rows, mask=row_ok, other=0)
        longest = tl.load(lengths + tile * BT)
    else:
        longest = steps
    dbi = tl.zeros((BT, HB), tl.float32)
    dbf = dbi
    dbg = dbi
    dbo = dbi

    top = tl.minimum(t1, longest)
    who = tl.arange(0, BP)
    inner = tl.arange(0, BT * HB)
    if VARLEN:
        last = tl.load(offsets + top - 1, mask=top > 0, other=0)
        live = ok & (top - 1 < length)[:, None]
    else:
        last = (top - 1).to(tl.int64) * B
        live = ok
        length = rows
    c_t = tl.load(cells + (last + rows)[:, None] * H + units[None, :], mask=live & (top > t0), other=0.0)
    raw_i, raw_f, raw_g, raw_o, c_prev, grad = _saved(
        gates, cells, c_in, dy, offsets, rows, units, ok, length, top - 1, t0, B, H, HAS_C, HAS_DY, VARLEN
    )
    fi, ff, fg, keep, fo, fc = _factors(raw_i, raw_f, raw_g, raw_o, c_t, c_prev, PARTS == 2)
    c_t = c_prev
    raw_i, raw_f, raw_g, raw_o, c_prev, next_grad = _saved(
        gates, cells, c_in, dy, offsets, rows, units, ok, length, top - 2, t0, B, H, HAS_C, HAS_DY, VARLEN
    )
    for s in range(top - t0):
        t = top - 1 - s
        turn = longest - 1 - t
        slot = turn % 2
        mark = ((turn // 2) % 2) ^ 1
        box = inboxes + (slot * NBT + tile).to(tl.int64) * (NT * NT * BT * HB)
        if VARLEN:
            row0 = tl.load(offsets + t)
            live = ok & (t < length)[:, None]
        else:
            row0 = t.to(tl.int64) * B
            live = ok
        if PHASE != 2:
            at = (row0 + rows)[:, None] * (4 * H) + units[None, :]
            dh_t = dh
            if HAS_DY:
                dh_t = dh_t + grad.to(tl.float32)
            dc_t = dc + dh_t * fc
            di = dc_t * fi
            df = dc_t * ff
            dg = dc_t * fg
            do = dh_t * fo
            if VARLEN:
                di = tl.where(live, di, 0.0)
                df = tl.where(live, df, 0.0)
                dg = tl.where(live, dg, 0.0)
                do = tl.where(live, do, 0.0)
                dc = tl.where(live, dc_t * keep, dc)
            else:
                dc = dc_t * keep
            dbi += di
            dbf += df
            dbg += dg
            dbo += do

            si = di
            sf = df
            sg = dg
            so = do
            scale = tl.full((BT,), 1.0, tl.float32)
            if SCALED:
                si = di * w_scales[0][None, :]
                sf = df * w_scales[1][None, :]
                sg = dg * w_scales[2][None, :]
                so = do * w_scales[3][None, :]
                most = tl.maximum(tl.maximum(tl.abs(si), tl.abs(sf)), tl.maximum(tl.abs(sg), tl.abs(so)))
                scale = power_of_two(tl.max(most, 1))
                inverse = 1.0 / scale
                si = si * inverse[:, None]
                sf = sf * inverse[:, None]
                sg = sg * inverse[:, None]
                so = so * inverse[:, None]
            hi0 = si.to(OP)
            hi1 = sf.to(OP)
            hi2 = sg.to(OP)
            hi3 = so.to(OP)
            if PARTS == 2:
                lo0 = ((si - hi0.to(tl.float32)) * LOW).to(OP)
                lo1 = ((sf - hi1.to(tl.float32)) * LOW).to(OP)
                lo2 = ((sg - hi2.to(tl.float32)) * LOW).to(OP)
                lo3 = ((so - hi3.to(tl.float32)) * LOW).to(OP)
            for c in tl.static_range(NN):
                if SWAP:
                    acc = tl.zeros((BN, BT), tl.float32)
                else:
                    acc = tl.zeros((BT, BN), tl.float32)
                acc = _product(hi0, tl.trans(w_first[c]), acc, SWAP, PHASE)
                acc = _product(hi1, tl.trans(w_first[NN + c]), acc, SWAP, PHASE)
                acc = _product(hi2, tl.trans(w_first[2 * NN + c]), acc, SWAP, PHASE)
                acc = _product(hi3, tl.trans(w_first[3 * NN + c]), acc, SWAP, PHASE)
                if PARTS == 2:
                    if SWAP:
                        fine = tl.zeros((BN, BT), tl.float32)
                    else:
                        fine = tl.zeros((BT, BN), tl.float32)
                    fine = _product(hi0, tl.trans(w_second[c]), fine, SWAP, PHASE)
                    fine = _product(hi1, tl.trans(w_second[NN + c]), fine, SWAP, PHASE)
                    fine = _product(hi2, tl.trans(w_second[2 * NN + c]), fine, SWAP, PHASE)
                    fine = _product(hi3, tl.trans(w_second[3 * NN + c]), fine, SWAP, PHASE)
                    fine = _product(lo0, tl.trans(w_first[c]), fine, SWAP, PHASE)
                    fine = _product(lo1, tl.trans(w_first[NN + c]), fine, SWAP, PHASE)
                    fine = _product(lo2, tl.trans(w_first[2 * NN + c]), fine, SWAP, PHASE)
                    fine = _product(lo3, tl.trans(w_first[3 * NN + c]), fine, SWAP, PHASE)
                    acc = acc + fine * (1.0 / LOW)
                _put_partial(
                    acc, scale, box, c * BN + kk, jt, mark, NT, BT, HB, NN * BN == NT * HB, SCALED, SWAP
                )
            tl.store(dgates + at, di, mask=live)
            tl.store(dgates + at + H, df, mask=live)
            tl.store(dgates + at + 2 * H, dg, mask=live)
            tl.store(dgates + at + 3 * H, do, mask=live)

            # While the others answer: prepare the next step, and ask for what the one after it needs.
            fi, ff, fg, keep, fo, fc = _factors(raw_i, raw_f, raw_g, raw_o, c_t, c_prev, PARTS == 2)
            c_t = c_prev
            grad = next_grad
            raw_i, raw_f, raw_g, raw_o, c_prev, next_grad = _saved(
                gates,
                cells,
                c_in,
                dy,
                offsets,
                rows,
                units,
                ok,
                length,
                t - 2,
                t0,
                B,
                H,
                HAS_C,
                HAS_DY,
                VARLEN,
            )

        if PHASE != 1:
            # Wait for the partial sums of this program's units and add them, in the order of their makers.
            total = tl.zeros((BT * HB,), tl.float32)
            for c in tl.static_range(NP):
                maker = c * BP + who
                # Vectors no longer than the rest of the step uses keep the sum in the layout it is used in.
                at = tl.max_contiguous(((jt * NT + maker) * (BT * HB))[:, None] + inner[None, :], (1, VEC))
                got = _read_partials(box + at, maker, mark, NT, BP, NP)
                spins = 0
                while _any((got ^ mark) & 1):
                    got = _read_partials(box + at, maker, mark, NT, BP, NP)
                    if SPINS > 0:
                        spins += 1
                        tl.device_assert(spins < SPINS, "fused LSTM: a step's gradient never arrived")
                if NP * BP != NT:
                    got = tl.where((maker < NT)[:, None], got, 0)
                total += tl.sum(got.to(tl.float32, bitcast=True), 0)
            fresh = tl.reshape(total, (BT, HB))
            if VARLEN:  # a row that has ended passes its gradient on
                dh = tl.where(live, fresh, dh)
            else:
                dh = fresh

    if WANT_DH:
        tl.store(dh_out + state, dh, mask=ok)
    if WANT_DC:
        tl.store(dc_out + state, dc, mask=ok)
    if PHASE != 2:
        at = db + tile * (4 * H) + units
        if PHASE == 1:  # one step a launch: add to what the later steps left
            db_i = tl.sum(dbi, 0) + tl.load(at, mask=unit_ok, other=0.0)
            tl.store(at, db_i, mask=unit_ok)
            tl.store(at + H, tl.sum(dbf, 0) + tl.load(at + H, mask=unit_ok, other=0.0), mask=unit_ok)
            tl.store(at + 2 * H, tl.sum(dbg, 0) + tl.load(at + 2 * H, mask=unit_ok, other=0.0), mask=unit_ok)
            tl.store(at + 3 * H, tl.sum(dbo, 0) + tl.load(at + 3 * H, mask=unit_ok, other=0.0), mask=unit_ok)
        else:
            tl.store(at, tl.sum(dbi, 0), mask=unit_ok)
            tl.store(at + H, tl.sum(dbf, 0), mask=unit_ok)
            tl.store(at + 2 * H, tl.sum(dbg, 0), mask=unit_ok)
            tl.store(at + 3 * H, tl.sum(dbo, 0), mask=unit_ok)


@triton.jit(do_not_specialize=["rows", "count"])
def sum_rows(parts, out, rows, count, BLOCK: tl.constexpr):
    """The sum of `parts` (rows, count) over its rows, written to both rows of `out` (2, count)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < count
    total = tl.zeros((BLOCK,), tl.float32)
    for r in range(rows):
        total += tl.load(parts + r * count + at, mask=ok, other=0.0)
    tl.store(out + at, total, mask=ok)
    tl.store(out + count + at, total, mask=ok)
