"""Power: how often real added work of 3, 5 and 10 % is found.

    python -m tests.benchmarks.power --repeats 20 --seq-length 100 [--device cuda] [--cross] [--json FILE]

The work of an LSTM is proportional to its time steps, so that 103, 105 and 110 steps are 3, 5 and 10 % more
operations of the same kinds. Base and changed runs take turns. Records that differ in their problem would be
refused; here, and only here, the changed record is given the base's problem. Target: the shift of --target found in
95 % of the runs. With --cross only that shift is run, and every base record is judged against every changed one:
N repeats give N times N judgements of real records, where a machine is too dear for more; and the records of one side
judged against each other are A/A pairs, of which none may be faster or slower.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections import Counter
from pathlib import Path

from fastrnns.archive import compare
from tests.benchmarks import runs

SHIFTS = (0.03, 0.05, 0.10)


Rows = dict[str, list]


def judged(base: dict, new: dict) -> Rows:
    """Ratio and verdict of each model and phase, the changed problem passed off as the base's."""
    found = compare.compare(runs.trusted(base), runs.trusted({**new, "problem": base["problem"]}))
    return {f"{row.model} {row.phase}": [row.ratio, row.verdict, row.reason] for row in found.rows}


def in_turn(args: argparse.Namespace) -> dict[float, list[Rows]]:
    """Each changed record against the base that was run just before."""
    found: dict[float, list[Rows]] = {shift: [] for shift in SHIFTS}
    for number in range(args.repeats):
        base, _ = runs.record(args)
        for shift in SHIFTS if number % 2 == 0 else reversed(SHIFTS):
            new, _ = runs.record(args, seq_length=round(args.seq_length * (1 + shift)))
            found[shift].append(judged(base, new))
            print(f"{number + 1:3} {shift:+.0%} {found[shift][-1]}", flush=True)
    return found


def process_medians(record: dict) -> dict[str, list[float]]:
    """The median of each process by phase, ms: what a comparison is made of."""
    result = record["results"][0]
    phases = {phase: result[phase] for phase in ("forward", "backward") if result[phase]}
    return {phase: [statistics.median(s) for s in facts["samples"] if s] for phase, facts in phases.items()}


def replayed(path: Path) -> tuple[list[dict], list[dict]]:
    """The records that a saved run kept, as far as a comparison looks at them: a median a process."""
    kept = json.loads(path.read_text(encoding="utf-8"))["medians_ms"]
    sides = [
        [
            {
                "kind": "bench",
                "fingerprint": {"ids": {"hardware": "as it was"}},
                "problem": {},
                "results": [
                    {
                        "model": "cudnn", "group": "rnns", "status": "ok",
                        **{name: {"unit": "ms", "samples": [[each] for each in values]} for name, values in run.items()},
                    }
                ],
            }
            for run in runs_kept
        ]
        for _, runs_kept in sorted(kept.items(), key=lambda item: int(item[0]))
    ]  # fmt: skip
    return sides[0], sides[1]


def measured(args: argparse.Namespace, kept: dict[str, list]) -> tuple[list[dict], list[dict]]:
    """Base and changed records, run in turn; `kept` gets what each process measured."""
    bases, changed = [], []
    for number in range(args.repeats):
        sides = [(bases, args.seq_length), (changed, round(args.seq_length * (1 + args.target)))]
        for side, steps in sides if number % 2 == 0 else reversed(sides):
            record, seconds = runs.record(args, seq_length=steps)
            side.append(record)
            kept.setdefault(str(steps), []).append(process_medians(record))
            result = record["results"][0]
            medians = [result[phase] and result[phase]["median"] for phase in ("forward", "backward")]
            count = len(result["forward"]["samples"]) if result["forward"] else 0
            shown = " / ".join("-" if each is None else f"{each:.4g}" for each in medians)
            print(f"{number + 1:3} {steps} steps: {shown} ms, {count} processes, {seconds:.0f} s", flush=True)
    return bases, changed


def crossed(args: argparse.Namespace, kept: dict[str, list]) -> dict[float, list[Rows]]:
    """Every changed record against every base, and the equal ones against each other."""
    bases, changed = measured(args, kept) if args.replay is None else replayed(args.replay)
    same = [judged(*pair) for side in (bases, changed) for pair in itertools.combinations(side, 2)]
    false = sum(row[1] in {compare.FASTER, compare.SLOWER} for rows in same for row in rows.values())
    verdicts = Counter(row[1] for rows in same for row in rows.values())
    print(f"A/A: {false} false alarms in {len(same)} pairs of equal runs; {dict(verdicts)}")
    return {args.target: [judged(base, new) for base in bases for new in changed]}


def main() -> int:
    """Print the table; exit 1 where the target is missed."""
    parser = runs.flags(__doc__)
    parser.set_defaults(seq_length=100)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--cross", action="store_true", help="judge every base against every changed record")
    parser.add_argument(
        "--replay",
        type=Path,
        metavar="FILE",
        help="judge what an earlier --cross --json saved, measuring nothing",
    )
    parser.add_argument(
        "--target", type=float, default=0.05, help="the shift to be found in 95 %% of the runs"
    )
    args = parser.parse_args()
    kept: dict[str, list] = {}
    found = crossed(args, kept) if args.cross or args.replay else in_turn(args)
    missed = False
    shares: dict[str, dict[str, float]] = {}
    print(f"{'model and phase':28} {'added':>6} {'ratio':>8} {'slower':>8} {'faster':>8}")
    for shift, rows in found.items():
        for key in rows[0]:
            ratio = statistics.median(
                [row[key][0] for row in rows if row[key][0] is not None] or [float("nan")]
            )
            slower = sum(row[key][1] == compare.SLOWER for row in rows) / len(rows)
            faster = sum(row[key][1] == compare.FASTER for row in rows) / len(rows)
            shares.setdefault(key, {})[f"{shift:.0%}"] = slower
            missed |= shift == args.target and slower < 0.95
            print(f"{key:28} {shift:6.0%} {ratio:8.4f} {slower:8.0%} {faster:8.0%}")
    summary = {
        "benchmark": "power",
        "device": args.device,
        "judgements": {f"{shift:.0%}": len(rows) for shift, rows in found.items()},
        "detected": shares,
        "target": {"shift": f"{args.target:.0%}", "detected": 0.95},
        "met": not missed,
    }
    figures = {"found": {str(shift): rows for shift, rows in found.items()}, "medians_ms": kept}
    runs.save(args.json, summary, figures)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
