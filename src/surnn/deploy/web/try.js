/* For models whose input is not sound: numbers or text, typed or random. */

const $ = (id) => document.getElementById(id);
const RANDOM = 200;
const MOST = 20; // scores that are shown
const BYTES = 256;

/* The frames or tokens of the text, one array or number for each time step. */
function parse(text, model) {
  if (model.takesTokens && model.inputSize === BYTES) return [...new TextEncoder().encode(text)];
  const lines = text.split("\n").filter((line) => line.trim());
  const rows = lines.map((line) => line.trim().split(/[\s,;]+/).map(Number));
  if (model.takesTokens) return checked(rows.flat(), model);
  rows.forEach((row, i) => {
    if (row.length !== model.inputSize || row.some(Number.isNaN)) {
      throw new Error(`line ${i + 1}: expected ${model.inputSize} numbers, got ${lines[i].trim().slice(0, 60)}`);
    }
  });
  return rows;
}

function checked(tokens, { inputSize }) {
  const wrong = tokens.find((token) => !(Number.isInteger(token) && token >= 0 && token < inputSize));
  if (wrong !== undefined) throw new Error(`expected tokens, integers from 0 to ${inputSize - 1}`);
  return tokens;
}

function normal() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

function randomText(model) {
  const token = () => Math.floor(Math.random() * model.inputSize);
  if (model.takesTokens && model.inputSize === BYTES) {
    return Array.from({ length: RANDOM }, () => String.fromCharCode(97 + Math.floor(Math.random() * 26))).join("");
  }
  if (model.takesTokens) return Array.from({ length: RANDOM }, token).join(" ");
  const frame = () => Array.from({ length: model.inputSize }, () => normal().toFixed(2)).join(" ");
  return Array.from({ length: RANDOM }, frame).join("\n");
}

function describe({ takesTokens, inputSize }) {
  if (takesTokens && inputSize === BYTES) return "Text; each byte is a time step";
  if (takesTokens) return `Tokens from 0 to ${inputSize - 1}, one a time step`;
  return `Frames, one a line: ${inputSize} number${inputSize > 1 ? "s" : ""} each`;
}

/* The heat map's values: each input between the extremes seen so far, of at most `rows` inputs. */
class Range {
  low = Infinity;
  high = -Infinity;
  values(frame, rows, { takesTokens, inputSize }) {
    if (takesTokens) return [Math.round((255 * frame) / Math.max(1, inputSize - 1))];
    for (const value of frame) {
      this.low = Math.min(this.low, value);
      this.high = Math.max(this.high, value);
    }
    const span = this.high - this.low || 1;
    return Array.from({ length: rows }, (_, i) => {
      const value = frame[Math.floor((i * frame.length) / rows)];
      return Math.round((255 * (value - this.low)) / span);
    });
  }
}

function showScores(scores, classes) {
  const order = Array.from(scores.keys()).sort((a, b) => scores[b] - scores[a]);
  const few = scores.length > MOST ? order.slice(0, MOST) : Array.from(scores.keys());
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  $("scores").replaceChildren(...few.map((i) => {
    const item = document.createElement("li");
    const [name, value] = [document.createElement("span"), document.createElement("span")];
    const meter = document.createElement("meter");
    name.textContent = classes[i] ?? String(i);
    Object.assign(meter, { min: low, max: high > low ? high : low + 1, value: scores[i], ariaLabel: name.textContent });
    value.textContent = scores[i].toFixed(3);
    item.append(name, meter, value);
    return item;
  }));
}

/** Sets up the page's form. */
export function tryOut(model, about, picture, numbers, problem) {
  const stream = model.stream();
  let [range, seconds, next] = [new Range(), 0, 0];
  const advance = (frame) => {
    const begin = performance.now();
    const scores = stream.step(frame);
    seconds += (performance.now() - begin) / 1000;
    picture.push(range.values(frame, picture.inputs, model), model.layers.map((_, layer) => stream.gates(layer)));
    return scores;
  };
  const run = (most) => {
    problem("");
    try {
      const frames = parse($("input").value, model);
      if (next >= frames.length) next = 0;
      let scores;
      for (const frame of frames.slice(next, next + most)) {
        scores = advance(frame);
        numbers.update(stream.work, seconds, stream.clock, most === 1);
        next++;
      }
      if (!scores) return;
      numbers.update(stream.work, seconds, stream.clock, true);
      showScores(scores, about.classes);
      $("answer").hidden = false;
    } catch (error) {
      problem(error.message);
    }
  };
  const reset = () => {
    stream.reset();
    picture.clear();
    numbers.clear();
    [range, seconds, next] = [new Range(), 0, 0];
    $("answer").hidden = true;
  };
  $("input-label").textContent = describe(model);
  $("input").value = randomText(model);
  $("input").oninput = () => (next = 0);
  $("step").onclick = () => run(1);
  $("run").onclick = () => run(Infinity);
  $("random").onclick = () => {
    $("input").value = randomText(model);
    next = 0;
  };
  $("reset").onclick = reset;
  $("factor-box").hidden = true; // frames have no length in time
  $("try").hidden = false;
}
