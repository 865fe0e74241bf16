"""The command line of the commands that run models, and its checks, before anything is touched."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastrnns import device as devices
from fastrnns import memory, runner, sizes, sweep
from fastrnns.errors import UsageError
from fastrnns.machine_flags import MachineFlags, add_machine_flags, machine_from
from fastrnns.measure import plan as planning
from fastrnns.sizes import Problem
from fastrnns.sweep import Point

FUSERS = ("te", "old", "none", "default")
EXECUTORS = ("profiling", "simple", "legacy", "default")
DEFAULT_SEED = 17  # upstream's test
COMPILE_LIMIT_SECONDS = 300.0  # torch.compile takes 40 s for 100 steps on two idle CPUs, and hours for 1500
MOST = 1_000_000  # of iterations or processes: past this a typing error is more likely


@dataclass(frozen=True)
class BenchOptions:
    """One bench command, every flag with its effective value."""

    argv: tuple[str, ...]
    models: tuple[str, ...]
    unsupported: tuple[tuple[str, str], ...]  # default models that cannot run this problem, and why
    problem: Problem
    device: devices.Device
    dtype: str
    tf32: bool
    seed: int
    fuser: str
    executor: str | None
    cuda_pointwise: dict[str, int | None]
    plan: planning.Plan
    machine: MachineFlags
    archive: Path | None
    print_json: str | None
    sep: str
    roofline: bool = False
    cache: str = "warm"
    compile_limit_s: float = COMPILE_LIMIT_SECONDS
    graph_replay: bool = False
    against: str | None = None
    ab: tuple[str, str] | None = None  # two interpreters
    sweep: tuple[str, ...] = ()  # axes of a grid of problems; `models` then name a model at each point

    def recorded(self) -> dict[str, Any]:
        """The options as the record holds them; null where the data decide."""
        return {
            "device": str(self.device),
            "dtype": self.dtype,
            "tf32": self.tf32,
            "seed": self.seed,
            "fuser": self.fuser,
            "executor": self.executor,
            "cuda_pointwise": self.cuda_pointwise,
            "models": list(self.models),
            "processes": self.plan.processes,
            "most_processes": self.plan.most_processes,
            "warmup": self.plan.warmup,
            "nloops": self.plan.nloops,
            "precision": self.plan.precision,
            "budget_s": self.plan.budget_s,
            **self.machine.recorded(),
            "print_json": self.print_json,
            "roofline": self.roofline,
            "cache": self.cache,
            "compile_limit_s": self.compile_limit_s,
            "graph_replay": self.graph_replay,
            "sweep": list(self.sweep),
        }


def spellings(name: str) -> tuple[str, ...]:
    """A flag of several words, with dashes and with underscores."""
    return (f"--{name}", f"--{name.replace('-', '_')}") if "-" in name else (f"--{name}",)


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what every command that runs models has: device, seed, products, the JIT's switches."""
    group = parser.add_argument_group("what runs")
    group.add_argument(
        "--device", default="auto", help="auto (the default: a GPU if there is one), cpu, cuda or cuda:N"
    )
    group.add_argument(
        "--dtype",
        choices=runner.DTYPES,
        default="fp32",
        help="number format; tf32: fp32 whose products cuDNN and cuBLAS may make in TF32 (default: fp32)",
    )
    group.add_argument(
        "--tf32",
        choices=("on", "off"),
        default="off",
        help="on: --dtype fp32 means --dtype tf32 on a GPU (default: off)",
    )
    group.add_argument("--seed", type=int, default=DEFAULT_SEED, help=f"default: {DEFAULT_SEED}")
    group.add_argument("--fuser", choices=FUSERS, default="te", help="TorchScript's fuser (default: te)")
    group.add_argument(
        "--executor", choices=EXECUTORS, default=None, help="TorchScript's executor, set over --fuser"
    )
    for knob in ("loop-level", "block-count", "block-size"):
        group.add_argument(
            *spellings(f"cuda-pointwise-{knob}"),
            type=int,
            default=None,
            metavar="N",
            help=f"TensorExpr's {knob.replace('-', ' ')} for pointwise CUDA kernels",
        )


def parser() -> argparse.ArgumentParser:
    """Build the bench command's parser; it answers --help without looking at the machine."""
    made = argparse.ArgumentParser(
        prog="python -m fastrnns.bench",
        description="Time LSTM and ResNet implementations: forward and backward, in milliseconds.",
        allow_abbrev=False,
    )
    models = made.add_argument_group("the models")
    for group in ("rnns", "cnns"):
        models.add_argument(
            f"--{group}",
            nargs="*",
            metavar="NAME",
            help=f"default: {' '.join(runner.DEFAULT[group])}"
            + (f", and on a GPU {' '.join(runner.DEFAULT_ON_GPU)}" if group == "rnns" else ""),
        )
    models.add_argument(
        "--group",
        nargs="*",
        choices=("cnns", "rnns", "modern"),
        help="which groups run (default: those whose models are named, and rnns and cnns when none is);"
        f" modern: {' '.join(runner.MODERN)}",
    )
    models.add_argument(
        *spellings("variable-lstms"), action="store_true", help=f"adds {' '.join(runner.VARIABLE)}"
    )
    models.add_argument("--list", action="store_true", help="print the models and what they are, and end")
    sizes.add_problem_flags(made).add_argument(
        "--sweep",
        nargs="+",
        metavar="NAME=VALUES",
        help="a grid of problems in one record, each model at each: hidden_size=128:2048:x2 mini_batch=16,64"
        " input_size=hidden_size; the sizes above hold for what is not swept",
    )
    add_run_flags(made)
    _add_measuring_flags(made)
    add_machine_flags(made)
    output = made.add_argument_group("the answer")
    output.add_argument(
        *spellings("print-json"),
        nargs="?",
        const="oss",
        choices=("oss", "pep"),
        help="print JSON alone on stdout, in upstream's shapes; the table goes to stderr",
    )
    output.add_argument(
        "--sep", default=" ", help="column separator; other than a space makes a table for programs"
    )
    verdict = output.add_mutually_exclusive_group()
    verdict.add_argument(
        "--against", metavar="RECORD", help="judge the result against a record, as fastrnns.compare does"
    )
    verdict.add_argument(
        "--ab",
        nargs=2,
        metavar=("BASE", "NEW"),
        help="measure two Python environments (interpreters, or folders of virtual environments), process by"
        " process in turn on the same machine, and judge NEW against BASE",
    )
    output.add_argument(
        "--roofline",
        action="store_true",
        help="add the share of the machine's limit that each model reaches; its ceilings are measured once"
        " and kept with --archive",
    )
    return made


def _add_measuring_flags(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("how it is measured")
    group.add_argument(
        "--warmup", type=int, metavar="N", help="untimed iterations (default: until they are steady)"
    )
    group.add_argument(
        "--nloops",
        type=int,
        metavar="N",
        help=f"timed iterations a process (default: until precise, {planning.ITERATIONS_CAP} at most);"
        " alone, it means one process",
    )
    group.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help=f"fresh processes (default: {planning.PROCESSES} to {planning.MOST_PROCESSES}, by how much they differ;"
        f" fewer only when --budget is spent)",
    )
    group.add_argument(
        "--precision",
        type=float,
        default=planning.PRECISION * 100,
        metavar="PERCENT",
        help="stop when the 95%% interval of the median is this narrow to either side (default: %(default)g)",
    )
    group.add_argument(
        "--cache",
        choices=("warm", "cold"),
        default="warm",
        help="what an iteration finds in the caches: what the one before left there (warm, the default), or nothing"
        " of it (cold: written over before each timed region, outside of it)",
    )
    group.add_argument(
        *spellings("graph-replay"),
        action="store_true",
        help="on a GPU: besides, capture each model that can be as CUDA graphs, and time their replay alone (device"
        " time), as phases of their own",
    )
    group.add_argument(
        *spellings("compile-limit"),
        type=float,
        default=COMPILE_LIMIT_SECONDS,
        metavar="SECONDS",
        help="longest that a model may take until its first iteration is done, compiling included, in one process;"
        " past it the model is given up (default: %(default)g)",
    )
    group.add_argument(
        "--budget",
        type=float,
        default=planning.BUDGET_SECONDS,
        metavar="SECONDS",
        help="for one model, over all processes; in a sweep at each point (default: %(default)g)",
    )


def bench_options(argv: Sequence[str], args: argparse.Namespace, *, elsewhere: bool = False) -> BenchOptions:
    """Check the whole command line; raise UsageError that says what is possible.

    `elsewhere`: it is for another machine, so that which GPUs and CPUs this one has does not matter.
    """
    problem = sizes.problem_from(args)
    plan = plan_from(args)
    device = devices.resolve(args.device, devices.Gpus(MOST) if elsewhere else None)
    chosen, named = chosen_models(args, device.type)
    dtype, tf32 = dtype_from(args, device.type)
    axes = sweep.axes_from(args.sweep or ())
    points = sweep.points_of(problem, axes)
    if axes:
        chosen = sweepable(chosen, named, points)
    models, unsupported = supported(chosen, named, points, device.type, dtype)
    if axes and not elsewhere:
        memory.foresee(points, dtype, device)
    machine = machine_from(args, device.type, elsewhere=elsewhere)
    check_archive(args.archive)
    return BenchOptions(
        argv=("python", "-m", "fastrnns.bench", *argv),
        models=models,
        unsupported=unsupported,
        problem=problem,
        device=device,
        dtype=dtype,
        tf32=tf32,
        seed=seed_from(args),
        fuser=args.fuser,
        executor=args.executor,
        cuda_pointwise=pointwise_from(args),
        plan=plan,
        machine=machine,
        archive=args.archive,
        print_json=args.print_json,
        sep=args.sep,
        roofline=args.roofline,
        cache=args.cache,
        compile_limit_s=args.compile_limit,
        graph_replay=graph_replay_from(args, device.type),
        against=args.against,
        ab=ab_from(args),
        sweep=tuple(sweep.recorded(axes)),
    )


def before_and_after(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command's own words, and those of bench after the first `--`."""
    words = list(argv)
    cut = words.index("--") if "--" in words else len(words)
    return words[:cut], words[cut + 1 :]


def plan_from(args: argparse.Namespace) -> planning.Plan:
    """The plan that the flags ask for; refuses counts that measure nothing."""
    for flag, least in (("nloops", 1), ("warmup", 0), ("processes", 1)):
        value = getattr(args, flag)
        if value is not None and not least <= value <= MOST:
            raise UsageError(f"--{flag} is {value}; it must be from {least} to {MOST}")
    if not 0 < args.precision <= 100:
        raise UsageError(
            f"--precision is {args.precision:g}; give a percentage above 0 and up to 100, such as 1"
        )
    if not 0 < args.budget <= 7 * 86400:
        raise UsageError(f"--budget is {args.budget:g}; give seconds above 0 and up to a week, such as 45")
    if not 0 < args.compile_limit <= 7 * 86400:
        raise UsageError(
            f"--compile-limit is {args.compile_limit:g}; give seconds above 0 and up to a week, such as 300"
        )
    return planning.plan_for(
        processes=args.processes,
        warmup=args.warmup,
        nloops=args.nloops,
        precision=args.precision / 100,
        budget_s=args.budget,
    )


def chosen_models(args: argparse.Namespace, device_type: str) -> tuple[list[str], set[str]]:
    """The models to run, in order and once each, and which of them were asked for by name."""
    named = {group: getattr(args, group) for group in ("rnns", "cnns")}
    for group, names in named.items():
        for name in names or ():
            runner.lookup(name, group)
    groups = args.group or [group for group in named if named[group]] or list(named)
    chosen: list[str] = []
    for group, names in named.items():
        if group in groups:
            chosen += names or runner.default(group, device_type)
    if "modern" in groups:
        chosen += runner.MODERN
    if args.variable_lstms:
        chosen += runner.VARIABLE
    asked = {name for names in named.values() for name in names or ()}
    return list(dict.fromkeys(chosen)), asked


def supported(
    chosen: Sequence[str], named: set[str], points: Sequence[Point], device_type: str, dtype: str
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The series, each a model at a point, that can run, and those of others with the reason.

    A model asked for by name that can run at no point is refused; what else cannot run is reported as unsupported.
    """
    able: list[str] = []
    unable: list[tuple[str, str]] = []
    for point in points:
        for name in chosen:
            series = sweep.series(name, point.label)
            try:
                runner.check_supported(runner.lookup(name), point.problem, device_type, dtype)
            except UsageError as error:
                unable.append((series, str(error)))
            else:
                able.append(series)
    missing = named - {sweep.parts(series)[0] for series in able}
    for series, reason in unable:
        if not able or sweep.parts(series)[0] in missing:
            raise UsageError(reason)
    return tuple(able), tuple(unable)


def sweepable(chosen: Sequence[str], named: set[str], points: Sequence[Point]) -> list[str]:
    """The models that a grid makes sense for; UsageError for one that was named, and for a grid too large."""
    sizeless = [name for name in chosen if runner.lookup(name).layers == "none"]
    if named.intersection(sizeless):
        raise UsageError(f"{sizeless[0]} has no sizes to sweep; name RNNs with --rnns")
    rest = [name for name in chosen if name not in sizeless]
    if len(points) * len(rest) > sweep.MOST_SERIES:
        raise UsageError(
            f"--sweep gives {len(points)} points for each of {len(rest)} models; {sweep.MOST_SERIES} series fit one "
            "record: take larger steps or fewer models"
        )
    return rest


def graph_replay_from(args: argparse.Namespace, device_type: str) -> bool:
    """Whether graphs are replayed too; UsageError on a device that has none."""
    if args.graph_replay and device_type != "cuda":
        raise UsageError(f"--graph-replay times CUDA graphs, and there are none on the {device_type}")
    return bool(args.graph_replay)


def dtype_from(args: argparse.Namespace, device_type: str) -> tuple[str, bool]:
    """The number format by name, and whether products may use TF32: one choice, however it was spelled."""
    dtype: str = args.dtype
    if args.tf32 == "on" and dtype in {"bf16", "fp16"}:
        raise UsageError(f"--tf32 on says how products of fp32 are made; leave it out with --dtype {dtype}")
    if args.tf32 == "on" and device_type == "cuda":
        dtype = "tf32"
    return dtype, args.tf32 == "on" or dtype == "tf32"


def ab_from(args: argparse.Namespace) -> tuple[str, str] | None:
    """The two interpreters of --ab; UsageError for one that is not there."""
    if args.ab is None:
        return None
    from fastrnns.environments import interpreter

    base, new = (interpreter(named) for named in args.ab)
    return base, new


def seed_from(args: argparse.Namespace) -> int:
    """The seed; 0 is one like any other."""
    seed: int = args.seed
    if not 0 <= seed < 2**63:
        raise UsageError(f"--seed is {seed}; it must be from 0 to 2**63 - 1")
    return seed


def pointwise_from(args: argparse.Namespace) -> dict[str, int | None]:
    """TensorExpr's knobs, as `fastrnns.fuser.CudaPointwise` names them."""
    knobs = {
        knob: getattr(args, f"cuda_pointwise_{knob}") for knob in ("loop_level", "block_count", "block_size")
    }
    for knob, value in knobs.items():
        if value is not None and value < 1:
            raise UsageError(f"--cuda-pointwise-{knob.replace('_', '-')} is {value}; it must be at least 1")
    return knobs


def check_archive(archive: Path | None) -> None:
    """Refuse an archive that could not be written to at the end."""
    if archive is not None:
        from fastrnns.archive.store import Archive

        Archive(archive).preflight()
