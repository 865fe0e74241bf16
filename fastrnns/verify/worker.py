"""One fresh process that checks models: takes a job, imports torch, and tells what each check found."""

from __future__ import annotations

import contextlib
import gc
import sys
import traceback
import warnings
from typing import Any

from fastrnns import runner
from fastrnns.measure import wire
from fastrnns.measure.worker import hello, one_line, prepare
from fastrnns.sizes import Problem


def main() -> int:
    """Serve one job; a model that raises is a failed model, and the next one is checked."""
    job = wire.read_job()
    if job.get("stop"):
        return 0
    warnings.filterwarnings("ignore", message=".*torch.jit.*")  # TorchScript's rows are marked legacy
    import torch

    from fastrnns import fuser, precision
    from fastrnns.verify.checks import Settings, Verifier

    device = prepare(torch, job)
    pointwise = fuser.CudaPointwise(**job["cuda_pointwise"])
    # Both sides of a comparison must take the same algorithm; the verification is timed by nobody.
    torch.backends.cudnn.deterministic = True
    with (
        precision.tf32(job["tf32"]),
        fuser.fusers_and_executor(job["fuser"], job["executor"], pointwise),
    ):
        wire.emit(
            hello(torch, device, 0.0, 0.0) | {"cudnn_deterministic": torch.backends.cudnn.deterministic}
        )
        verifier = Verifier(
            Settings(
                problem=Problem(**job["problem"]),
                device=device,
                dtype=job["dtype"],
                seed=job["seed"],
                check_grad=job["check_grad"],
                images=job["images"],
                image_size=job["image_size"],
            )
        )
        for name in job["models"]:
            check(verifier, name, device, job)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
            if (wire.read_message() or {}).get("stop"):
                break
    wire.emit({"event": "done"})
    return 0


def check(verifier: Any, name: str, device: Any, job: dict[str, Any]) -> None:
    """Check one model and tell what was found."""
    wire.emit({"event": "model_start", "model": name})
    model = runner.lookup(name)
    reason = runner.unsupported_reason(model, device.type)
    if reason is not None:
        wire.emit({"event": "model_failed", "model": name, "status": "unsupported", "error": reason})
        return
    try:
        found = verifier.verify(model)
        backend = runner.backend(model, device, job["dtype"])
    except Exception as error:
        traceback.print_exc()  # to stderr, whose tail the parent keeps
        wire.emit(
            {
                "event": "model_failed",
                "model": name,
                "status": runner.status_of(model, error),
                "error": one_line(error),
            }
        )
        return
    wire.emit(
        {
            "event": "checked",
            "model": name,
            "ok": found.ok,
            "backend": backend,
            "notes": found.notes,
            "checks": [one.as_dict() for one in found.checks],
        }
    )
    if job["verbose"] and model.legacy:
        from fastrnns.jit_graph import optimised_graph

        with contextlib.suppress(RuntimeError):
            wire.emit({"event": "graph", "model": name, "graph": optimised_graph()})


if __name__ == "__main__":
    sys.exit(main())
