"""The report in a real browser: it loads alone and without complaint, its switches work, and all can use it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fastrnns.archive import compare, store
from fastrnns.present.table import number
from fastrnns.report import comparison, history, page, single
from tests import browser, records
from tests.test_report import H200, HOSTILE, PROFILE, timed
from tests.test_report_several import measured

pytestmark = pytest.mark.skipif(browser.lacking() is not None, reason=str(browser.lacking()))

HEADINGS = "[...document.querySelectorAll('#table-{0} thead button')].map(b => b.textContent.trim())"
CELLS = "[...document.querySelectorAll('#table-{0} tbody tr')].map(r => [...r.cells].map(c => c.textContent.trim()))"
VISIBLE = "[...document.querySelectorAll('{0}')].filter(e => e.checkVisibility() && e.getClientRects().length).length"


@dataclass
class Opened:
    """A page as a test sees it, with everything that it said or asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def rows(self, name: str) -> list[dict[str, str]]:
        headings = self.page.evaluate(HEADINGS.format(name))
        return [dict(zip(headings, cells, strict=True)) for cells in self.page.evaluate(CELLS.format(name))]

    def visible(self, selector: str) -> int:
        return int(self.page.evaluate(VISIBLE.format(selector)))


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """One page of each kind, written as files."""
    folder = tmp_path_factory.mktemp("pages")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("MPLCONFIGDIR", str(folder))
    days = [measured(1.0 if day < 9 else 1.3, day, seed=day) for day in range(1, 17)]
    hostile = records.bench(
        results=[
            timed() | {"model": HOSTILE, "notes": [HOSTILE]},
            records.result("x", status="failed", error=HOSTILE),
        ],
        verdict={"status": "tainted", "reasons": [HOSTILE]},
        command={"argv": [HOSTILE]},
    )
    made = {
        "profile": single.page(store.read(PROFILE).record),
        "single": single.page(store.read(H200).record),
        "comparison": comparison.page(compare.compare(days[0], days[-1]), days[0], days[-1]),
        "history": history.page(days),
        "hostile": single.page(hostile),
    }
    for name, each in made.items():
        (folder / f"{name}.html").write_text(page.html(each), encoding="utf-8")
    monkeypatch.undo()
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as running:
        yield running


@pytest.fixture
def show(chromium, pages):
    """Open a page of a kind in a fresh context."""
    contexts = []

    def opened(name: str, *, width: int = 1200, **options: Any) -> Opened:
        context = chromium.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        found = Opened(context.new_page())
        found.page.on("console", lambda message: found.said.append(message.text))
        found.page.on("pageerror", lambda error: found.said.append(str(error)))
        found.page.on("dialog", lambda dialog: (found.said.append(dialog.message), dialog.dismiss()))
        found.page.on("request", lambda request: found.asked.append(request.url))
        found.page.goto(pages[name].as_uri(), wait_until="load")
        return found

    yield opened
    for context in contexts:
        context.close()


KINDS = ("single", "profile", "comparison", "history", "hostile")


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_loads_without_a_word_on_the_console_and_asks_for_nothing_else(show, pages, kind):
    found = show(kind)
    found.page.wait_for_timeout(100)
    assert found.said == []
    assert [url for url in found.asked if not url.startswith("data:")] == [pages[kind].as_uri()]


def test_the_right_figures_stand_in_the_right_cells(show):
    shown = {(row["model"], row["phase"]): row for row in show("single").rows("results")}
    for result in store.read(H200).record["results"]:
        for phase in ("forward", "backward"):
            facts, row = result[phase], shown.pop((result["model"], phase))
            assert row["median ms"] == number(facts["median"])
            assert row["95 % interval"] == f"{number(facts['ci95'][0])}-{number(facts['ci95'][1])}"
            assert [row["min"], row["mean"], row["std"]] == [
                number(facts[key]) for key in ("min", "mean", "std")
            ]
            assert row["n"] == str(facts["n"])
    assert shown == {}


def test_a_column_is_sorted_by_its_numbers_up_and_down_and_dashes_stay_last(show):
    found = show("single")
    before = {(row["model"], row["phase"]) for row in found.rows("results")}
    button = found.page.get_by_role("button", name="median ms").first
    for order, reverse in (("ascending", False), ("descending", True)):
        button.click()
        head = found.page.locator("#table-results th[aria-sort]")
        assert head.count() == 1
        assert head.get_attribute("aria-sort") == order
        times = [float(row["median ms"]) for row in found.rows("results")]
        assert times == sorted(times, reverse=reverse)
    assert {(row["model"], row["phase"]) for row in found.rows("results")} == before
    ratio = found.page.get_by_role("button", name="ratio").first
    for _ in range(2):
        ratio.click()
        known = [row["ratio"] != "-" for row in found.rows("results")]
        assert known == sorted(known, reverse=True)
        assert not all(known)
    assert "Sorted by ratio, descending" in found.page.inner_text("#said")


def test_the_switches_hide_and_show_rows_and_pictures_of_a_phase_and_of_a_model(show):
    found = show("single")
    assert (found.visible("#table-results tbody tr"), found.visible("#samples figure")) == (24, 24)
    found.page.get_by_label("backward", exact=True).uncheck()
    assert (found.visible("#table-results tbody tr"), found.visible("#samples figure")) == (12, 12)
    found.page.get_by_label("jit", exact=True).uncheck()
    assert (found.visible("#table-results tbody tr"), found.visible("#samples figure")) == (11, 11)
    assert "rows are hidden" in found.page.inner_text("#said")
    found.page.get_by_label("jit", exact=True).check()
    found.page.get_by_label("backward", exact=True).check()
    assert (found.visible("#table-results tbody tr"), found.visible("#samples figure")) == (24, 24)


def test_the_switch_of_the_warm_up_hides_its_marks_and_only_those(show):
    found = show("single")
    marks, dots = found.visible("svg .warmup"), found.visible("#samples svg path")
    assert marks > 24
    found.page.get_by_label("warm-up").uncheck()
    assert found.visible("svg .warmup") == 0
    assert 0 < found.visible("#samples svg path") <= dots


def test_hostile_strings_are_read_and_not_run(show):
    found = show("hostile")
    assert found.page.locator("img").count() == 0
    assert found.page.locator("script").count() == 1
    assert "</script><img src=x onerror=alert(1)>&$\\frac$" in found.page.inner_text("#verdict")
    assert found.rows("results")[0]["model"].startswith("</script><img")
    found.page.get_by_role("checkbox").last.uncheck()  # its name is hostile in an attribute too
    assert found.said == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_phone_shows_a_page_without_moving_it_sideways(show, kind):
    found = show(kind, width=400)
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 400


def test_all_is_reached_and_worked_by_keyboard(show):
    found = show("comparison")
    found.page.keyboard.press("Tab")
    assert found.page.evaluate("document.activeElement.className") == "skip"
    found.page.keyboard.press("Enter")
    assert found.page.evaluate("document.activeElement.id") == "main"
    found.page.locator("#table-verdicts thead button").nth(1).focus()
    found.page.keyboard.press("Enter")
    assert (
        found.page.locator("#table-verdicts th[aria-sort=ascending]").inner_text().strip().startswith("phase")
    )
    found.page.get_by_label("backward", exact=True).focus()
    found.page.keyboard.press("Space")
    assert not found.page.get_by_label("backward", exact=True).is_checked()


def test_a_page_follows_the_theme_and_its_pictures_with_it(show):
    colours = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('svg text')).fill]"
    light = show("single", color_scheme="light").page.evaluate(colours)
    dark = show("single", color_scheme="dark").page.evaluate(colours)
    assert light[0] == "rgb(255, 255, 255)"
    assert light[0] != dark[0]
    assert light[1] != dark[1]


def test_paper_has_everything_open_no_switches_and_dark_on_white(show):
    found = show("single", color_scheme="dark")
    found.page.emulate_media(media="print")
    found.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert found.visible(".switches") == 0
    assert found.visible("nav") == 0
    assert found.visible("details > div, #table-fingerprint-hardware") > 0
    assert found.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    found.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert found.visible("#table-fingerprint-hardware") == 0


def test_without_scripts_a_page_still_tells_all_and_shows_no_dead_switch(show, pages):
    found = show("single", java_script_enabled=False)
    assert found.page.locator("#table-results tbody tr").count() == 24
    assert not found.page.locator(".switches").is_visible()
    assert found.page.locator("#samples figure svg").count() == 24


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_no_serious_fault(show, kind, scheme):
    from axe_playwright_python.sync_playwright import Axe

    found = show(kind, color_scheme=scheme, width=1200 if scheme == "light" else 400)
    found.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    answer = Axe().run(found.page).response
    assert len(answer["passes"]) > 20  # it looked
    faults = answer["violations"]
    bad = [
        f"{fault['id']}: {fault['help']}: {fault['nodes'][0]['html'][:200]} {fault['nodes'][0]['failureSummary']}"
        for fault in faults
        if fault["impact"] in {"serious", "critical"}
    ]
    assert bad == []
