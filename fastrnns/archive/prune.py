"""`archive prune`: lists what a rule would remove and why other records stay; removes it when told to."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from env import git
from fastrnns.archive import calibration, checking, comparable, record, removal, retention, store
from fastrnns.archive.naming import FILE_NAME
from fastrnns.archive.retention import Facts, Plan, Rule
from fastrnns.errors import HarnessError, UsageError

ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{12}(?![0-9a-f])")
AGE = re.compile(r"^(\d+)([hdw])$")
UNITS = {"h": "hours", "d": "days", "w": "weeks"}
BATCH = 256  # records between two looks at what was written meanwhile


def run(args: argparse.Namespace, now: datetime | None = None) -> int:
    """List, and with --yes remove; 1 where something of it stayed or the archive is not whole."""
    rule, now = _rule(args), now or datetime.now(timezone.utc)
    archive = store.Archive(args.archive)
    seen = _Seen(archive)
    seen.look()
    named = {archive.find(ref).id for ref in args.protect}
    protected = {facts.path: "it is named by --protect" for facts in seen.facts() if facts.id in named}
    protected |= _changed(archive.folder, seen.facts())
    plan = retention.judge(seen.facts(), rule, now, protected)
    if not args.json:
        _tell(plan)
    for text in seen.unread:
        print(f"archive: {text}", file=sys.stderr)
    removed: list[Facts] = []
    stayed: list[tuple[Facts, str]] = []
    if args.yes:
        if seen.unread:
            raise HarnessError(
                f"nothing was removed: what {len(seen.unread)} files that cannot be read refer to is not known; "
                "see archive check"
            )
        for facts, reason in _remove(seen, plan, rule, now, protected):
            if reason:
                stayed.append((facts, reason))
                print(f"archive: stays: {facts.path}: {reason}", file=sys.stderr)
            else:
                removed.append(facts)
    if args.json:
        print(json.dumps(_as_dict(plan, removed, stayed), indent=1))
    _sum_up(plan, removed if args.yes else None, len(seen.facts()) + len(removed))
    return 1 if stayed or seen.unread else 0


def _rule(args: argparse.Namespace) -> Rule:
    if args.older_than is None and args.keep is None:
        raise UsageError("a rule is missing; give --older-than AGE (90d), --keep N, or both")
    if args.keep is not None and args.keep < 1:
        raise UsageError(f"--keep is {args.keep}; give 1 or more")
    older = None
    if args.older_than is not None:
        found = AGE.match(args.older_than)
        with contextlib.suppress(OverflowError):
            older = timedelta(**{UNITS[found[2]]: int(found[1])}) if found else None
        if older is None:
            raise UsageError(
                f"--older-than is {args.older_than!r}; give a number with h, d or w, such as 90d"
            )
    return Rule(older, args.keep)


class _Seen:
    """The records of an archive as they are looked at, and looked at again for what was written meanwhile."""

    def __init__(self, archive: store.Archive) -> None:
        self.archive = archive
        self.unread: list[str] = []
        self._looked: set[Path] = set()
        self._found: dict[Path, tuple[int, Facts]] = {}

    def look(self) -> bool:
        """Read what is new; whether there was any."""
        new = [path for path in self.archive.files() if path not in self._looked]
        ids = {name[3] for path in self.archive.files() if (name := FILE_NAME.match(path.name))}
        for path in new:
            self._looked.add(path)
            try:
                self._found[path] = _read(path, ids)
            except HarnessError as error:
                self.unread.append(str(error))
        return bool(new)

    def forget(self, path: Path) -> None:
        """A record that is gone."""
        del self._found[path]

    def facts(self) -> list[Facts]:
        """What is there, oldest first."""
        keys = [
            store.Entry(
                path, {"sequence": sequence, "started_at": facts.started_at.isoformat(), "id": facts.id}
            )
            for path, (sequence, facts) in self._found.items()
        ]
        return [self._found[entry.path][1] for entry in store.in_order(keys)]


def _read(path: Path, ids: Iterable[str]) -> tuple[int, Facts]:
    if unlike := checking.unlike_a_file(path):
        raise HarnessError(f"{path}: {unlike}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise HarnessError(f"{path} cannot be read ({error.strerror}); check its permissions") from None
    found = record.parse(data, str(path))
    faults = [*checking.misplaced(store.Entry(path, found)), *checking.companions(path, found)]
    fault = faults[0].text if faults else "" if FILE_NAME.match(path.name) else "it is not named as a record"
    mentions = set(ID.findall(data.decode("ascii", "replace"))).intersection(ids) | set(_beginnings(found))
    pair = found["options"].get("pair")
    facts = Facts(
        path=path,
        id=found["id"],
        kind=found["kind"],
        started_at=datetime.fromisoformat(found["started_at"].replace("Z", "+00:00")),
        command=tuple(
            ID.sub("ID", word) for word in found["command"]["argv"]
        ),  # against whatever: one command
        bytes=len(data) + sum(each["bytes"] for each in found.get("files") or ()),
        file_sha256=hashlib.sha256(data).hexdigest(),
        mentions=frozenset(mentions - {found["id"]}),
        pair=None if pair is None else str(pair),
        calibrates=found["verdict"]["status"] != "invalid" and calibration.from_record(found) is not None,
        setting=comparable.series_key(found),
        thin=retention.thin(found),
        fault=f"{fault}; see archive check" if fault else "",
    )
    return found["sequence"], facts


def _beginnings(found: Mapping[str, Any]) -> Iterator[str]:
    """The words of its command that may be the beginning of an id."""
    for word in found["command"]["argv"]:
        text = word.rpartition("=")[2]
        if store.ID_PREFIX.match(text):
            yield text


def _changed(folder: Path, records: Sequence[Facts]) -> dict[Path, str]:
    """The records that git holds otherwise than they lie here, themselves or a file of theirs."""
    names = git.uncommitted(folder)
    if names is None:
        return {}
    changed = {(folder / name).absolute() for name in names}
    owners = changed | {path.parent.with_suffix(".json") for path in changed}
    reason = "git has it, with changes that are not committed"
    return {facts.path: reason for facts in records if facts.path.absolute() in owners}


def _remove(
    seen: _Seen, plan: Plan, rule: Rule, now: datetime, protected: Mapping[Path, str]
) -> Iterator[tuple[Facts, str]]:
    removal.end_leftovers(seen.archive.folder)
    left = list(plan.remove)
    while left:
        if seen.look():  # what was written since may refer to what was judged
            if seen.unread:
                raise HarnessError(f"the rest stays: {seen.unread[0]}")
            again = retention.judge(seen.facts(), rule, now, protected)
            still = {facts.path for facts in again.remove}
            why = {facts.path: reason for facts, reason in again.stay}
            for facts in left:
                if facts.path not in still:
                    yield facts, why.get(facts.path, "the rule names it no more")
            left = [facts for facts in left if facts.path in still]
        batch, left = left[:BATCH], left[BATCH:]
        for folder, group in itertools.groupby(batch, key=lambda facts: facts.path.parent):
            by_path = {facts.path: facts for facts in group}
            judged = [removal.Judged(path, facts.file_sha256) for path, facts in by_path.items()]
            for path, reason in removal.remove(folder, judged):
                if not reason:
                    seen.forget(path)
                yield by_path[path], reason


def _tell(plan: Plan) -> None:
    for facts in plan.remove:
        print(facts.path)
    sys.stdout.flush()
    for facts, reason in plan.stay:
        print(f"archive: stays: {facts.path}: {reason}", file=sys.stderr)


def _sum_up(plan: Plan, removed: Sequence[Facts] | None, total: int) -> None:
    chosen = plan.remove if removed is None else removed
    megabytes = sum(facts.bytes for facts in chosen) / 1e6
    what = f"{len(chosen)} of {total} records ({megabytes:.1f} MB)"
    if removed is not None:
        text = f"removed {what}"
    else:
        text = f"{what} would be removed; nothing was: --yes removes them" if chosen else "nothing to remove"
    print(f"archive: {text}; {len(plan.stay)} that the rule names stay", file=sys.stderr)


def _as_dict(plan: Plan, removed: Sequence[Facts], stayed: Sequence[tuple[Facts, str]]) -> dict[str, Any]:
    return {
        "remove": [
            {
                "path": str(facts.path),
                "id": facts.id,
                "kind": facts.kind,
                "started_at": facts.started_at.isoformat(),
                "bytes": facts.bytes,
            }
            for facts in plan.remove
        ],
        "stay": [
            {"path": str(facts.path), "id": facts.id, "reason": reason}
            for facts, reason in (*plan.stay, *stayed)
        ],
        "removed": [facts.id for facts in removed],
    }
