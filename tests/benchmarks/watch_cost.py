"""What the watch costs: its own CPU time as a share of one CPU, while a worker with several threads runs."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

from env import topology, watching
from env.sysfs import Files

WORKER = """
import sys, threading, time
end = time.time() + float(sys.argv[1])
def work():
    while time.time() < end:
        sum(range(2000))
threads = [threading.Thread(target=work) for _ in range(int(sys.argv[2]))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
LIMIT = 0.01


def main() -> int:
    """Print one JSON object; exit code 1 when the watch costs more than one per cent of one CPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=8)
    args = parser.parse_args()
    choice = topology.choose(topology.read(Files("/")))
    with subprocess.Popen([sys.executable, "-c", WORKER, str(args.seconds), str(args.threads)]) as worker:
        os.sched_setaffinity(worker.pid, choice.cpus)
        before = time.process_time()
        with watching.build(Files("/"), worker.pid, choice.cpus, housekeeping=choice.housekeeping) as watch:
            started = time.monotonic()
            worker.wait()
        share = (time.process_time() - before) / (time.monotonic() - started)
    facts = watch.facts()
    answer = {
        "cpu_share": round(share, 5),
        "limit": LIMIT,
        "looks": facts["looks"],
        "threads": args.threads,
        "cpus": len(choice.cpus),
        "seconds": args.seconds,
    }
    print(json.dumps(answer))
    return 0 if share < LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
