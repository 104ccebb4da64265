/* The page: loads model.json and the model, then listens or, for models of other input, takes numbers. */
import { load } from "./surnn.js";
import { decode, listen, microphoneProblem } from "./sound.js";
import { Spotter } from "./spotter.js";
import { Picture } from "./picture.js";
import { tryOut } from "./try.js";

const $ = (id) => document.getElementById(id);
const FRAME = 0.02; // seconds
const RECENT = 50; // frames
const SHOWN = 90; // frames for which a word is new
const PART = 250; // frames of a recording between repaints

function show(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}
const percent = (share) => `${(100 * share).toFixed(1)} %`;

function problem(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

/** Shows the counts of a stream; called once for each frame. */
class Numbers {
  history = [];
  update(work, seconds, frames, everyFrame) {
    this.history.push(work);
    if (this.history.length > RECENT) this.history.shift();
    if (!everyFrame && frames % 5) return;
    const [first] = this.history;
    const dense = work.dense - first.dense;
    show("skipped", percent(work.skipped));
    show("recent", percent(dense ? 1 - (work.macs - first.macs) / dense : work.skipped));
    show("micros", `${((1e6 * seconds) / frames).toFixed(0)} µs`);
    show("factor", percent(seconds / frames / FRAME));
    show("frames", String(frames));
  }
  clear() {
    this.history = [];
    for (const id of ["skipped", "recent", "micros", "factor"]) show(id, "–");
    show("frames", "0");
  }
}

function spot(model, { sound, classes }, picture, numbers) {
  const spotter = new Spotter(model, sound, classes);
  let stop = null; // of the microphone
  let last = -SHOWN;
  $("sound").hidden = $("heard").hidden = false;
  show("words", classes.filter((_, i) => !sound.nothing.includes(i)).join(" · "));
  const block = (samples) => {
    const frame = spotter.push(samples);
    if (!frame) return;
    picture.push(frame.bands, frame.gates);
    for (const { word, probability } of frame.words) hear(word, probability);
    if (spotter.frames - last === SHOWN) $("word").className = "";
    numbers.update(spotter.work, spotter.seconds, spotter.frames);
  };
  const hear = (word, probability) => {
    last = spotter.frames;
    $("word").textContent = word;
    $("word").className = "fresh";
    picture.mark(word);
    const item = document.createElement("li");
    item.textContent = `${word} – ${(spotter.frames * FRAME).toFixed(1)} s, ${percent(probability)}`;
    $("log").prepend(item);
  };
  const restart = (text) => {
    spotter.reset();
    picture.clear();
    numbers.clear();
    last = -SHOWN;
    $("log").replaceChildren();
    $("word").innerHTML = '<span class="idle"></span>';
    $("word").firstChild.textContent = text;
  };
  const end = async () => {
    const stopping = stop;
    stop = null;
    $("listen").textContent = "Listen";
    $("listen").ariaPressed = "false";
    await stopping?.();
  };
  const toggle = async () => {
    problem("");
    if (stop) return end();
    $("listen").disabled = true; // until the user has answered
    try {
      restart("listening…");
      stop = await listen(block);
      $("listen").textContent = "Stop";
      $("listen").ariaPressed = "true";
    } catch (error) {
      problem(`The microphone cannot be used: ${error.message}`);
    } finally {
      $("listen").disabled = false;
      $("listen").focus();
    }
  };
  const open = async ([file]) => {
    if (!file) return;
    await end();
    problem("");
    try {
      const samples = await decode(await file.arrayBuffer());
      restart(file.name);
      await play(samples, block);
    } catch (error) {
      problem(`${file.name} cannot be read as sound: ${error.message}`);
    }
  };
  const missing = microphoneProblem();
  if (missing) {
    $("listen").disabled = true;
    problem(missing);
  }
  $("listen").onclick = toggle;
  $("file").onchange = (event) => open(event.target.files).finally(() => (event.target.value = ""));
  document.addEventListener("keydown", (event) => {
    if (event.key === "l" && !event.repeat && !event.ctrlKey && !event.metaKey && !$("listen").disabled) toggle();
  });
  const slide = () => {
    spotter.threshold = $("threshold").value / 100;
    show("threshold-value", `${$("threshold").value} %`);
  };
  $("threshold").value = String(Math.round(100 * sound.threshold));
  $("threshold").oninput = slide;
  slide();
}

/* A recording, as fast as it goes, a part at a time so that the page can be seen. */
async function play(samples, block) {
  const hop = 320;
  const whole = new Int16Array(hop * Math.ceil(samples.length / hop));
  samples.forEach((sample, i) => (whole[i] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)))));
  for (let i = 0; i < whole.length; i += hop) {
    block(whole.subarray(i, i + hop));
    if ((i / hop) % PART === PART - 1) await new Promise((done) => setTimeout(done));
  }
}

async function start() {
  const response = await fetch("model.json");
  if (!response.ok) throw new Error(`model.json: the server answered ${response.status}`);
  const about = await response.json();
  const model = await load(new URL(about.model, document.baseURI));
  document.title = about.title;
  show("title", about.title);
  const units = model.layers.map(({ units }) => units).join(" + ");
  show("about", "Runs in this browser. Nothing you say or type leaves this device.");
  const kilo = (model.macsPerStep / 1000).toFixed(0);
  show("facts", `surnn ${about.surnn}: ${units} units, ${kilo} thousand multiply-accumulates a frame if nothing sleeps, WebAssembly ${model.simd ? "with SIMD" : "without SIMD"}.`);
  const numbers = new Numbers();
  const rows = model.takesTokens ? 1 : Math.min(model.inputSize, 64);
  const picture = new Picture($("picture"), rows, model.layers);
  if (about.sound) spot(model, about, picture, numbers);
  else tryOut(model, about, picture, numbers, problem);
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  problem(location.protocol === "file:"
    ? "Browsers do not load models from file://. In this folder, run: python -m http.server"
    : `The model could not be loaded: ${error.message}`);
  show("about", "");
});
