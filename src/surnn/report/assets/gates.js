// Gate pictures: gates over time, rate of each gate, intervals between updates.

const INK = [58, 134, 200];  // readable on white and on black
const PRINT_COLOUR = "#444";  // lines and labels
const BINARY = {
  over: "Share of open gates", each: "Each gate: filled where it is open", rates: "Rate of each gate", format: percent,
};
const SOFT = {
  over: "How far gates are open, on average", each: "Each gate: darker where it is more open",
  rates: "How far each gate is open, on average", format: formatNumber,
};

/** The grey values of an embedded picture, row by row. */
async function greys({ png, rows, columns }) {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const canvas = el("canvas", { width: columns, height: rows });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0);
  return context.getImageData(0, 0, columns, rows).data.filter((_, i) => i % 4 === 0);
}

/** A canvas of that size; values from 0 to 255 are the opacity of its pixels. */
function inkCanvas(values, rows, columns) {
  const canvas = el("canvas", { width: columns, height: rows });
  const pixels = new ImageData(columns, rows);
  values.forEach((value, i) => pixels.data.set([...INK, value], 4 * i));
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}

/** A picture over time, aligned with the line chart above it. */
class Raster {
  constructor(host, view, label, status) {
    Object.assign(this, { host, view, status, picture: null, cell: null });
    this.canvas = el("canvas", { class: "raster", role: "img", tabindex: 0, "aria-label": label });
    host.append(this.canvas);
    drawables.push(this);
    view.charts.push(this);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("blur", () => this.point(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("dblclick", () => view.change({ range: null }));
    new ResizeObserver(() => this.draw()).observe(host);
  }

  /** `picture`: {values, rows, columns, wide, steps, height, describe(row, column), names(row)}. */
  show(picture) {
    Object.assign(this, { picture, cell: null, image: inkCanvas(picture.values, picture.rows, picture.columns) });
    this.draw();
  }

  range() {
    return this.view.range ?? [0.5, this.picture.steps + 0.5];
  }

  draw() {
    if (!this.picture) return;
    const { rows, columns, wide, height, steps } = this.picture;
    const scale = window.devicePixelRatio || 1;
    const width = widthOf(this.host);
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.height = `${height}px`;
    this.left = MARGIN.left;
    this.inner = width - MARGIN.left - MARGIN.right;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const [from, to] = this.range();
    // The last column may cover fewer time steps than the others.
    const until = Math.min(to - 0.5, steps) / wide, since = (from - 0.5) / wide;
    const across = (until - since) * wide / (to - from) * this.inner;
    pen.imageSmoothingEnabled = columns * (to - from) / steps > this.inner * scale || rows > height * scale;
    pen.imageSmoothingQuality = "high";
    pen.drawImage(this.image, since, 0, Math.min(until, columns) - since, rows, this.left, 0, across, height);
    const style = getComputedStyle(this.canvas);
    const colour = (name) => (drawables.printing ? PRINT_COLOUR : style.getPropertyValue(name));
    pen.strokeStyle = colour("--line");
    pen.strokeRect(this.left - 0.5, 0.5, this.inner + 1, height - 1);
    this.drawNames(pen, colour);
    if (this.cell) this.drawCell(pen, colour);
  }

  drawNames(pen, colour) {
    const { rows, height, names } = this.picture;
    pen.fillStyle = colour("--soft");
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const every = Math.max(1, 2 ** Math.ceil(Math.log2(14 * rows / height)));
    for (let row = 0; row < rows; row += every) {
      pen.fillText(names(row), this.left - 6, Math.max(6, (row + 0.5) * height / rows), this.left - 8);
    }
  }

  drawCell(pen, colour) {
    const { rows, wide, height } = this.picture;
    const [from, to] = this.range();
    const place = (step) => this.left + (step - from) / (to - from) * this.inner;
    const x = place(this.cell.column * wide + 0.5), right = place((this.cell.column + 1) * wide + 0.5);
    const tall = height / rows;
    pen.strokeStyle = colour("--ink");
    pen.lineWidth = 1.5;
    const grown = Math.max(0, 6 - (right - x)) / 2, higher = Math.max(0, 6 - tall) / 2;
    pen.strokeRect(x - grown, this.cell.row * tall - higher, right - x + 2 * grown, tall + 2 * higher);
  }

  point(cell) {
    this.cell = cell;
    this.draw();
    if (cell) this.status.textContent = this.picture.describe(cell.row, cell.column);
  }

  hover(event) {
    if (!this.picture) return;
    const { rows, columns, wide, height, steps } = this.picture;
    const [from, to] = this.range();
    const step = from + (event.offsetX - this.left) / this.inner * (to - from);
    const row = Math.floor(event.offsetY / height * rows);
    const column = Math.floor((step - 0.5) / wide);
    const inside = event.offsetX >= this.left && step < Math.min(to, steps + 0.5);
    this.point(inside && row >= 0 && row < rows && column < columns ? { row, column } : null);
  }

  key(event) {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move || !this.picture) return;
    event.preventDefault();
    const { rows, columns } = this.picture;
    const now = this.cell ?? { row: 0, column: -move[1] };
    this.point({
      row: Math.max(0, Math.min(rows - 1, now.row + move[0])),
      column: Math.max(0, Math.min(columns - 1, now.column + move[1])),
    });
  }
}

/** Values of a sequence at their pixels in the image. */
class PixelMap {
  constructor(host) {
    this.canvas = el("canvas", { class: "pixels", role: "img" });
    this.status = el("div", { class: "hint" });
    host.append(el("figure", { class: "map" }, this.canvas, this.status));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => { this.status.textContent = this.caption; });
  }

  show(values, order, side, format, caption) {
    Object.assign(this, { side, format, caption, values, stepOf: [] });
    this.canvas.setAttribute("aria-label", caption);
    this.status.textContent = caption;
    const top = Math.max(...values, 1e-9);
    const pixels = new Uint8ClampedArray(side * side);
    order.forEach((pixel, step) => { pixels[pixel] = 255 * values[step] / top; this.stepOf[pixel] = step; });
    this.canvas.width = this.canvas.height = side;
    this.canvas.getContext("2d").drawImage(inkCanvas(pixels, side, side), 0, 0);
  }

  hover(event) {
    const size = this.canvas.getBoundingClientRect().width / this.side;
    const [row, column] = [event.offsetY, event.offsetX].map((at) => Math.min(this.side - 1, Math.floor(at / size)));
    const step = this.stepOf[row * this.side + column];
    this.status.textContent = `row ${row + 1}, column ${column + 1}, time step ${step + 1}: ${this.format(this.values[step])}`;
  }
}

/** The section about gates, for all runs that have gates. */
class GateSection {
  constructor(runs) {
    this.runs = runs.filter((run) => run.gates && !run.gates.missing);
    this.section = el("section", { id: "gates" }, el("h2", {}, "Gates"));
    for (const run of runs.filter((each) => each.gates?.missing)) {
      const who = runs.length > 1 ? `${run.name}: ` : "";
      this.section.append(el("p", { class: "note" }, `${who}Gates are not shown: ${run.gates.missing}`));
    }
    Object.assign(this, { run: 0, layer: 0, sequence: 0 });
    this.section.start = () => this.runs.length && this.start();
  }

  start() {
    this.tools = el("div", { class: "toolbar" });
    this.about = el("p", { class: "hint" });
    this.numbers = el("dl", { class: "numbers" });
    this.view = new View("time step");
    const over = el("div"), raster = el("div"), input = el("div");
    this.status = el("p", { class: "pointer-text", role: "status" });
    const rates = el("div"), between = el("div");
    this.maps = el("div", { class: "maps" });
    this.section.append(this.tools, this.about, this.numbers,
      el("figure", { class: "panel wide", id: "raster" },
        el("figcaption", {}, el("h3", {}, "Gates over time"), el("div", { class: "choices" },
          copyButton("open gates over time", () => this.overTime()),
          el("button", { type: "button", class: "small", onclick: () => this.view.change({ range: null }) }, "Reset zoom"))),
        this.overTitle = el("div", { class: "hint" }), over,
        this.rasterTitle = el("div", { class: "hint" }), raster, this.inputTitle = el("div", { class: "hint" }), input,
        this.status),
      el("div", { class: "grid-of-charts" },
        el("figure", { class: "panel" }, el("figcaption", {}, this.ratesTitle = el("h3"),
          copyButton("rates of gates", () => csv([["gate", "update rate"], ...this.current().rates.map((r, i) => [i, r])]))), rates),
        this.betweenPanel = el("figure", { class: "panel" }, el("figcaption", {}, el("h3", {}, "Time steps between updates"),
          copyButton("intervals", () => csv([["from", "to", "count"],
            ...this.current().intervals.bins.map((bin, i) => [...bin, this.current().intervals.counts[i]])]))), between),
        this.mapsPanel = el("figure", { class: "panel" }, el("figcaption", {}, el("h3", {}, "In the image")), this.maps)));
    this.mean = new LineChart(over, "Mean of the gates over time", this.view, { format: percent, height: 150 });
    this.raster = new Raster(raster, this.view, "Gates over time; arrow keys show values", this.status);
    this.input = new Raster(input, this.view, "The input over time", this.status);
    this.rates = new BarChart(rates, "Mean of each gate", { label_x: "gate", format: percent });
    this.between = new BarChart(between, "Intervals between updates", { label_x: "time steps from one update to the next" });
    this.gateMap = new PixelMap(this.maps);
    this.inputMap = new PixelMap(this.maps);
    this.choose({});
  }

  current() {
    return this.runs[this.run].gates.layers[this.layer];
  }

  choose(values) {
    const before = this.run;
    Object.assign(this, values);
    const gates = this.runs[this.run].gates;
    this.layer = Math.min(this.layer, gates.layers.length - 1);
    this.sequence = Math.min(this.sequence, gates.lengths.length - 1);
    if (values.run !== undefined || !this.tools.childElementCount) this.drawTools(gates);
    if (before !== this.run || values.sequence !== undefined) this.view.range = null;
    this.drawPictures();
  }

  drawTools(gates) {
    const tools = [
      chooser("Run", this.runs.map((run) => run.name), (run) => this.choose({ run })),
      chooser("Layer", gates.layers.map((layer) => layer.name), (layer) => this.choose({ layer })),
      chooser("Sequence", gates.lengths.map((_, i) => `${i + 1} (validation)`), (sequence) => this.choose({ sequence })),
    ].filter(Boolean);
    [this.run, this.layer, this.sequence].filter((_, i) => [this.runs, gates.layers, gates.lengths][i].length > 1)
      .forEach((index, i) => { tools[i].querySelector("select").selectedIndex = index; });
    this.tools.replaceChildren(...tools);
  }

  async drawPictures() {
    const run = this.runs[this.run], { gates } = run, layer = this.current();
    const raster = layer.rasters[this.sequence], steps = gates.lengths[this.sequence];
    this.describe(run, layer);
    const words = layer.soft ? SOFT : BINARY;
    this.overTitle.textContent = words.over;
    this.rasterTitle.textContent = words.each;
    this.ratesTitle.textContent = words.rates;
    this.mean.format = this.rates.format = words.format;
    this.status.textContent = "Point at a gate, or move with the arrow keys, to see its number and time step.";
    this.mean.extent = () => [0.5, steps + 0.5];
    const wide = raster.steps_per_column;
    this.mean.show([{
      label: "open", colour: 0, y: raster.mean,
      x: raster.mean.map((_, i) => (wide === 1 ? i + 1 : Math.min(i * wide + (wide + 1) / 2, steps))),
    }]);
    const input = gates.inputs[this.sequence] ?? null;
    this.rates.show(layer.rates.map((value, i) => ({ name: String(i), value, note: this.gateName(layer, i, 1) })));
    const { bins, counts } = layer.intervals;
    this.betweenPanel.hidden = layer.soft;
    this.between.show(bins.map(([a, b], i) => ({
      name: String(a), value: counts[i], note: a === b ? `${a} time step${a > 1 ? "s" : ""}` : `${a} to ${b} time steps`,
    })));
    const [values, seen] = await Promise.all([greys(raster), input && greys(input)]);
    if (layer !== this.current()) return;  // another layer was chosen in the meantime
    const names = (row) => String(row * raster.gates_per_row);
    this.raster.show({
      values, steps, wide, rows: raster.rows, columns: raster.columns, names,
      height: Math.max(80, Math.min(340, raster.rows * 14)),
      describe: (row, column) => this.gateText(layer, raster, values, row, column, input, seen, gates),
    });
    this.input.host.hidden = !input;
    this.inputTitle.textContent = input ? "The input" : "";
    if (input) {
      this.input.show({
        values: seen, steps, wide: input.steps_per_column, rows: input.rows, columns: input.columns,
        names: (row) => (input.rows > 1 ? String(row) : ""), height: Math.max(24, Math.min(120, input.rows * 12)),
        describe: (row, column) => `time step ${column * input.steps_per_column + 1}${this.inputText(input, seen, row, column, gates)}`,
      });
    }
    this.drawMaps(gates, raster, input, seen, words);
  }

  drawMaps(gates, raster, input, seen, words) {
    this.mapsPanel.hidden = !gates.order || raster.steps_per_column > 1;
    if (this.mapsPanel.hidden) return;
    this.gateMap.show(raster.mean, gates.order, gates.side, words.format, words.over.toLowerCase());
    this.inputMap.canvas.parentElement.hidden = !input;
    if (input) {
      const values = Array.from(seen.slice(0, input.columns), (v) => v / 255 * (input.high - input.low));
      this.inputMap.show(values, gates.order, gates.side, (value) => formatNumber(Number((value + input.low).toPrecision(3))), "the input");
    }
  }

  describe(run, layer) {
    const { gates } = run;
    const what = gates.sees_input
      ? `These gates depend on the input: each sequence has its own updates. Rates and intervals are computed from ${gates.sequences} sequences of the validation set.`
      : "These gates depend on time alone: every sequence has the same updates.";
    const soft = layer.soft ? " They are soft: a gate applies a fraction of the update." : "";
    this.about.textContent = `${what}${soft} Weights from step ${formatNumber(gates.checkpoint_step)}.`;
    const never = layer.rates.filter((rate) => rate === 0).length;
    const always = layer.rates.filter((rate) => rate === 1).length;
    const facts = {
      "update rate": formatRate(layer.rate, layer.soft), gates: formatNumber(layer.rates.length), units: formatNumber(layer.units),
      "never open": formatNumber(never), "always open": formatNumber(always),
      "median interval": layer.soft ? "\u2013" : formatNumber(layer.intervals.median), "longest interval": formatNumber(layer.intervals.longest),
    };
    this.numbers.replaceChildren(...Object.entries(facts).map(([name, value]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  }

  gateName(layer, first, count) {
    const [a, b] = [first * layer.units_per_gate, (first + count) * layer.units_per_gate - 1];
    const units = a === b ? `unit ${a}` : `units ${a} to ${b}`;
    if (layer.units_per_gate === 1) return count > 1 ? `gates ${first} to ${first + count - 1}` : units;
    return `gate ${first} (${units})`;
  }

  gateText(layer, raster, values, row, column, input, seen, gates) {
    const wide = raster.steps_per_column, tall = raster.gates_per_row;
    const first = row * tall, count = Math.min(tall, layer.rates.length - first);
    const value = values[row * raster.columns + column] / 255;
    const exact = wide === 1 && tall === 1 && !layer.soft;
    const some = layer.soft ? `open by ${value.toFixed(2)}` : `${percent(value)} open`;
    const state = exact ? (value ? "open" : "closed") : some;
    const steps = wide === 1 ? `time step ${column + 1}` : `time steps ${column * wide + 1} to ${(column + 1) * wide}`;
    const what = input && input.steps_per_column === wide && input.rows === 1
      ? this.inputText(input, seen, 0, column, gates) : this.kindText(input, column * wide, gates);
    return `${layer.name}, ${this.gateName(layer, first, count)}, ${steps}: ${state}${what}`;
  }

  inputText(input, seen, row, column, gates) {
    const share = seen[row * input.columns + column] / 255;
    const value = input.low + share * (input.high - input.low);
    const named = input.tokens ? `token ${Math.round(value)}` : `input ${formatNumber(Number(value.toPrecision(3)))}`;
    const feature = input.rows > 1 ? `feature ${row}, ` : "";
    return `, ${feature}${named}${this.kindText(input, column * input.steps_per_column, gates)}`;
  }

  kindText(input, step, gates) {
    if (!input?.kinds) return "";
    const [, kind] = input.kinds.findLast(([begin]) => begin <= step);
    return kind in gates.kinds ? `, ${gates.kinds[kind]}` : "";
  }

  overTime() {
    const raster = this.current().rasters[this.sequence], wide = raster.steps_per_column;
    return csv([["first time step", "share of open gates"], ...raster.mean.map((v, i) => [i * wide + 1, v])]);
  }
}
