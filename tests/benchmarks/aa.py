"""A/A on this machine: real pairs of records of one and the same software, judged as the product judges.

    python tests/benchmarks/aa.py --pairs 40 --models cudnn jit py [--device cuda] [--json FILE]

Each pair is two runs of `python -m fastrnns.bench` that follow one another. Before them the machine is
calibrated; verdicts are counted with that floor and without. Target: at most 2 % of the pairs hold a faster
or a slower.
"""

from __future__ import annotations

import sys
from collections import Counter

import runs

from fastrnns.archive import calibration, compare

TARGET = 0.02


def main() -> int:
    """Print one line a pair, then the rates; exit 1 above the target."""
    parser = runs.flags(__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--calibrate", type=int, default=20, metavar="N", help="processes; 0 leaves it out")
    args = parser.parse_args()
    known = None
    if args.calibrate:
        record, seconds = runs.record(
            args, command="calibrate", processes=args.calibrate, budget=3 * args.budget
        )
        known = calibration.from_record(record)
        print(f"calibrated with {args.calibrate} processes in {seconds:.0f} s", flush=True)
        for (model, phase), noise in known.by_phase.items() if known else ():
            floor = noise.floor(args.processes, args.processes)
            print(
                f"  {model} {phase}: process {noise.deviation:.2%} run {noise.run_deviation:.2%} floor {floor:.2%}"
            )
    counts = {"with floor": Counter(), "without": Counter()}
    alarms = {"with floor": 0, "without": 0}
    disturbed, pairs = 0, []
    for number in range(args.pairs):
        base, new = (runs.record(args)[0] for _ in range(2))
        disturbed += not (runs.believed(base) and runs.believed(new))
        line = []
        for name, floor in (("with floor", known), ("without", None)):
            found = compare.compare(runs.trusted(base), runs.trusted(new), calibration=floor)
            verdicts = [row.verdict for row in found.rows]
            counts[name].update(verdicts)
            alarms[name] += bool({compare.FASTER, compare.SLOWER} & set(verdicts))
            line.append("/".join(verdicts))
        ratios = {f"{row.model} {row.phase}": row.ratio for row in found.rows}
        pairs.append({"ratios": ratios, "verdicts": line})
        print(
            f"{number + 1:3} " + " ".join(f"{ratio:.4f}" for ratio in ratios.values()) + "  " + line[0],
            flush=True,
        )
    rates = {name: count / args.pairs for name, count in alarms.items()}
    for name, rate in rates.items():
        print(
            f"{name}: {alarms[name]} of {args.pairs} pairs raise a false alarm ({rate:.1%}); {dict(counts[name])}"
        )
    print(f"{disturbed} of {args.pairs} pairs hold a record that calls itself invalid (a busy machine)")
    runs.save(args.json, {"pairs": pairs, "rates": rates, "disturbed": disturbed})
    return 0 if rates["with floor" if known else "without"] <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
