"""Taking the records of a fleet's jobs into one archive, each once, as it was written on its node."""

from __future__ import annotations

from pathlib import Path

from fastrnns.archive import store
from fastrnns.archive.store import Archive, Entry
from fastrnns.errors import HarnessError
from fastrnns.fleet import job


def take_in(archive: Archive, folder: Path) -> tuple[list[Entry], list[str]]:
    """Move the records that an attempt left in its folder into the archive; sentences on those that stay there.

    A record keeps its id and gets its sequence number in the archive, under the archive's lock. It is taken out of
    the folder only when it lies in the archive, so that nothing is lost whenever this ends, and what was taken in
    already is recognised by its id.
    """
    entries, faults = [], []
    for path in Archive(folder / job.RECORDS).files():
        try:
            name = store.read(path).id
            there = sorted(archive.folder.glob(f"*/*-{name}.json"))
            entries.append(store.read(there[0] if there else archive.add(path)))
        except HarnessError as error:
            faults.append(f"not in the archive: {error}")
        else:
            path.unlink()
    return entries, faults
