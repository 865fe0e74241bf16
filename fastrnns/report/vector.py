"""How pictures look, and how a drawn figure becomes SVG inside a page, an SVG file or a PNG file."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fastrnns.archive.listing import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Of the palette of Okabe and Ito, told apart by the colour-blind; each has a contrast of 3 to white and to the
# page's dark ground, so that a picture with many dots can be a bitmap and still serve both.
BLUE, VERMILION, GREEN, PURPLE = "#1a7fc1", "#d55e00", "#0e9a72", "#b8659a"
PHASE_COLOURS = {"forward": BLUE, "backward": VERMILION, "forward_graph": GREEN, "backward_graph": PURPLE}
# What has to turn with the theme; in a page these become variables of its style.
INK, SOFT, GRID, PAPER = "#1c2126", "#5a636d", "#d3d9df", "#fefefe"
VARIABLES = {INK: "--ink", SOFT: "--soft", GRID: "--grid", PAPER: "--paper"}
# A layer with more marks than this is a bitmap inside the vector picture: each mark is still drawn, none is
# dropped or averaged, and a browser opens it at once.
MOST_VECTOR_MARKS = 2000
EDGE = 0.7
LEAST_SPREAD = 5  # of the largest to the smallest, for a logarithmic scale to help
BITMAP_DPI = 220
PNG_DPI = 200
CLASSES = ("warmup",)  # groups that the page's switches hide

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: small, sharp, and can be searched for
    "text.parse_math": False,  # a model may be called $x$
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "figure.facecolor": "none",
    "figure.dpi": 72,
    "path.simplify": False,  # simplifying would drop samples
    "axes.formatter.useoffset": False,
}


@contextmanager
def styled(name: str = "report") -> Iterator[None]:
    """Draw, or save, in the house's style; `name` makes the ids in an SVG the same each time."""
    import matplotlib as mpl

    settings: Any = {**STYLE, "svg.hashsalt": name}
    with mpl.rc_context(settings):
        yield


def figure(width: float, height: float, *, fitted: bool = False) -> Figure:
    """An empty figure of a size in inches (of 72 units in a page); `fitted` is slow, and finds its own margins."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained" if fitted else None)


def dots(axes: Axes, x: Any, y: Any, *, colour: str, size: float = 4) -> None:
    """One dot for every value."""
    line = axes.plot(
        x, y, linestyle="none", marker=".", markersize=size, color=colour, markeredgewidth=EDGE,
        rasterized=len(y) > MOST_VECTOR_MARKS,
    )[0]  # fmt: skip
    line.set_gid(f"dots-{size / 2 + EDGE:g}")  # the diameter; a point marker is half as wide as its size


def marks(
    axes: Axes,
    x: Any,
    y: Any,
    *,
    colour: str,
    marker: str,
    size: float = 4,
    name: str = "",
    fill: str = "none",
) -> None:
    """One mark for every value, of another shape than a dot; a page can hide what has a `name`."""
    axes.plot(
        x, y, linestyle="none", marker=marker, markersize=size, color=colour, markeredgewidth=EDGE, gid=name or None,
        markerfacecolor=fill if marker == "o" else colour, rasterized=len(y) > MOST_VECTOR_MARKS, clip_on=False,
    )  # fmt: skip


def scale_ms(axis: Any, values: Iterable[float]) -> None:
    """Milliseconds on an axis: logarithmic where they spread."""
    found = [value for value in values if not math.isnan(value)]
    if not found or min(found) <= 0 or max(found) / min(found) < LEAST_SPREAD:
        axis.set_label_text("ms")
        return
    scale_log(axis)
    axis.set_label_text("ms (logarithmic)")


def scale_log(axis: Any) -> None:
    """A logarithmic axis with numbers in place of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def inline(drawn: Figure, name: str) -> str:
    """A figure as SVG for a page: small, no id that another picture has, and colours that follow the theme."""
    text = _saved(drawn, name)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(
        r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', text, count=1
    )
    text = re.sub(
        r"<style.*?</style>| font-family: [^;\"]*;?", "", text, flags=re.DOTALL
    )  # the page has its own
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r' xlink:href="', ' href="', text)
    text = re.sub(r'(?<=[ "])(-?\d+\.\d\d)\d+', r"\1", text)
    text = re.sub(r'<g id="dots-([\d.]+)">(.*?</g>)\s*</g>', _as_one_path, text, flags=re.DOTALL)
    text = re.sub(rf'<g id="({"|".join(CLASSES)})"', r'<g class="\1"', text)
    text = re.sub(r'<g id="[\w.]+_\d+"', "<g", text)
    text = re.sub(r'( id="| href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r">\s+<", "><", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text


def _as_one_path(group: re.Match[str]) -> str:
    """A dot is a stroke of no length with round ends: a fifth of the bytes of a `use` element each."""
    clip = re.search(r'clip-path="[^"]*"', group[2])
    uses = re.findall(r'<use href="[^"]*" x="([^"]*)" y="([^"]*)" style="[^"]*?stroke: ([^;"]*)', group[2])
    if not uses:  # a bitmap
        return group[0]
    places = "".join(f"M{float(x):.1f} {float(y):.1f}h0" for x, y, _ in uses)
    return (
        f'<path {clip[0] if clip else ""} d="{places}" style="fill: none; stroke: {uses[0][2]}; '
        f'stroke-width: {group[1]}; stroke-linecap: round"/>'
    )


def svg(drawn: Figure, title: str) -> bytes:
    """A figure with its title as a file of its own, on white."""
    _titled(drawn, title)
    return _saved(drawn, title, bbox_inches="tight").encode()


def png(drawn: Figure, title: str) -> bytes:
    """The same as a bitmap for slides."""
    _titled(drawn, title)
    data = io.BytesIO()
    with styled():
        drawn.savefig(data, format="png", dpi=PNG_DPI, bbox_inches="tight", metadata={"Software": None})
    return data.getvalue()


def _titled(drawn: Figure, title: str) -> None:
    """What stands in a page above the picture, and the ground that a page has."""
    drawn.set_facecolor("white")
    with styled():
        drawn.text(0.01, 1.01, plain(title), fontsize=11, fontweight="bold", va="bottom", color=INK)


def _saved(drawn: Figure, name: str, **options: Any) -> str:
    data = io.StringIO()
    with styled(name):
        drawn.savefig(data, format="svg", dpi=BITMAP_DPI, metadata={"Date": None, "Creator": None}, **options)
    return data.getvalue()
