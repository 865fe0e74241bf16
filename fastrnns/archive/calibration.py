"""What a machine shows when it is compared with itself: noise a model and phase, from an A/A record. Pure.

A calibration record is a record of kind `calibrate`: fresh processes of the same software in the order in
which they ran, labelled base and new in turns (ABBA). All figures are derived from its raw samples when it is
read.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastrnns.archive import comparable
from fastrnns.archive.comparable import Record
from fastrnns.measure import stats
from fastrnns.phases import ALL as PHASES

KIND = "calibrate"
COVERAGE = 0.99  # of the machine's differences from itself lie within its floor
BLOCK = 5  # processes in a row, at most, that stand for one run: to see what differs from run to run
RUNS = 5  # at least so many of them, for a variance known from two is not known
MIN_CALIBRATION = 10  # processes, below which a floor would be a guess


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the log median, of one process and of one run beyond its processes."""

    deviation: float  # from process to process, in a row
    degrees: float
    run_deviation: float  # from run to run; 0 where the processes explain it
    run_degrees: float
    pair_deviation: float  # of the difference within an interleaved pair
    pair_degrees: float

    def floor(self, base: int, new: int, *, paired: bool = False) -> float:
        """The ratio less 1 that this machine stays below when compared with itself, with so many processes.

        t * sqrt(s^2 (1/n + 1/m) + 2 r^2): variance components of a nested design (Kalibera and Jones 2013);
        the degrees of freedom of the sum after Satterthwaite 1946, so that an uncertain component counts by
        its size.
        """
        if paired:
            count = min(base, new)
            return math.expm1(_t(self.pair_degrees) * self.pair_deviation / math.sqrt(max(1, count)))
        parts = (
            (self.deviation**2 * (1 / max(1, base) + 1 / max(1, new)), self.degrees),
            (2 * self.run_deviation**2, self.run_degrees),
        )
        variance = sum(part for part, _ in parts)
        if variance == 0:
            return 0.0
        degrees = variance**2 / sum(part**2 / free for part, free in parts)
        return math.expm1(_t(degrees) * math.sqrt(variance))


def _t(degrees: float) -> float:
    return stats.t_quantile((1 + COVERAGE) / 2, degrees)


def noise(logs: Sequence[float]) -> Noise | None:
    """The components from the log medians of processes in the order in which they ran."""
    count = len(logs)
    if count < MIN_CALIBRATION:
        return None
    size = max(2, min(BLOCK, count // RUNS))
    blocks = [logs[start : start + size] for start in range(0, count - size + 1, size)]
    inner = statistics.fmean(statistics.variance(block) for block in blocks)
    inner_degrees = len(blocks) * (size - 1)
    outer = statistics.variance([statistics.fmean(block) for block in blocks])
    pairs = [second - first for first, second in zip(logs[::2], logs[1::2], strict=False)]
    return Noise(
        deviation=math.sqrt(inner),
        degrees=inner_degrees,
        run_deviation=math.sqrt(max(0.0, outer - inner / size)),
        run_degrees=len(blocks) - 1,
        pair_deviation=math.sqrt(statistics.fmean(pair * pair for pair in pairs)),
        pair_degrees=len(pairs),
    )


@dataclass(frozen=True)
class Calibration:
    """The noise of one machine at one problem, by model and phase."""

    record_id: str
    by_phase: Mapping[tuple[str, str], Noise]

    def noise(self, model: str, phase: str) -> Noise | None:
        """Of that model; of the noisiest model calibrated, for one that was not."""
        known = self.by_phase.get((model, phase))
        if known is not None:
            return known
        same_phase = [found for (_, name), found in self.by_phase.items() if name == phase]
        return max(same_phase, key=lambda found: found.floor(BLOCK, BLOCK), default=None)


def from_record(record: Record) -> Calibration | None:
    """The calibration that a record holds; None where it is of another kind or too small."""
    if record.get("kind") != KIND:
        return None
    found: dict[tuple[str, str], Noise] = {}
    for result in record.get("results") or ():
        if result.get("status") != "ok":
            continue
        for phase in PHASES:
            part = result.get(phase) or {}
            known = noise(stats.log_medians(stats.measured(part.get("samples") or (), part.get("excluded"))))
            if known is not None:
                found[str(result["model"]), phase] = known
    return Calibration(str(record.get("id")), found) if found else None


def suits(calibration: Record, record: Record) -> bool:
    """Whether a calibration was made where and as the record was: its hardware, problem and options."""
    mine: Mapping[str, Any] = {**calibration, "kind": "bench"}
    return calibration.get("kind") == KIND and not comparable.refusals(mine, {**record, "kind": "bench"})


def find(records: Iterable[Record], record: Record) -> Calibration | None:
    """The last calibration, in the order given, that suits the record."""
    found = None
    for candidate in records:
        if candidate.get("kind") == KIND and suits(candidate, record):
            found = from_record(candidate) or found
    return found
