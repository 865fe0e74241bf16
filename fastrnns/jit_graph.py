"""The graph that TorchScript really ran, and what of it was fused."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

GROUPS = ("TensorExprGroup", "CudaFusionGroup", "FusionGroup", "DifferentiableGraph")
_SUBGRAPH = re.compile(r"^\s*with (prim::\w+?_\d+) = graph\(")
_OPERATOR = re.compile(r"= ((?:aten|prim|prims|fb|quantized)::\w+)(?:\[|\()")
_BOOKKEEPING = {f"prim::{name}" for name in (
    "Constant", "ListConstruct", "ListUnpack", "TupleConstruct", "TupleUnpack", "If", "Loop", "profile",
    "TypeCheck", "GetAttr", "RequiresGradCheck", "BailOut",
)}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """One part of the graph that the JIT cut out: a fused kernel, or a part it differentiates itself."""

    name: str  # prim::TensorExprGroup_0
    operators: tuple[str, ...]  # what is inside, in order

    @property
    def kind(self) -> str:
        """The name without its number."""
        return self.name.rpartition("_")[0].removeprefix("prim::")

    @property
    def fused(self) -> bool:
        """Whether it runs as one kernel; a DifferentiableGraph does not."""
        return self.kind != "DifferentiableGraph"


def optimised_graph() -> str:
    """The graph that the JIT ran last in this process, after its optimisations; empty when it ran none."""
    import torch

    try:
        return str(torch._C._last_executed_optimized_graph())  # noqa: SLF001  it has no public name
    except RuntimeError:
        return ""


def groups(graph: str) -> list[Group]:
    """The groups of a printed graph with the operators in each."""
    found: list[Group] = []
    name, inside = "", list[str]()
    for line in graph.splitlines():
        start = _SUBGRAPH.match(line)
        if start:
            if name:
                found.append(Group(name, tuple(inside)))
            name, inside = start[1], []
        elif name:
            inside += [op for op in _OPERATOR.findall(line) if op not in _BOOKKEEPING]
    if name:
        found.append(Group(name, tuple(inside)))
    return [group for group in found if group.kind in GROUPS]


def describe(graph: str) -> str:
    """What was fused, one line a group, for a person."""
    if not graph.strip():
        return "the JIT ran no graph"
    found = groups(graph)
    fused = [group for group in found if group.fused]
    lines = [f"fused into one kernel ({group.kind}): {_counted(group.operators)}" for group in fused] or [
        "nothing was fused"
    ]
    differentiable = len(found) - len(fused)
    if differentiable:
        lines.append(f"differentiated by the JIT: {differentiable} part{'s' if differentiable > 1 else ''}")
    return "\n".join(lines)


def _counted(operators: tuple[str, ...]) -> str:
    return ", ".join(
        op.removeprefix("aten::") + (f" x{times}" if times > 1 else "")
        for op, times in Counter(operators).items()
    ) or "no operators"  # fmt: skip
