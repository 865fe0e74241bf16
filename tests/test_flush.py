"""Cold caches: how much is written over, and that a model really finds nothing of its own there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from machines import lay_out

from env.sysfs import Files
from fastrnns.archive.store import Archive
from fastrnns.measure import flush

ROOT = Path(__file__).parent.parent
CACHE = "sys/devices/system/cpu/cpu0/cache"


def cache(folder, index, level, kind, size):
    for name, value in (("level", level), ("type", kind), ("size", size)):
        path = folder / CACHE / f"index{index}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


def test_the_last_level_is_the_largest_that_holds_data(tmp_path):
    lay_out(tmp_path)
    cache(tmp_path, 0, 1, "Data", "48K")
    cache(tmp_path, 1, 1, "Instruction", "64M")
    cache(tmp_path, 2, 3, "Unified", "32768K")
    assert flush.last_level_bytes(Files(str(tmp_path))) == 32 * 2**20
    assert flush.buffer_bytes(32 * 2**20) == 64 * 2**20


def test_a_machine_that_does_not_tell_its_caches_gets_a_usual_size_and_none_gets_too_much(tmp_path):
    assert flush.last_level_bytes(Files(str(tmp_path))) is None
    assert flush.buffer_bytes(None) == 2 * flush.UNKNOWN_BYTES
    assert flush.buffer_bytes(4 * 2**30) == flush.MOST_BYTES


def test_the_flush_writes_a_whole_buffer_of_that_size_each_time():
    import torch

    run, size = flush.flusher(torch.device("cpu"))
    assert size == flush.buffer_bytes(flush.last_level_bytes(Files("/")))
    buffer = run.__closure__[0].cell_contents
    assert buffer.nbytes == size
    run()
    run()
    assert float(buffer[0]) == float(buffer[-1]) == 2.0


@pytest.mark.cuda
def test_a_gpus_flush_covers_its_l2_and_is_over_when_it_returns():
    import torch

    device = torch.device("cuda", 0)
    run, size = flush.flusher(device)
    assert size == 2 * torch.cuda.get_device_properties(device).L2_cache_size
    run()
    assert torch.cuda.current_stream(device).query()


def test_the_choice_is_recorded_and_compared(tmp_path):
    words = [
        "--rnns",
        "cudnn",
        "--device",
        "cpu",
        "--seqLength",
        "3",
        "--hiddenSize",
        "8",
        "--inputSize",
        "8",
    ]
    words += ["--miniBatch", "2", "--nloops", "3", "--env", "ignore", "--archive", str(tmp_path)]
    for choice in ("warm", "cold"):
        subprocess.run(
            [sys.executable, "-m", "fastrnns.bench", *words, "--cache", choice],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
        )
    warm, cold = (entry.record for entry in Archive(tmp_path).list())
    assert (warm["options"]["cache"], cold["options"]["cache"]) == ("warm", "cold")
    assert "flushed_bytes" not in warm["results"][0]["details"]
    assert cold["results"][0]["details"]["flushed_bytes"] >= 2**20
    done = subprocess.run(
        [sys.executable, "-m", "fastrnns.compare", warm["id"], cold["id"], "--archive", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert "cache (warm / cold)" in done.stderr
