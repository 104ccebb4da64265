"""The report's page in headless Chromium, if it is installed."""

from pathlib import Path
from typing import Any

import pytest

from helpers.browser import Page, needs_chromium
from helpers.reports import Parsed, fresh_run, points, train_run
from helpers.training import CONFIG
from surnn.cli.main import main
from surnn.config import ModelConfig, RhythmConfig, RunConfig
from surnn.report import gather, page, write
from surnn.runs.folder import RunFolder
from surnn.tasks.copying import Copying
from surnn.tasks.mnist import SequentialMnist

pytestmark = needs_chromium
EVIL = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, Path]:
    """Pages about one run, two runs, a baseline, soft gates above a layer that is always open,
    images, an empty run, and a run with a hostile name."""
    root = tmp_path_factory.mktemp("pages")
    ours = train_run(root / "ours", CONFIG)
    plain = RunConfig(CONFIG.task, ModelConfig(kind="gru", width=8), RhythmConfig(), CONFIG.train)
    theirs = train_run(root / "theirs", plain)
    about = {"split": "test", "checkpoint": "best", "step": 12}
    RunFolder(ours).log_evaluation(**about, overrides={}, metrics={"accuracy": 0.25})
    RunFolder(ours).log_evaluation(**about, overrides={"task.delay": 9}, metrics={"accuracy": 0.75})
    assert main(["report", str(ours)]) == 0
    assert main(["report", str(theirs)]) == 0
    assert main(["report", str(ours), str(theirs), "--out", str(root / "both.html")]) == 0
    model, gate = ModelConfig(width=8, layers=2, ungated_layers=1), RhythmConfig(mode="soft")
    soft = train_run(root / "soft", RunConfig(CONFIG.task, model, gate, CONFIG.train))
    assert main(["report", str(soft)]) == 0
    fresh_run(root / "image", SequentialMnist()).log(kind="train", step=5, seconds=1.0, loss=2.0)
    assert main(["report", str(root / "image")]) == 0
    fresh_run(root / "empty", Copying(delay=5), checkpoint=False)
    assert main(["report", str(root / "empty")]) == 0
    evil = gather(ours, EVIL)
    evil["environment"]["command"] = EVIL
    write(page([evil]), root / "evil.html")
    return {
        "one": ours / "report.html", "baseline": theirs / "report.html", "two": root / "both.html",
        "image": root / "image" / "report.html", "empty": root / "empty" / "report.html",
        "evil": root / "evil.html", "soft": soft / "report.html",
    }  # fmt: skip


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    with Page(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def view(window, places):
    """Opens one of the pages in a clean window."""

    def open_(name: str, width: int = 1280, **media: str) -> Page:
        window.console.clear()
        window.requests.clear()
        window.resize(width, 800)
        window.media("", **{"prefers_color_scheme": "light", **media})
        window.open(places[name])
        window.run("window.scrollTo(0, 0)")
        return window

    return open_


def box(window: Page, selector: str) -> Any:
    """Position of an element after scrolling to it."""
    return window.run(
        f"(() => {{ const e = document.querySelector({selector!r});"
        "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
        "return {x: b.x, y: b.y, w: b.width, h: b.height}; })()"
    )


def point_at(window: Page, selector: str, across: float, down: float = 0.5) -> None:
    at = box(window, selector)
    window.mouse("mouseMoved", at["x"] + across * at["w"], at["y"] + down * at["h"])


def text(window: Page, selector: str) -> str:
    return window.run(f"document.querySelector({selector!r})?.textContent ?? ''")


def shown(path: Path) -> dict[str, Any]:
    return Parsed(path.read_text()).data["runs"][0]


LOSS = '[data-chart="loss"] svg'


@pytest.mark.parametrize("name", ["one", "two", "baseline", "soft", "image", "empty", "evil"])
@pytest.mark.parametrize("width", [1280, 360])
def test_no_errors_and_no_requests(view, name, width):
    window = view(name, width)
    assert window.console == []
    assert all(url.startswith(("file:", "data:image/png")) for url in window.requests)
    assert window.run("document.documentElement.scrollWidth") <= width
    for section in ("summary", "curves", "gates", "config", "environment"):
        assert window.run(f"document.querySelector('section#{section}').clientHeight") > 40
    assert window.run("document.querySelectorAll('nav a').length") >= 5


def test_a_runs_name_is_not_executed(view):
    window = view("evil")
    assert text(window, "h1") == EVIL
    assert window.run("window.hacked") is None
    assert window.run("document.querySelectorAll('main img, main script').length") == 0


def test_hovering_shows_values(view, places):
    window = view("one")
    steps, losses = points(shown(places["one"]), "loss", "train")
    assert window.run("document.querySelector('.tip').hidden")
    point_at(window, LOSS, 0.999)
    told = text(window, '[data-chart="loss"] .tip')
    assert f"step {steps[-1]}" in told
    assert f"{losses[-1]:.5g}".rstrip("0") in told
    window.mouse("mouseMoved", 1, 1)
    assert window.run("document.querySelector('.tip').hidden")


def test_keys_show_values(view, places):
    window = view("one")
    _, losses = points(shown(places["one"]), "loss", "train")
    window.run(f"document.querySelector({LOSS!r}).focus()")
    window.press("ArrowRight")
    window.press("ArrowRight")
    assert f"{losses[2]:.5g}".rstrip("0") in text(window, '[data-chart="loss"] .tip')


def test_dragging_zooms_all_charts_and_escape_goes_back(view):
    window = view("one")
    ticks = (
        "[...document.querySelectorAll('[data-chart=\"learning_rate\"] svg > text')]"
        ".map((tick) => tick.textContent).join()"
    )
    before = window.run(ticks)
    at = box(window, LOSS)
    middle = at["y"] + at["h"] / 2
    held = {"button": "left", "buttons": 1, "clickCount": 1}
    window.mouse("mousePressed", at["x"] + 0.3 * at["w"], middle, **held)
    window.mouse("mouseMoved", at["x"] + 0.5 * at["w"], middle, **held)
    assert window.run("document.querySelectorAll('.band').length") == 1
    window.mouse("mouseReleased", at["x"] + 0.5 * at["w"], middle, **held)
    assert window.run("document.querySelectorAll('.band').length") == 0
    assert window.run(ticks) != before
    window.run(f"document.querySelector({LOSS!r}).focus()")
    window.press("Escape")
    assert window.run(ticks) == before


def test_smoothing_log_axis_and_time(view):
    window = view("one")
    curves = "document.querySelectorAll('[data-chart=\"gradient_norm\"] path').length"
    assert window.run(curves) == 1
    window.run(
        "(() => { const s = document.querySelector('input[type=range]'); s.value = 80;"
        "s.dispatchEvent(new Event('input')); })()"
    )
    assert window.run(curves) == 2  # what was logged, faint, and its mean
    assert text(window, "output") == "0.80"
    path = "document.querySelector('[data-chart=\"loss\"] path').getAttribute('d')"
    before = window.run(path)
    window.run("document.querySelector('[data-chart=\"loss\"] input[type=checkbox]').click()")
    assert window.run(path) != before
    assert "NaN" not in window.run(path)
    window.run(
        "(() => { const s = document.querySelector('#curves .toolbar select'); s.selectedIndex = 1;"
        "s.dispatchEvent(new Event('change')); })()"
    )
    assert text(window, '[data-chart="loss"] .label') == "time (s)"


def test_one_point_alone_is_seen(view):
    window = view("image")
    assert window.run("document.querySelectorAll('[data-chart=\"loss\"] .dot').length") == 1


def test_legends_hide_curves(view):
    window = view("two")
    key = "document.querySelector('[data-chart=\"gradient_norm\"] .key')"
    curves = "document.querySelectorAll('[data-chart=\"gradient_norm\"] path').length"
    assert window.run(curves) == 2
    window.run(f"{key}.click()")
    assert window.run(curves) == 1
    assert window.run(f"{key}.getAttribute('aria-pressed')") == "false"


def test_runs_side_by_side(view, places):
    window = view("two")
    ours, theirs = Parsed(places["two"].read_text()).data["runs"]
    head = "[...document.querySelectorAll('#summary thead th')].map(t => t.textContent)"
    assert window.run(head) == ["", "ours", "theirs"]
    rows = window.run(
        "[...document.querySelectorAll('#summary tbody tr')].map(r => r.firstChild.textContent)"
    )
    assert "model.width" in rows  # 16 and 8
    assert "train.steps" not in rows
    best = window.run("[...document.querySelectorAll('td.best')].map(c => c.cellIndex)")
    a, b = (run["metric"]["best"]["value"] for run in (ours, theirs))
    assert a != b
    assert best[0] == (1 if a > b else 2)
    differing = window.run(
        "[...document.querySelectorAll('#config .differs')].map(t => t.textContent)"
    )
    assert "model.width" in differing
    assert "task.delay" not in differing
    changed = "[...document.querySelectorAll('#config td.changed')].map(t => t.textContent)"
    assert "10" in window.run(changed)  # the delay, of both
    assert "Gates are not shown: gru has no gates" in text(window, "#gates .note")


def test_evaluations_are_shown(view):
    window = view("one")
    cards = window.run(
        "Object.fromEntries([...document.querySelectorAll('.card')]"
        ".map((card) => [card.firstChild.textContent, card.lastChild.firstChild.textContent]))"
    )
    assert cards["test accuracy"] == "0.25"  # of the task as it was trained
    assert cards["chance"] == "0.125"
    rows = window.run(
        "[...document.querySelectorAll('#evaluations tbody tr')].map((row) => row.textContent)"
    )
    assert len(rows) == 2
    assert "task.delay 9" in rows[1]
    assert "0.75" in rows[1]


def test_soft_gates_are_open_by_so_much(view, places):
    window = view("soft")
    _, mean = shown(places["soft"])["update_rate"]
    told = text(window, "#summary .cards")
    assert f"every time step, by {(1 + mean) / 2:.2f} on average" in told
    assert f"layers: 100\u202f%, by {mean:.2f}" in told
    assert window.run("document.querySelector('[data-chart=\"update rate\"]')") is None
    assert "100\u202f%" in text(window, "#gates .numbers")
    assert "Share of open gates" in text(window, "#raster")
    window.run(
        "(() => { const s = document.querySelector('#gates select'); s.selectedIndex = 1;"
        "s.dispatchEvent(new Event('change')); })()"
    )
    assert "every time step, by 0." in text(window, "#gates .numbers")
    assert "How far gates are open, on average" in text(window, "#raster")


def test_all_options_can_be_seen(view):
    window = view("one")
    rows = "document.querySelectorAll('#config tbody tr').length"
    few = window.run(rows)
    window.run("document.querySelector('#config input').click()")
    assert window.run(rows) > few + 20


def test_gates_show_unit_and_time_step(view, places):
    window = view("one")
    window.until("document.querySelector('.raster').height > 40")
    point_at(window, ".raster", 0.5, 0.9)
    told = text(window, ".pointer-text")
    assert "layer 1, gate 3 (units 12 to 15), time step " in told
    assert told.split(": ")[1].split(",")[0] in ("open", "closed")
    assert told.endswith(("data", "delay", "answer"))
    window.run("document.querySelector('.raster').focus()")
    window.press("ArrowRight")
    window.press("ArrowDown")
    assert text(window, ".pointer-text") != told


def test_every_cell_shows_its_value(view, places):
    window = view("one")
    (layer,) = shown(places["one"])["gates"]["layers"]
    mean = layer["rasters"][0]["mean"]
    window.run("document.querySelector('.raster').focus()")
    rows = len(layer["rates"])
    opened = []
    for _ in range(rows):
        window.press("ArrowDown")
    for step in range(1, 6):
        window.press("ArrowRight")
        count = 0
        for key in ["ArrowUp"] * (rows - 1) + [""]:
            told = text(window, ".pointer-text")
            assert f"time step {step + 1}:" in told
            count += ": open" in told
            if key:
                window.press(key)
        for _ in range(rows):
            window.press("ArrowDown")
        opened.append(count / rows)
    assert opened == pytest.approx(mean[1:6])


def test_layers_can_be_chosen_and_images_are_put_back(view):
    window = view("image")
    first = text(window, "#gates .numbers")
    window.run(
        "(() => { const s = document.querySelector('#gates select'); s.selectedIndex = 1;"
        "s.dispatchEvent(new Event('change')); })()"
    )
    window.until("document.querySelector('.pixels').width === 28")
    point_at(window, ".raster", 0.5)
    assert text(window, ".pointer-text").startswith("layer 2, ")
    point_at(window, ".pixels", 0.01, 0.99)
    assert "row 28, column 1, time step 757: " in text(window, ".map .hint")
    assert first  # rates may agree by chance, names do not


def test_colours_follow_the_system_and_the_button(view):
    back = "getComputedStyle(document.body).backgroundColor"
    light = view("one").run(back)
    window = view("one", prefers_color_scheme="dark")
    dark = window.run(back)
    assert light == "rgb(255, 255, 255)"
    assert dark != light
    seen = []
    for _ in range(3):
        window.run("document.getElementById('theme').click()")
        seen.append((text(window, "#theme"), window.run(back)))
    assert seen == [
        ("Colours: light", light), ("Colours: dark", dark), ("Colours: system", dark)
    ]  # fmt: skip


def test_numbers_can_be_copied(view, places):
    window = view("one")
    window.run("window.copy = (text, what) => { window.copied = text; }")
    window.run("document.querySelector('[data-chart=\"gradient_norm\"] button').click()")
    steps, norms = points(shown(places["one"]), "gradient_norm", "train")
    lines = window.run("copied").splitlines()
    assert lines[0] == "run,split,group,part,step,gradient_norm"
    values = [line.split(",") for line in lines[1:]]
    assert [int(v[4]) for v in values] == steps
    assert [float(v[5]) for v in values] == norms
    window.run("document.getElementById('copy-json').click()")
    data = Parsed(places["one"].read_text()).data
    assert window.run("JSON.parse(copied)") == data
    for button in range(window.run("document.querySelectorAll('main button.small').length")):
        window.run(f"document.querySelectorAll('main button.small')[{button}].click()")
    assert window.console == []


def test_it_prints_on_white(view, tmp_path):
    window = view("one", prefers_color_scheme="dark")
    window.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    window.media("print", prefers_color_scheme="dark")
    assert window.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert window.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert window.console == []
