"""The command line of a profile, and the plan that it stands for."""

from __future__ import annotations

import argparse

from fastrnns import device as devices
from fastrnns import fuser, runner
from fastrnns.errors import UsageError
from fastrnns.machine_flags import add_machine_flags
from fastrnns.profiling import plan as plans
from fastrnns.profiling import tools
from fastrnns.sizes import add_problem_flags, problem_from

DESCRIPTION = (
    "Where the time of a model goes, by the best profiler that works here, and how far the limit is."
)


def parser() -> argparse.ArgumentParser:
    """The command line: upstream's flags, and ours."""
    found = argparse.ArgumentParser(
        prog="python -m fastrnns.profile", description=DESCRIPTION, allow_abbrev=False
    )
    add_problem_flags(found)
    models = found.add_argument_group("what runs")
    models.add_argument("--rnns", nargs="*", metavar="NAME", help="models (default: cudnn aten jit)")
    models.add_argument("--cnns", nargs="*", metavar="NAME", help="convolutional networks (default: none)")
    models.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    models.add_argument("--dtype", default="fp32", choices=runner.DTYPES)
    models.add_argument(
        "--tf32", default="off", choices=("on", "off"), help="for cuDNN and matrix products alike"
    )
    models.add_argument("--fuser", default="te", choices=fuser.FUSERS)
    models.add_argument("--executor", choices=fuser.EXECUTORS)
    models.add_argument("--seed", type=int, default=plans.SEED)
    models.add_argument(
        "--threads", type=int, metavar="N", help="threads of PyTorch (default: one a bench CPU)"
    )
    how = found.add_argument_group("how it is profiled")
    how.add_argument(
        "--tool", default="auto", metavar="TOOL", help=f"auto, {', '.join(tools.TOOLS)} (default: auto)"
    )
    how.add_argument(
        "--nloops", type=int, default=plans.NLOOPS, metavar="N", help="profiled iterations (default: 5)"
    )
    how.add_argument(
        "--warmup", type=int, default=plans.WARMUP, metavar="N", help="iterations before (default: 5)"
    )
    how.add_argument(
        "--sleep-between-seconds",
        "--sleep_between_seconds",
        type=float,
        default=plans.SLEEP_SECONDS,
        metavar="S",
        help="pause between models (default: 1)",
    )
    how.add_argument(
        "--launches",
        type=int,
        default=plans.LAUNCHES,
        metavar="N",
        help="kernels that ncu looks at, a quarter of a second each (default: %(default)s)",
    )
    how.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="of one run of an external tool"
    )
    how.add_argument(
        "--roofline",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="measure the machine's ceilings (default: with --archive, where it has none)",
    )
    how.add_argument(
        "--internal-run",
        "--internal_run",
        action="store_true",
        help="the profiled child: run one model, under no profiler of its own",
    )
    add_machine_flags(found)
    where = found.add_argument_group("the answer")
    where.add_argument("--against", metavar="RECORD", help="an earlier profile: path, id, latest or latest~N")
    where.add_argument("--json", action="store_true", help="print the record")
    where.add_argument(
        "--verbose", action="store_true", help="print the JIT's optimised graph and what it fused"
    )
    return found


def plan_from(args: argparse.Namespace) -> plans.Plan:
    """The plan of a command line; refuses what cannot run before anything is touched."""
    problem = problem_from(args)
    for name, least in (("nloops", 1), ("warmup", 0), ("launches", 1), ("threads", 1)):
        value = getattr(args, name)
        if value is not None and value < least:
            raise UsageError(f"--{name} is {value}; it must be at least {least}")
    if args.sleep_between_seconds < 0 or args.timeout <= 0:
        raise UsageError("--sleep-between-seconds and --timeout are seconds; they cannot be negative")
    rnns = plans.DEFAULT_MODELS if args.rnns is None and args.cnns is None else tuple(args.rnns or ())
    models = [runner.lookup(name, "rnns") for name in rnns] + [
        runner.lookup(name, "cnns") for name in args.cnns or ()
    ]
    if not models:
        raise UsageError("no model is named; leave --rnns out for cudnn, aten and jit")
    device = devices.resolve(args.device)
    for model in models:
        runner.check_supported(model, problem, device.type, args.dtype)
    choice = tools.Choice("none", None, "the profiled child", {})
    if not args.internal_run:
        choice = tools.choose(args.tool, tools.find_facts(device.type, _capability(device)))
    return plans.Plan(
        models=tuple(dict.fromkeys(model.name for model in models)),
        problem=problem,
        choice=choice,
        device=str(device),
        dtype=args.dtype,
        tf32=args.tf32 == "on" or args.dtype == "tf32",
        fuser=args.fuser,
        executor=args.executor,
        seed=args.seed,
        warmup=args.warmup,
        nloops=args.nloops,
        sleep_s=args.sleep_between_seconds,
        threads=args.threads,
        launches=args.launches,
        timeout_s=args.timeout,
    )


def _capability(device: devices.Device) -> tuple[int, int] | None:
    if device.type != "cuda":
        return None
    from env import gpu

    indices = gpu.visible()
    wanted = indices[device.index or 0] if len(indices) > (device.index or 0) else None
    for found in gpu.gpus().value or []:
        if found.index == wanted and found.compute_capability:
            major, _, minor = found.compute_capability.partition(".")
            return int(major), int(minor)
    return None
