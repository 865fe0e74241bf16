"""A/A on this machine: real pairs of records of one and the same software, judged as the product judges.

    python -m tests.benchmarks.aa --pairs 40 --models cudnn jit py [--device cuda] [--chain] [--json FILE]

Each pair is two runs of `python -m fastrnns.bench` that follow one another. With --chain the second run of a pair is
the first of the next: 41 runs make 40 pairs, in half the time; neighbouring pairs share a run, which leaves the
expected rate as it is. Before them the machine is
calibrated; verdicts are counted with that floor and without. Target: at most 2 % of the pairs hold a faster
or a slower; counted too for each model alone, which is a pair of runs of its own.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from fastrnns.archive import calibration, compare
from fastrnns.measure.plan import PROCESSES
from tests.benchmarks import runs

TARGET = 0.02


def main() -> int:
    """Print one line a pair, then the rates; exit 1 above the target."""
    parser = runs.flags(__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--calibrate", type=int, default=20, metavar="N", help="processes; 0 leaves it out")
    parser.add_argument(
        "--chain", action="store_true", help="judge each run against the one before: half as many runs"
    )
    args = parser.parse_args()
    known = None
    if args.calibrate:
        record, seconds = runs.record(
            args, command="calibrate", processes=args.calibrate, budget=3 * args.budget
        )
        known = calibration.from_record(record)
        print(f"calibrated with {args.calibrate} processes in {seconds:.0f} s", flush=True)
        for (model, phase), noise in known.by_phase.items() if known else ():
            floor = noise.floor(args.processes or PROCESSES, args.processes or PROCESSES)
            print(
                f"  {model} {phase}: process {noise.deviation:.2%} run {noise.run_deviation:.2%} floor {floor:.2%}"
            )
    ways = ("as judged", "without floor", "invalid too")
    counts: dict[str, Counter] = {way: Counter() for way in ways}
    alarms = dict.fromkeys(ways, 0)
    models = dict.fromkeys(ways, 0)
    refused, pairs = 0, []
    new = None
    started = time.monotonic()
    for number in range(args.pairs):
        base = new if args.chain and new is not None else runs.record(args)[0]
        new = runs.record(args)[0]
        judged = {
            "as judged": compare.compare(base, new, calibration=known),
            "without floor": compare.compare(base, new),
            "invalid too": compare.compare(runs.trusted(base), runs.trusted(new), calibration=known),
        }
        for way, found in judged.items():
            verdicts = [row.verdict for row in found.rows]
            counts[way].update(verdicts)
            alarms[way] += bool({compare.FASTER, compare.SLOWER} & set(verdicts))
            false = {row.model for row in found.rows if row.verdict in {compare.FASTER, compare.SLOWER}}
            models[way] += len(false)
        refused += bool(judged["as judged"].refusals)
        rows = judged["invalid too"].rows
        ratios = {f"{row.model} {row.phase}": row.ratio for row in rows}
        pairs.append({"ratios": ratios, "refused": bool(judged["as judged"].refusals)})
        line = " ".join("-" if ratio is None else f"{ratio:.4f}" for ratio in ratios.values())
        print(
            f"{number + 1:3} {line}  {'/'.join(row.verdict for row in judged['as judged'].rows)}", flush=True
        )
    of = {"as judged": args.pairs - refused, "without floor": args.pairs - refused, "invalid too": args.pairs}
    rates = {way: alarms[way] / of[way] if of[way] else None for way in ways}
    for way, rate in rates.items():
        share = "-" if rate is None else f"{rate:.1%}"
        print(f"{way}: {alarms[way]} of {of[way]} pairs raise a false alarm ({share}); {dict(counts[way])}")
        each = of[way] * len(args.models)
        print(
            f"  a model at a time: {models[way]} of {each} ({models[way] / each:.1%})" if each else "  none"
        )
    print(f"{refused} of {args.pairs} pairs were refused")
    met = refused < args.pairs / 2 and (rates["as judged"] or 0.0) <= TARGET
    summary = {
        "benchmark": "aa",
        "device": args.device,
        "pairs": args.pairs,
        "refused": refused,
        "false_alarms": alarms["as judged"],
        "false_alarm_rate": rates["as judged"],
        "without_floor": rates["without floor"],
        "target": TARGET,
        "met": met,
        "seconds": round(time.monotonic() - started),
    }
    runs.save(args.json, summary, {"pairs": pairs, "rates": rates, "models": models, "refused": refused})
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
