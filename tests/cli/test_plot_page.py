"""The page of `keyedwm plot` in a real browser: no error, and its panels zoom together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from keyedwm.cli.plot import page_of
from keyedwm.cli.plot.history import Bars, Histories, History, Track, Unit, bounds_of
from tests.support.browser import Browser, browser, is_there

T_MS, STEP_MS, COUNT = 1_700_000_000_000, 1_000, 101
pytestmark = pytest.mark.skipif(not is_there(), reason="needs Debian's packages chromium and chromium-driver")


def history(name: str, partitions: int) -> History:
    at = tuple(T_MS + STEP_MS * row for row in range(COUNT))
    tracks = tuple(
        Track(
            name=f"t-{n}",
            watermarks_ms=(None, *(ms - 5_000 * (n + 1) for ms in at[1:])),
            idle=tuple(n == 0 and 20 <= row < 40 for row in range(COUNT)),
        )
        for n in range(partitions)
    )
    lowest, highest = bounds_of(tracks, COUNT)
    bars = (
        Bars(title="Late rows of each batch", unit=Unit.ROWS, values=(*range(COUNT - 1), None)),
        Bars(title="Duration of each batch", unit=Unit.MS, values=tuple(10 * row for row in range(COUNT))),
    )
    return History(
        name=name, batches=tuple(range(COUNT)), at_ms=at, tracks=tracks, coalesced_ms=lowest, lowest_ms=lowest,
        highest_ms=highest, bars=bars,
    )  # fmt: skip


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture
def page(window, tmp_path) -> Iterator[Browser]:
    """A page of two charts, the second of which has a band; whatever a test did, the console is silent."""
    histories = Histories(title="<b>q</b>", about="", each=(history("source 0", 3), history("source 1", 9).slowest(2)))
    file = Path(tmp_path) / "page.html"
    file.write_text(page_of(histories), encoding="utf-8")
    window.open(file)
    yield window
    assert window.log() == []


def shown_range(page: Browser, chart: int = 0) -> tuple[float, float]:
    text = page.run("return document.querySelectorAll('section')[arguments[0]].dataset.seen", chart)
    low, high = map(float, text.split())
    return low, high


def place_of(page: Browser, panel: int, share: float) -> tuple[int, int]:
    """A point of a panel of the first chart, by its share of the time axis."""
    left, right, middle = page.run(
        "const svg = document.querySelectorAll('section')[0].querySelectorAll('svg')[arguments[0]];"
        "svg.scrollIntoView({block: 'center'}); const box = svg.getBoundingClientRect();"
        "return [box.left + 92, box.right - 16, box.top + box.height / 2]", panel,
    )  # fmt: skip
    return round(left + share * (right - left)), round(middle)


WHOLE = (float(T_MS), float(T_MS + STEP_MS * (COUNT - 1)))
FIRST = "document.querySelector('section')"
PATHS = f"return [...{FIRST}.querySelectorAll('svg')].map(svg => svg.innerHTML)"


def test_every_panel_is_drawn_and_titles_are_text(page):
    assert page.run("return document.querySelector('h1').textContent") == "<b>q</b>"
    titles = page.run(f"return [...{FIRST}.querySelectorAll('text.title')].map(text => text.textContent)")
    assert titles[0].startswith("Watermarks (event time, UTC); batches planned from 2023-11-14 22:13:20")
    assert titles[1:] == ["Idle partitions", "Late rows of each batch", "Duration of each batch"]
    lines = "section.querySelector('svg').querySelectorAll('path.line').length"
    counts = page.run(f"return [...document.querySelectorAll('section')].map(section => {lines})")
    assert counts == [5, 4]  # with the coalesced one and that of Spark
    assert page.run("return document.querySelectorAll('path.band').length") == 1
    assert shown_range(page) == WHOLE


def test_after_two_batches_each_watermark_is_a_dot(page, tmp_path):
    """The first batch begins without a watermark, so the second one has the first point of each line."""
    whole = history("source 0", 2)
    first_two = {
        name: getattr(whole, name)[:2] for name in ("batches", "at_ms", "coalesced_ms", "lowest_ms", "highest_ms")
    }
    tracks = tuple(replace(one, watermarks_ms=one.watermarks_ms[:2], idle=one.idle[:2]) for one in whole.tracks)
    two = replace(whole, **first_two, tracks=tracks, bars=())
    (tmp_path / "two.html").write_text(page_of(Histories(title="q", about="", each=(two,))), encoding="utf-8")
    page.open(tmp_path / "two.html")
    dots = (
        "return [...document.querySelectorAll('circle')].map(dot => [dot.getAttribute('fill'), dot.cx.baseVal.value])"
    )
    dot_places = page.run(dots)
    assert len({colour for colour, _ in dot_places}) == 4  # two partitions, the coalesced watermark, and one for all
    edge = page.run("const box = document.querySelector('svg').getBoundingClientRect(); return box.width - 16")
    assert {round(x) for _, x in dot_places} == {round(edge)}


def test_a_span_that_is_dragged_over_is_seen_closer_in_all_panels_of_its_chart(page):
    before = page.run(PATHS)
    x, y = place_of(page, 0, 0.25)
    to, _ = place_of(page, 0, 0.5)
    page.point(
        {"type": "pointerMove", "x": x, "y": y}, {"type": "pointerDown", "button": 0},
        {"type": "pointerMove", "x": to, "y": y, "duration": 50}, {"type": "pointerUp", "button": 0},
    )  # fmt: skip
    low, high = shown_range(page)
    assert low == pytest.approx(T_MS + 25_000, abs=300)
    assert high == pytest.approx(T_MS + 50_000, abs=300)
    assert shown_range(page, 1) == WHOLE
    assert all(now != then for now, then in zip(page.run(PATHS), before, strict=True))
    page.run("document.querySelector('svg').dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))")
    assert shown_range(page) == WHOLE


def test_the_wheel_zooms_around_the_pointer_and_never_beyond_the_data(page):
    x, y = place_of(page, 2, 0.5)
    page.wheel(x, y, -100)
    low, high = shown_range(page)
    assert high - low == pytest.approx(80_000)
    assert (low + high) / 2 == pytest.approx(T_MS + 50_000, abs=300)
    for _ in range(3):
        page.wheel(x, y, 100)
    assert shown_range(page) == WHOLE


def test_a_look_at_a_batch_tells_its_figures(page):
    x, y = place_of(page, 0, 0.505)
    page.point({"type": "pointerMove", "x": x, "y": y})
    facts = page.run("return document.querySelector('.facts').textContent").splitlines()
    assert facts[0] == "batch 50  2023-11-14 22:14:10.000Z"
    assert [line for line in facts if line.endswith("  t-1")] == ["2023-11-14 22:14:00  t-1"]
    assert facts[-2].split() == ["50", "Late", "rows", "of", "each", "batch"]
    assert facts[-1].startswith("500 ms ")


def test_a_click_on_a_name_hides_its_line(page):
    count = "return document.querySelector('svg').querySelectorAll('path.line').length"
    page.run("[...document.querySelectorAll('.names button')].find(b => b.textContent === 't-1').click()")
    assert page.run(count) == 4
    page.run("[...document.querySelectorAll('.names button')].find(b => b.textContent === 't-1').click()")
    assert page.run(count) == 5


def test_keys_move_and_zoom(page):
    page.run("document.querySelector('section').dispatchEvent(new KeyboardEvent('keydown', {key: '+'}))")
    low, high = shown_range(page)
    assert high - low == pytest.approx(50_000)
    page.run("document.querySelector('section').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}))")
    assert shown_range(page)[0] == pytest.approx(low + 12_500)
    page.run("document.querySelector('section').dispatchEvent(new KeyboardEvent('keydown', {key: '0'}))")
    assert shown_range(page) == WHOLE
