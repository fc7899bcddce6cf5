"""The site in a browser, at the width of a desk and of a phone; the gallery is what the examples say today."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.commands.command_line import ROOT
from tests.explorer.browser import answers


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_gallery_is_up_to_date() -> None:
    """`python docs/draw.py` makes it."""
    draw = _module("draw")
    assert draw.gallery() == (ROOT / "docs" / "gallery.md").read_text("utf-8")
    assert {f"{name}.png" for name in draw.DRAWN} == {p.name for p in (ROOT / "docs" / "pictures").iterdir()}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def asked(site: pathlib.Path, page: str, script: str, width: int, dark: bool = False) -> Any:
    folder = site / page
    return answers((folder / "index.html").read_text("utf-8"), script, (width, 900), folder, dark)


@pytest.mark.slow
@pytest.mark.docs
@pytest.mark.browser
def test_the_table_of_ops(site: pathlib.Path) -> None:
    """Its columns are all to be seen at 1300 pixels (`emit` was behind the edge), and words leave the rows that have them."""
    found = asked(site, "op-table", """
        const table = document.querySelector("table.filtered"), edge = (e) => e.getBoundingClientRect().right;
        const emit = [...table.querySelectorAll("th")].find((h) => h.textContent === "emit");
        const input = document.querySelector(".filter input"),
        rows = () => [...table.querySelectorAll("tbody tr")].filter((r) => !r.hidden).length;
        const all = rows();
        input.value = "dot_general"; input.dispatchEvent(new Event("input"));
        return [Math.max(edge(emit), edge(table)) <= innerWidth, all, rows(),
        document.querySelector(".filter output").textContent]
    """, 1300)  # fmt: skip
    is_inside, all_rows, few, said = found
    assert is_inside and all_rows > 150 and 1 <= few < 10 and said == f"{few} of {all_rows}"


@pytest.mark.slow
@pytest.mark.docs
@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1300])
def test_pages_fit_and_code_has_colours(site: pathlib.Path, width: int) -> None:
    """Nothing but code scrolls sideways;
    code has colours and buttons, pictures are there, with words for who does not see them."""
    script = """
        const images = [...document.querySelectorAll(".rst-content img")],
        spans = [...document.querySelectorAll(".codehilite .k, .codehilite .kn")];
        return [document.documentElement.scrollWidth - innerWidth, document.querySelectorAll(".copied > button").length,
          images.every((i) => i.naturalWidth > 0 && i.alt), images.length,
          new Set(spans.map((s) => getComputedStyle(s).color)).size]
    """
    for page, pictures, code in ((".", 1, False), ("gallery", 5, False), ("tour", 0, True), ("production", 0, False)):
        beyond, buttons, are_there, count, colours = asked(site, page, script, width)
        assert beyond <= 0 and are_there and count >= pictures and (buttons > 0 or page == "."), page
        assert colours == 1 or not code, page
    assert (site / "explore" / "softmax.html").is_file()


@pytest.mark.slow
@pytest.mark.docs
@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_words_are_read_on_light_and_dark_pages(site: pathlib.Path, dark: bool) -> None:
    """Text and code have a contrast of 4.5 on their ground (WCAG 2.1, 1.4.3), menus, links and colored words one of 3."""
    script = """
        const rgb = (c) => c.match(/[\\d.]+/g).map(Number);
        const part = (c) => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
        const light = ([r, g, b]) => .2126 * part(r) + .7152 * part(g) + .0722 * part(b);
        const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
          if (c.length < 4 || c[3] > 0) return c } return [255, 255, 255] };
        const ratio = (e) => { const pair = [light(rgb(getComputedStyle(e).color)), light(ground(e))];
          return (Math.max(...pair) + .05) / (Math.min(...pair) + .05) };
        const all = (where) => [...document.querySelectorAll(where)].filter((e) => e.textContent.trim());
        const worst = (where) => { const found = all(where); return [found.length, Math.min(...found.map(ratio))] };
        const kinds = ["p", "li", "td", "p a", "p code", "pre", ".codehilite span"].map((k) => ".rst-content " + k);
        const page = light(ground(document.querySelector(".rst-content p")));
        return [page, ...[...kinds, ".wy-menu-vertical li.current a"].map(worst)]
    """
    page, *rows = asked(site, "tour", script, 1300, dark)
    assert (page < 0.1) == dark
    text = rows[:1] + rows[5:6]
    assert all(count > 2 and least >= 4.5 for count, least in text), rows
    assert all(least >= 3 for count, least in rows if count), rows


@pytest.mark.docs
@pytest.mark.slow
def test_a_search_for_threads_finds_the_page(site: pathlib.Path) -> None:
    """The theme's search looks titles up first: a page of its own has the word in one."""
    entries = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    assert {e["location"].partition("#")[0] for e in entries if e["title"] == "Threads"} == {"production/"}
