"""How large a report is, how long it takes to build, and to open: `python -m tests.benchmarks.report_size`.

In one run: the page of a committed record (12 models, forward and backward) and of a record with 100,000 samples are
built in fresh processes, and opened in headless Chromium five times each, beside an empty page. Opened is: from the
request to the second frame after the load event, so that everything is laid out and painted. Printed are the medians,
and what the 100,000 samples cost over the empty page; a page that takes more than 2 s to open fails.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fastrnns.archive import store
from tests import browser, records

ROOT = Path(__file__).resolve().parents[2]
DEFAULT = ROOT / "results/nvidia-h200-6f08cc88/20261201T065805Z-bench-f63dd7effee4.json"
LIMIT_S = 2.0
OPENINGS = 5
EMPTY = "<!doctype html><title>empty</title>"
PAINTED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def large(samples: int) -> dict[str, object]:
    """A record of one model with so many samples, half forward and half backward, in five processes."""
    rng = random.Random(1)
    count = samples // 10

    def series(scale: float) -> list[list[float]]:
        return [[scale * rng.lognormvariate(0, 0.02) for _ in range(count)] for _ in range(5)]

    starts = [[(process * count + index) * 4_000_000 for index in range(count)] for process in range(5)]
    result = records.result(
        forward=records.phase(*series(1.0)), backward=records.phase(*series(2.0)), started_ns=starts
    )
    return records.bench(results=[result])


def build(record: Path, page: Path) -> float:
    """Seconds of the whole command, in a fresh process."""
    command = [sys.executable, "-m", "fastrnns.archive", "report", str(record), "--output", str(page)]
    begun = time.perf_counter()
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def open_seconds(running: object, page: Path) -> float:
    """The median time to open a page, each time in a context of its own."""
    found = []
    for _ in range(OPENINGS):
        context = running.new_context()
        tab = context.new_page()
        begun = time.perf_counter()
        tab.goto(page.as_uri(), wait_until="load")
        tab.evaluate(PAINTED)
        found.append(time.perf_counter() - begun)
        context.close()
    return statistics.median(found)


def main() -> int:
    """Build, open, print; 1 where a page is too slow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=100_000)
    args = parser.parse_args()
    if lacking := browser.lacking():
        print(f"report_size: {lacking}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {"default": DEFAULT, "large": store.Archive(folder / "archive").write(large(args.samples))}
        pages = {"empty": folder / "empty.html", **{kind: folder / f"{kind}.html" for kind in sources}}
        pages["empty"].write_text(EMPTY, encoding="utf-8")
        built = {kind: build(source, pages[kind]) for kind, source in sources.items()}
        with browser.chromium() as running:
            opened = {kind: open_seconds(running, page) for kind, page in pages.items()}
        for kind, seconds in built.items():
            size = pages[kind].stat().st_size / 1e3
            print(f"{kind}: {size:.0f} kB, built in {seconds:.1f} s, opened in {opened[kind]:.2f} s")
    ratio = opened["large"] / opened["empty"]
    print(
        f"opening {args.samples} samples takes {ratio:.1f} times as long as an empty page ({opened['empty']:.2f} s)"
    )
    return 0 if max(opened.values()) <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
