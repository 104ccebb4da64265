"""The exported page in headless Chromium, with a recording as its microphone."""

import time

import numpy as np
import pytest

import surnn
from helpers.browser import Page, needs_chromium, served
from helpers.listener import SOUND, loudness_model, record
from surnn.config import ModelConfig, RhythmConfig
from surnn.data.speech import mel_power, quantized
from surnn.deploy.export import to_web
from surnn.models.model import SequenceModel
from surnn.tasks import Output, Tokens

pytestmark = needs_chromium
WORDS = [1.0, 3.0]
"""Seconds at which loud sounds begin."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Exported folders, and the recording."""
    root = tmp_path_factory.mktemp("pages")
    to_web(loudness_model(), root / "words", sound=SOUND, title="Loud words")
    to_web(surnn.SuGRU(3, 8, gate=surnn.Rhythm(rate=0.3)), root / "frames", title="<b>Frames</b>")
    plain = SequenceModel(ModelConfig(width=8), RhythmConfig(), Tokens(256), Output(256, "step"), 9)
    to_web(plain, root / "text")
    to_web(loudness_model(), root / "damaged", sound=SOUND)
    (root / "damaged" / "model.surnn").write_bytes(b"no model")
    record(root / "microphone.wav", 5.0, WORDS)
    return root


@pytest.fixture(scope="module")
def window(root, tmp_path_factory):
    flags = (
        "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={root / 'microphone.wav'}",
    )  # fmt: skip
    with served(root) as url, Page(tmp_path_factory.mktemp("browser"), flags=flags) as page:
        page.url = url
        yield page


@pytest.fixture
def view(window):
    """Opens one of the folders in a clean window."""

    def open_(name: str, width: int = 1100, scheme: str = "light") -> Page:
        window.console.clear()
        window.requests.clear()
        window.resize(width, 800)
        window.media("", prefers_color_scheme=scheme)
        window.open(f"{window.url}{name}/")
        window.until(
            "document.documentElement.dataset.ready || !document.getElementById('problem').hidden"
        )
        return window

    return open_


def text(page: Page, name: str) -> str:
    return page.run(f"document.getElementById({name!r}).innerText")


def percent(page: Page, name: str) -> float:
    return float(text(page, name).removesuffix(" %"))


def enter(page: Page) -> None:
    """The Enter key, as from a keyboard."""
    key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
    page.call("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
    page.call("Input.dispatchKeyEvent", type="keyUp", **key)


def brightness(page: Page) -> list[float]:
    """The mean of each of the picture's columns, in its part above the gates."""
    return page.run(
        """(() => {
          const c = document.getElementById("picture");
          const {data} = c.getContext("2d").getImageData(0, 0, c.width, Math.floor(c.height * 0.6));
          const sums = new Array(c.width).fill(0);
          data.forEach((v, i) => { if (i % 4 < 3) sums[(i >> 2) % c.width] += v; });
          return sums.map((sum) => sum / (3 * Math.floor(c.height * 0.6)));
        })()"""
    )


def test_the_microphone_wakes_the_network_and_words_are_shown(view):
    page = view("words")
    page.press("Tab")
    assert page.run("document.activeElement.id") == "listen"
    enter(page)
    page.until("document.getElementById('listen').ariaPressed === 'true'")
    assert text(page, "listen") == "Stop"
    page.until("document.querySelectorAll('#log li').length >= 2")
    page.until("Number(document.getElementById('frames').textContent) >= 200")
    assert text(page, "word") == "loud"
    assert page.run("document.querySelector('#log li').textContent").startswith("loud – ")
    assert 50 < percent(page, "skipped") < 90  # two words and their fading in four seconds
    columns = brightness(page)[-400:]  # two CSS pixels a frame
    assert max(columns) > 4 * sorted(columns)[len(columns) // 3]  # dark where it slept
    enter(page)
    page.until("document.getElementById('listen').ariaPressed === 'false'")
    frames = text(page, "frames")
    time.sleep(0.2)
    assert text(page, "frames") == frames
    assert page.console == []
    assert all(url.startswith(page.url) for url in page.requests)


def test_the_shortcut_starts_and_stops(view):
    page = view("words")
    for pressed in ("true", "false"):
        page.call("Input.dispatchKeyEvent", type="keyDown", key="l", code="KeyL", text="l")
        page.call("Input.dispatchKeyEvent", type="keyUp", key="l", code="KeyL")
        page.until(f"document.getElementById('listen').ariaPressed === '{pressed}'")


def test_a_recording_gives_the_words_and_the_work_of_python(view, root):
    page = view("words")
    document = page.call("DOM.getDocument")["root"]["nodeId"]
    field = page.call("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
    page.call("DOM.setFileInputFiles", files=[str(root / "microphone.wav")], nodeId=field)
    page.until("Number(document.getElementById('frames').textContent) >= 245")
    samples = record(root / "again.wav", 5.0, WORDS)
    table = (np.arange(256) * 24 / 255 - 14 - SOUND.mean) / SOUND.spread
    frames = table[quantized(mel_power(samples))].astype(np.float32)
    stream = surnn.Engine(root / "words" / "model.surnn").stream()
    stream.run(frames[:245])
    assert percent(page, "skipped") == pytest.approx(
        100 * stream.work.skipped, abs=1
    )  # a band may differ by 1
    heard = page.run("[...document.querySelectorAll('#log li')].map((item) => item.textContent)")
    seconds = [float(item.split(" – ")[1].split(" s")[0]) for item in heard[::-1]]
    assert seconds == pytest.approx(WORDS, abs=0.2)
    assert page.console == []


def test_the_threshold_is_moved_by_keys(view):
    page = view("words")
    assert text(page, "threshold-value") == "60 %"
    page.run("document.getElementById('threshold').focus()")
    arrow = {"key": "ArrowRight", "code": "ArrowRight", "windowsVirtualKeyCode": 39}
    page.call("Input.dispatchKeyEvent", type="rawKeyDown", **arrow)
    assert text(page, "threshold-value") == "61 %"


@pytest.mark.parametrize("width", [1100, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["words", "frames", "text"])
def test_the_layout_fits_and_follows_the_system(name, scheme, width, view):
    page = view(name, width, scheme)
    assert page.console == []
    assert page.run("document.documentElement.scrollWidth") <= width
    paper = page.run("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    sizes = page.run(
        "[...document.querySelectorAll('button, .button')].filter((b) => b.offsetParent)"
        ".map((b) => b.getBoundingClientRect().height)"
    )
    assert len(sizes) >= 2
    assert min(sizes) >= 44  # a finger's width


def test_models_of_other_input_take_numbers(view, root):
    page = view("frames")
    assert text(page, "title") == "<b>Frames</b>"
    assert "3 numbers each" in text(page, "input-label")
    page.run("document.getElementById('run').click()")
    page.until("document.getElementById('frames').textContent === '200'")
    lines = page.run("document.getElementById('input').value").splitlines()
    stream = surnn.Engine(root / "frames" / "model.surnn").stream()
    expected = stream.run(np.array([line.split() for line in lines], np.float32))[-1]
    assert scores(page) == pytest.approx(expected, abs=6e-4)
    assert percent(page, "skipped") == pytest.approx(100 * stream.work.skipped, abs=0.06)
    for width in (1100, 34, 1100):  # the history outlives a window that is narrow for a moment
        page.resize(width, 800)
        page.until(f"Math.abs(document.getElementById('picture').width - {width - 32}) < 2")
    blank = min(columns := brightness(page))
    assert sum(value > blank for value in columns) >= 2 * 190
    page.run("document.getElementById('reset').click()")
    assert text(page, "frames") == "0"
    page.run("document.getElementById('step').click()")
    assert text(page, "frames") == "1"
    page.run("document.getElementById('input').value = '1 2\\n'")
    page.run("document.getElementById('run').click()")
    assert text(page, "problem") == "line 1: expected 3 numbers, got 1 2"
    assert page.console == []


def test_models_of_bytes_take_text(view, root):
    page = view("text")
    page.run("document.getElementById('input').value = 'Grüße'")
    page.run("document.getElementById('run').click()")
    stream = surnn.Engine(root / "text" / "model.surnn").stream()
    expected = stream.run("Grüße".encode())[-1]
    assert text(page, "frames") == "7"
    assert scores(page) == pytest.approx(sorted(expected, reverse=True)[:20], abs=6e-4)
    assert page.console == []


def scores(page: Page) -> list[float]:
    cells = "[...document.querySelectorAll('#scores li span:last-child')]"
    return page.run(f"{cells}.map((cell) => Number(cell.textContent))")


def test_problems_are_named(view, root):
    assert "not a surnn" in text(view("damaged"), "problem")
    page = view("words")
    page.run("navigator.mediaDevices.getUserMedia = async () => { throw new Error('denied') }")
    page.run("document.getElementById('listen').click()")
    page.until("!document.getElementById('problem').hidden")
    assert text(page, "problem") == "The microphone cannot be used: denied"
    assert page.run("document.getElementById('listen').disabled") is False
