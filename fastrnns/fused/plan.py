"""Which tiles a problem runs at, or why it cannot run fused. Pure: no torch, no GPU.

A launch needs all its programs on the chip at once, each with its rows of W_hh in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

# Shared memory a program may use on sm_90 (227 KB), less what the compiler takes for reductions.
SHARED_BYTES = 232_448 - 4_096
# 32-bit words a thread polls in registers at once; beyond this the compiler spills.
WORDS_A_THREAD = 64
# Partial sums polled at once. With 64, Triton 3.6 compiles the varlen backward of 16 rows and 8 warps wrongly: a row that
# has ended loses four of its units (NaN; hidden size 587, bf16, seen on an H200). 32 is right everywhere it was tried.
MAKERS_AT_ONCE = 32
# The forward exchange buffer grows with the steps of a launch; longer sequences are cut into several launches.
EXCHANGE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Tiles:
    """One kernel's tiling: batch rows and hidden units a program, warps, and how the long dimension is cut."""

    batch: int
    hidden: int
    warps: int
    chunk: int  # words of h (forward) or hidden units (backward) a matrix product takes at once
    makers: int = 1  # backward: partial sums polled at once
    swap: bool = False  # the transposed product: hidden units are the rows of the matrix instruction


@dataclass(frozen=True)
class Plan:
    """How one layer runs: the tiles of both directions and the sizes that follow."""

    forward: Tiles
    backward: Tiles
    parts: int  # 16-bit halves an operand is split into
    groups_forward: int  # batch tiles that are on the chip at once
    groups_backward: int


def ceil_div(a: int, b: int) -> int:
    """The least number of b that covers a."""
    return -(-a // b)


def power_of_two(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


def words(hidden: int, tile: int, parts: int) -> int:
    """32-bit words that tell of one row of h."""
    return ceil_div(hidden, tile) * tile * parts // 2


def forward_bytes(hidden: int, tiles: Tiles, parts: int) -> int:
    """Shared memory of a forward program: its rows of W_hh, one chunk of h staged, the product's exchange."""
    padded = ceil_div(words(hidden, tiles.hidden, parts), tiles.chunk) * tiles.chunk
    return 16 * tiles.hidden * padded + max(4 * tiles.batch * tiles.chunk, 16 * tiles.batch * tiles.hidden)


def backward_bytes(hidden: int, tiles: Tiles, parts: int) -> int:
    """Shared memory of a backward program: its rows of W_hh, and one chunk of partial sums on its way out."""
    padded = ceil_div(ceil_div(hidden, tiles.hidden) * tiles.hidden, tiles.chunk) * tiles.chunk
    return 8 * tiles.hidden * padded * parts + 4 * tiles.batch * tiles.chunk


def best_chunk(length: int, largest: int) -> int:
    """The chunk of 64 or more that pads `length` least, of equals the largest; short lengths are one chunk."""
    if length <= largest:
        return max(16, power_of_two(length))
    sizes = [c for c in (64, 128, 256) if c <= largest]
    return min(sizes, key=lambda c: (ceil_div(length, c) * c, -c))


def _forward_tiles(hidden: int, batch_tile: int, parts: int, scaled: bool, small: bool) -> Tiles:
    length = words(hidden, 16, parts)
    if small and parts == 2:
        return Tiles(batch_tile, 16, 4, best_chunk(length, 64))
    if small and not scaled:  # the transposed product, all of h at once: measured fastest at 16 bits
        return Tiles(batch_tile, 16, 4, best_chunk(length, 256), swap=True)
    return Tiles(batch_tile, 16, 4 if small else 8, best_chunk(length, 128))


def _backward_tiles(hidden: int, batch_tile: int, parts: int, scaled: bool, small: bool) -> Tiles:
    units = ceil_div(hidden, 16)
    warps = 4 if small else 8
    fitting = max(1, WORDS_A_THREAD * 32 * warps // (batch_tile * 16))
    makers = min(power_of_two(units), MAKERS_AT_ONCE, fitting)
    if parts == 2:
        largest = 64 if small else 128
    elif small and not scaled:
        largest = 128
    else:
        largest = max(64, min(256, 4096 // batch_tile))
    return Tiles(batch_tile, 16, warps, best_chunk(units * 16, largest), makers)


@lru_cache(maxsize=256)
def choose(
    hidden: int, batch: int, parts: int, scaled: bool, processors: int, shared: int = SHARED_BYTES
) -> Plan | str:
    """The plan for one layer, or one sentence that says why it cannot run fused.

    `parts` and `scaled` are those of the precision: 16-bit halves an operand, and whether rows are scaled. The tiles are
    those of tests/benchmarks/fused_time.py's table that were fastest on an H200 at the default size.
    """
    units = ceil_div(hidden, 16)
    if units > processors:
        return f"hidden size {hidden} needs {units} programs at once and this device runs {processors}"
    groups = processors // units
    chosen = None
    for batch_tile in (16, 32, 64):
        small = batch_tile == 16 and hidden <= 512
        forward = _forward_tiles(hidden, batch_tile, parts, scaled, small)
        backward = _backward_tiles(hidden, batch_tile, parts, scaled, small)
        need = max(forward_bytes(hidden, forward, parts), backward_bytes(hidden, backward, parts))
        if need > shared:
            break
        chosen = Plan(forward, backward, parts, groups, groups)
        if ceil_div(batch, batch_tile) <= groups:
            break
    if chosen is None:
        return (
            f"hidden size {hidden} needs more shared memory than this device's {shared // 1024} KB a program"
        )
    return chosen
