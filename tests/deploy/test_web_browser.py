"""The JavaScript module in headless Chromium, against the engine in Python."""

import base64
import json

import numpy as np
import pytest
import torch

import surnn
from helpers.browser import Page, needs_chromium, served
from helpers.listener import SOUND, loudness_model, record
from surnn.config import FullGateConfig, InputGateConfig, ModelConfig, RhythmConfig, SSMGateConfig
from surnn.data.speech import mel_power, quantized
from surnn.deploy.export import to_engine, to_web
from surnn.models.model import SequenceModel
from surnn.tasks import Output, Tokens, Values
from surnn.tasks.keyword_scores import QUIET, averaged, detections

pytestmark = needs_chromium
FRAMES, INPUTS, OUTPUTS = 150, 6, 5
CASES = {
    "gru, input gates": (InputGateConfig(rate=0.3), {"kind": "sugru"}, "float32"),
    "gru, gates with memory": (SSMGateConfig(rate=0.3), {"kind": "sugru", "heads": 4}, "float32"),
    "lstm, rhythms": (RhythmConfig(rate=0.2), {"kind": "sulstm"}, "float32"),
    "rnn, gates of the state": (FullGateConfig(rate=0.3), {"kind": "surnn"}, "float32"),
    "spiking": (RhythmConfig(rate=0.5), {"kind": "susnn"}, "float32"),
    "plain gru": (None, {"kind": "gru"}, "float32"),
    "gru, 8 bits": (InputGateConfig(rate=0.3), {"kind": "sugru"}, "int8"),
}


def build(gate, inputs=Values(INPUTS), **options):  # noqa: B008
    torch.manual_seed(3)
    config = ModelConfig(width=40, layers=2, **options)
    output = Output(OUTPUTS, "step")
    return SequenceModel(config, gate or RhythmConfig(), inputs, output, 50).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An exported folder, with engine files of other models in it."""
    folder = to_web(build(*CASES["gru, input gates"][:1]), tmp_path_factory.mktemp("web") / "site")
    for name, (gate, options, weights) in CASES.items():
        to_engine(build(gate, **options), folder / f"{name}.surnn", weights)
    to_engine(build(RhythmConfig(rate=0.3), Tokens(11)), folder / "tokens.surnn")
    (folder / "damaged.surnn").write_bytes((folder / "spiking.surnn").read_bytes()[:-9] + b"x" * 9)
    (folder / "blank.html").write_text(
        "<!doctype html><title>blank</title><link rel=icon href=data:,>"
    )
    return folder


@pytest.fixture(scope="module")
def page(folder, tmp_path_factory):
    with served(folder) as url, Page(tmp_path_factory.mktemp("browser")) as window:
        window.open(f"{url}blank.html")
        window.run(
            "Promise.all([import('./surnn.js'), import('./sound.js'), import('./spotter.js')])"
            ".then(([m, s, d]) => { Object.assign(window, m, s, d); })"
        )
        window.run(
            """window.numbers = (text) => {
              const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
              return new Float32Array(bytes.buffer);
            };
            window.stream = async (name = "model.surnn") => (await load(name)).stream();
            window.text = (v) => btoa(String.fromCharCode(...new Uint8Array(v.buffer)))"""
        )
        yield window


def packed(x: np.ndarray) -> str:
    return json.dumps(base64.b64encode(np.ascontiguousarray(x, np.float32).tobytes()).decode())


def unpacked(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), np.float32)


def fails(page, script: str) -> str:
    """The error of a script."""
    return page.run(
        f"(async () => {{ {script} }})().then(() => '', (e) => e.name + ': ' + e.message)"
    )


@pytest.mark.parametrize("simd", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_results_equal_those_of_the_engine(name, simd, page, folder, monkeypatch):
    monkeypatch.setenv("SURNN_SIMD", "generic" if simd else "scalar")
    x = np.random.default_rng(0).normal(size=(FRAMES, INPUTS)).astype(np.float32)
    stream = surnn.Engine(folder / f"{name}.surnn").stream()
    stream.clock = 10**9
    expected, gates, states = [], [], []
    for frame in x:
        expected.append(stream.step(frame))
        gates.append([stream.gates(layer) for layer in range(stream.engine.layers)])
        states.append(stream.hidden(0))
    found = page.run(
        f"""(async () => {{
          const model = await load({json.dumps(f"{name}.surnn")}, {{simd: {json.dumps(simd)}}});
          const [stream, other, x] = [model.stream(), model.stream(), numbers({packed(x)})];
          stream.clock = other.clock = 1e9;
          const [steps, gates, states] = [[], [], []];
          for (let t = 0; t < {FRAMES}; t++) {{
            steps.push(...stream.step(x.subarray(t * {INPUTS}, (t + 1) * {INPUTS})));
            gates.push(model.layers.map((_, layer) => Array.from(stream.gates(layer))));
            states.push(...stream.hidden(0).flatMap((v) => [...v]));
          }}
          return {{steps: text(Float32Array.from(steps)), run: text(other.run(x)), gates,
            states: text(Float32Array.from(states)), clock: stream.clock,
            work: {{...stream.work, skipped: stream.work.skipped, rate: stream.work.updateRate}},
            simd: model.simd, streamSize: model.streamSize, macs: model.macsPerStep,
            sizes: [model.inputSize, model.outputSize]}};
        }})()"""
    )
    assert found["simd"] is simd
    engine = stream.engine
    assert found["sizes"] == [INPUTS, OUTPUTS]
    assert (found["streamSize"], found["macs"]) == (engine.saved_size, engine.macs_per_step)
    same = np.array_equal if simd else close
    assert same(unpacked(found["steps"]), np.concatenate(expected))
    assert same(unpacked(found["states"]), np.stack(states).ravel())
    assert found["run"] == found["steps"]
    assert found["gates"] == [[g.tolist() for g in row] for row in gates]
    assert found["clock"] == 10**9 + FRAMES
    work = stream.work
    assert found["work"] == {
        "steps": FRAMES, "macs": work.macs, "dense": work.dense, "updates": work.updates,
        "denseUpdates": work.dense_updates, "skipped": pytest.approx(work.skipped),
        "rate": pytest.approx(work.update_rate),
    }  # fmt: skip
    assert np.ptp(np.array(expected)) > 0.01


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """Scalar kernels call the C library's exp and tanh, which round in another way there."""
    return bool(np.abs(a - b).max() <= 1e-6)


def test_tokens(page, folder, monkeypatch):
    monkeypatch.setenv("SURNN_SIMD", "generic")
    tokens = np.random.default_rng(0).integers(11, size=60)
    expected = surnn.Engine(folder / "tokens.surnn").stream().run(tokens)
    found = page.run(
        f"""load("tokens.surnn").then((model) => {{
          const [a, b] = [model.stream(), model.stream()];
          const tokens = {tokens.tolist()};
          return [model.takesTokens, text(a.run(tokens)),
                  text(Float32Array.from(tokens.flatMap((token) => [...b.step(token)])))];
        }})"""
    )
    assert found[0] is True
    assert np.array_equal(unpacked(found[1]), expected.ravel())
    assert found[1] == found[2]


def test_streams_are_saved_restored_and_reset(page):
    found = page.run(
        f"""load("lstm, rhythms.surnn").then((model) => {{
          const x = Float32Array.from({{length: 40 * {INPUTS}}}, (_, i) => Math.sin(i));
          const stream = model.stream();
          const first = text(stream.run(x));
          const saved = stream.save();
          const second = text(stream.run(x));
          const other = model.stream();
          other.restore(saved);
          const clock = other.clock;
          const again = text(other.run(x));
          stream.reset();
          const anew = text(stream.run(x));
          return [first, second, again, anew, clock, stream.work.since(stream.work).steps];
        }})"""
    )
    first, second, again, anew, clock, none = found
    assert second == again != first
    assert anew == first
    assert (clock, none) == (40, 0)


def test_a_stream_that_nothing_refers_to_is_released(page):
    """The memory of the first streams is used for the next ones."""
    page.call("HeapProfiler.enable")
    sizes = []
    page.run("load('lstm, rhythms.surnn').then((model) => { window.kept = model; })")
    for _ in range(3):
        page.run("void Array.from({length: 2000}, () => kept.stream().save().length)")
        page.call("HeapProfiler.collectGarbage")
        page.run("new Promise((done) => setTimeout(done, 50))")
        sizes.append(page.run("kept.memorySize"))
    assert sizes[0] == sizes[2]


@pytest.mark.parametrize(
    ("script", "fragment"),
    [
        ("await load('damaged.surnn')", "SurnnError: the model: "),
        ("await load('missing.surnn')", "missing.surnn: the server answered 404"),
        ("await load(new Uint8Array(100))", "not a surnn"),
        ("(await stream()).step([1, 2])", "RangeError: this model takes 6 numbers, got 2"),
        ("(await stream()).run(new Float32Array(7))", "6 numbers a time step, got 7"),
        ("(await stream()).gates(2)", "layers 0 to 1, got 2"),
        ("(await stream()).clock = -1", "SurnnError: clock -1: "),
        ("(await stream()).clock = 0.5", "RangeError: a clock is an integer"),
        ("(await stream()).restore(new Uint8Array(9))", "SurnnError: restore: "),
        ("(await stream('tokens.surnn')).step(11)", "integers from 0 to 10"),
        ("(await stream()).model.logMel().push(new Int16Array(3))", "expected 320 samples, got 3"),
        (
            "(await stream()).model.logMel().push(new Float32Array(320).fill(0.5))",
            "samples are integers from -32768 to 32767",
        ),
        ("(await stream()).model.logMel().push(Array(320).fill(40000))", "samples are integers"),
    ],
)
def test_errors_say_what_is_wrong(script, fragment, page):
    assert fragment in fails(page, script)


def test_the_front_end_is_that_of_the_data(page):
    random = np.random.default_rng(1)
    level = np.exp(np.linspace(0, 9, 16_000))
    samples = (random.normal(size=16_000) * level).clip(-32768, 32767).astype(np.int16)
    expected = quantized(mel_power(samples)).astype(int)
    found = page.run(
        f"""load("model.surnn").then((model) => {{
          const [mel, samples] = [model.logMel(), Int16Array.from({samples.tolist()})];
          const rows = [];
          for (let i = 0; i < 16000; i += 320) rows.push(mel.push(samples.subarray(i, i + 320)));
          return rows.map((row) => row && Array.from(row));
        }})"""
    )
    assert found[0] is None
    assert np.abs(np.array(found[1:]) - expected).max() <= 1
    assert np.ptp(expected) > 150


@pytest.mark.parametrize("rate", [48_000, 44_100, 22_050, 8_000, 16_000])
def test_other_sample_rates_become_16_khz(rate, page):
    """Tones below the half rates pass, those above are gone, in pieces of any size."""
    tones = {1000: 1.0, 3000: 1.0}
    if rate > 16_000:
        tones |= {9500: 0.0}
    for hertz, gain in tones.items():
        x = np.sin(2 * np.pi * hertz * np.arange(rate) / rate)
        y = unpacked(
            page.run(
                f"""(() => {{
                  const [changed, x, out] = [new Resampler({rate}), numbers({packed(x)}), []];
                  for (let i = 0, n = 100; i < x.length; i += n, n = 100 + (n * 7) % 900)
                    out.push(...changed.push(x.subarray(i, i + n)));
                  return text(Float32Array.from(out));
                }})()"""
            )
        )
        assert abs(len(y) - 16_000) < 40
        spectrum = np.abs(np.fft.rfft(y[1000:15_000] * np.hanning(14_000))) / 3500
        assert spectrum.max() == pytest.approx(gain, abs=0.01)
        if gain:
            assert spectrum.argmax() * 16_000 / 14_000 == pytest.approx(hertz, abs=2)


def test_scores_of_sound_are_those_of_the_engine(page, folder, monkeypatch):
    """Python's engine on the bands that the front end found; they are tested above."""
    monkeypatch.setenv("SURNN_SIMD", "generic")
    to_engine(loudness_model(), folder / "loud.surnn")
    samples = record(folder / "sound.wav", 3.0, [1.0])
    sound = {"mean": SOUND.mean, "spread": SOUND.spread, "nothing": [0], "average": 5, "pause": 9}
    found = page.run(
        f"""load("loud.surnn").then((model) => {{
          const spotter = new Spotter(model, {json.dumps(sound)}, ["none", "loud"]);
          const [samples, rows] = [Int16Array.from({samples.tolist()}), []];
          for (let i = 0; i < samples.length; i += 320) {{
            const frame = spotter.push(samples.subarray(i, i + 320));
            if (frame) rows.push([...frame.bands, ...frame.gates[0], ...spotter.scores]);
          }}
          return text(Float32Array.from(rows.flat()));
        }})"""
    )
    rows = unpacked(found).reshape(149, -1)
    bands, gates, scores = rows[:, :40], rows[:, 40:-2], rows[:, -2:]
    features = ((bands.astype(float) * 24) / 255 - 14 - SOUND.mean) / SOUND.spread
    stream = surnn.Engine(folder / "loud.surnn").stream()
    for frame, opened, expected in zip(features.astype(np.float32), gates, scores, strict=True):
        assert np.array_equal(stream.step(frame), expected)
        assert np.array_equal(stream.gates(0), opened)
    assert 0 < gates.mean() < 0.5
    assert scores[:, 1].max() > 1 > -1 > scores[:, 1].min()


def test_detections_are_those_of_the_metric(page):
    scores = torch.randn(1, 600, OUTPUTS) * 2
    scores[..., 1:] += 3 * torch.sin(torch.arange(600) / 9)[None, :, None]
    above = averaged(scores)[0] > 0.4
    t = detections(above)
    expected = [[int(frame), int(word) + 1] for frame, word in t.T.nonzero().tolist()]
    found = page.run(
        f"""load("model.surnn").then((model) => {{
          const sound = {{mean: 0, spread: 1, nothing: [0], average: 5, pause: {QUIET}, clip: 0}};
          const spotter = new Spotter(model, sound, ["0", "1", "2", "3", "4"]);
          const [scores, words] = [numbers({packed(scores.numpy())}), []];
          for (let t = 0; t < 600; t++) {{
            spotter.scores.set(scores.subarray(5 * t, 5 * t + 5));
            for (const {{word}} of spotter.decide(0.4).words) words.push([t, Number(word)]);
          }}
          return words;
        }})"""
    )
    assert len(expected) > 10
    assert found == expected
