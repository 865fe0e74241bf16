"""`bench --against` and `--ab`: refuse beforehand what could not be compared, and judge what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastrnns.errors import MachineError

if TYPE_CHECKING:
    from fastrnns.archive.compare import Comparison
    from fastrnns.options import BenchOptions

HOME = "results"  # the archive that is searched where none is named


def base_for(options: BenchOptions) -> dict[str, Any]:
    """The record of --against; MachineError, with the field, where this run could not be compared with it.

    What only the worker knows (threads, products) is taken to be as there: it is judged afterwards.
    """
    from env import fingerprint
    from fastrnns import compare
    from fastrnns.archive import comparable, pool, store

    archive = store.Archive(options.archive or HOME)
    base: dict[str, Any] = pool.pooled(compare.load(str(options.against), archive))
    foreseen = {
        "kind": "bench",
        "problem": options.problem.as_dict(),
        "options": {**(base.get("options") or {}), **options.recorded()},
        "fingerprint": fingerprint.complete(fingerprint.collect()),
    }
    refused = comparable.refusals(base, foreseen)
    if refused:
        raise MachineError(
            f"--against {options.against}: not comparable: {comparable.sentence(refused)}; choose a record of this"
            " machine and problem, or change the flags"
        )
    return base


def judged(
    base: dict[str, Any], new: dict[str, Any], options: BenchOptions, margin: float | None = None
) -> Comparison:
    """The comparison, with the noise floor of this machine where it was calibrated."""
    from fastrnns.archive import calibration, compare, store

    archive = store.Archive(options.archive or HOME)
    known = None
    if archive.folder.is_dir():
        known = calibration.find((entry.record for entry in archive.list(calibration.KIND)), new)
    return compare.compare(base, new, margin=compare.MARGIN if margin is None else margin, calibration=known)
