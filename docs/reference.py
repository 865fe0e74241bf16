"""Write the reference pages from the code: every command's flags from its parser, the record's keys from its schema.

python docs/reference.py            # write docs/reference-*.md
python docs/reference.py --check    # exit 1 where a page is not what the code says
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))
SCHEMA = DOCS.parent / "fastrnns/archive/record.schema.json"
COMMANDS = {  # what a person types: the module that makes its parser
    "python -m env": "env.__main__",
    "python -m fastrnns.bench": "fastrnns.options",
    "python -m fastrnns.test": "fastrnns.verify.flags",
    "python -m fastrnns.profile": "fastrnns.profiling.flags",
    "python -m fastrnns.compare": "fastrnns.compare",
    "python -m fastrnns.calibrate": "fastrnns.calibrate",
    "python -m fastrnns.reproduce": "fastrnns.reproduce",
    "python -m fastrnns.matrix": "fastrnns.matrix.flags",
    "python -m fastrnns.fleet": "fastrnns.fleet.flags",
    "python -m fastrnns.archive": "fastrnns.archive.__main__",
}
NOTE = "*Written from the code by `docs/reference.py`; a test fails when it is stale.*\n"


def commands() -> str:
    """The page of all commands and flags."""
    lines = ["# Commands and flags\n", NOTE]
    for program, module in COMMANDS.items():
        parser = importlib.import_module(module).parser()
        lines.append(f"## `{program}`\n")
        lines += _section(parser)
        for name, sub in _subcommands(parser):
            lines.append(f"### `{program} {name}`\n")
            lines += _section(sub)
    return "\n".join(lines)


def _section(parser: argparse.ArgumentParser) -> Iterator[str]:
    if parser.description:
        yield _plain(parser.description) + "\n"
    rows = [action for action in parser._actions if _shown(action)]
    if rows:
        yield "| flag | meaning |"
        yield "|---|---|"
        for action in rows:
            yield f"| {_flag(action)} | {_cell(_plain(_help(action)))} |"
        yield ""


def _shown(action: argparse.Action) -> bool:
    hidden = isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
    return not hidden and action.help is not argparse.SUPPRESS


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _flag(action: argparse.Action) -> str:
    value = action.metavar
    if isinstance(value, tuple):
        value = " ".join(value)
    if value is None and action.choices is not None:
        value = "|".join(map(str, action.choices)) if len(list(action.choices)) < 12 else "N"
    if value is None and action.nargs != 0:
        value = action.dest.upper()
    names = ", ".join(action.option_strings) or str(value)
    shown = f"{names} {value}" if action.option_strings and value and action.nargs != 0 else names
    return "`" + shown.replace("|", "\\|") + "`"


def _help(action: argparse.Action) -> str:
    facts = {**vars(action), "prog": ""}
    return (action.help or "") % facts


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def record() -> str:
    """The page of the record's keys."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    lines = ["# The record\n", NOTE]
    lines.append("One JSON object, strict (no NaN), validated on write and on read. Schema version: 1.\n")
    lines += _keys("the record", schema)
    for name, part in schema["$defs"].items():
        if part.get("properties"):
            lines += _keys(name, part)
    return "\n".join(lines)


def _keys(name: str, part: dict[str, Any]) -> Iterator[str]:
    yield f"## {name}\n"
    yield "| key | kind | meaning |"
    yield "|---|---|---|"
    needed = set(part.get("required") or ())
    for key, facts in part["properties"].items():
        mark = "" if key in needed or not needed else " (may be absent)"
        yield f"| `{key}` | {_cell(_kind(facts))}{mark} | {_cell(_plain(facts.get('description', '')))} |"
    yield ""


def _kind(facts: dict[str, Any]) -> str:
    if "$ref" in facts:
        return str(facts["$ref"]).rpartition("/")[2]
    if "enum" in facts:
        return ", ".join(map(str, facts["enum"]))
    if "const" in facts:
        return str(facts["const"])
    for key in ("oneOf", "anyOf"):
        if key in facts:
            return " or ".join(_kind(each) for each in facts[key])
    kind = facts.get("type", "anything")
    text = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return f"{text} of {_kind(facts['items'])}" if "items" in facts and text.startswith("array") else text


PAGES = {"reference-commands.md": commands, "reference-record.md": record}


def main() -> int:
    """Write the pages, or say which are stale."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page is stale")
    args = parser.parse_args()
    stale = []
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not args.check:
                path.write_text(text, encoding="utf-8")
    if args.check and stale:
        print(f"stale: {', '.join(stale)}; run python docs/reference.py", file=sys.stderr)
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
