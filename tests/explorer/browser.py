"""A page opened in Chromium without a screen: what a script that is added to it says."""

from __future__ import annotations

import html
import json
import pathlib
import re
import subprocess
import tempfile
from typing import Any

from tests.conftest import BROWSER

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-dev-shm-usage --virtual-time-budget=4000 --allow-file-access-from-files"
).split()


def answers(
    page: str, script: str, size: tuple[int, int] = (1300, 900), beside: pathlib.Path | None = None, dark: bool = False
) -> Any:
    """What `script`, the body of a function, returns in the page, through JSON; an error of the page's own is raised.

    `beside` is the folder that the page's own links start from, `dark` whether the system is said to prefer that. Time
    in the page is virtual: the result does not depend on how fast the machine is.
    """
    # In the head, so that errors of the page's own script are seen, too.
    watch = '<script>window.errors = []; addEventListener("error", (e) => errors.push(e.message + " " + e.lineno))</script>'
    ask = (
        '<script>addEventListener("load", () => setTimeout(() => { let answer; try { answer = { value: (() => {'
        + script
        + '})(), errors } } catch (e) { answer = { errors: [e.stack] } } document.body.innerHTML = "";'
        " document.body.dataset.answer = JSON.stringify(answer) }, 300))</script>"
    )
    assert BROWSER is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = (beside or pathlib.Path(folder)) / "asked.html"
        file.write_text(page.replace("<head>", "<head>" + watch, 1).replace("</body>", ask + "</body>", 1), "utf-8")
        theme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        options = [*FLAGS, theme, f"--user-data-dir={folder}/profile"]
        options += [f"--window-size={size[0]},{size[1]}", "--dump-dom", file.as_uri()]
        done = subprocess.run([BROWSER, *options], capture_output=True, text=True, timeout=300)
    found = re.search(r'data-answer="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    answer = json.loads(html.unescape(found.group(1)))
    assert not answer["errors"], answer["errors"]
    return answer["value"]
