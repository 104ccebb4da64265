/* A moving picture of a stream: its input as a heat map, and below it a row for each gate, bright where
 * it is open. The fewer gates are open, the darker the input. Dark in both colour schemes. */

const STEP = 2; // CSS pixels of a time step
const KEPT = 1024; // time steps
const MOST_ROWS = 32; // of a layer's gates; more are shown in groups
const HEAT = [[4, 6, 20], [46, 16, 100], [136, 34, 106], [212, 72, 66], [249, 160, 40], [252, 250, 190]];
const ASLEEP = 0.25; // brightness of the input when all gates are closed
const OPEN = [86, 200, 255];
const CLOSED = [16, 20, 28];
const GAP = 2;
const LINE = "#8fe3b0";

function heat(value) {
  const x = Math.max(0, Math.min(1, value)) * (HEAT.length - 1);
  const i = Math.min(Math.floor(x), HEAT.length - 2);
  return HEAT[i].map((low, channel) => low + (HEAT[i + 1][channel] - low) * (x - i));
}
const HEATS = Array.from({ length: 256 }, (_, i) => heat(i / 255));

export class Picture {
  constructor(canvas, inputs, layers) {
    this.canvas = canvas;
    this.inputs = inputs;
    this.layers = layers.map(({ gates }) => ({ gates, rows: Math.min(gates, MOST_ROWS) }));
    this.rows = inputs + this.layers.reduce((sum, { rows }) => sum + GAP + rows, 0);
    this.clear();
    new ResizeObserver(() => this.#resize()).observe(canvas);
  }

  clear() {
    this.count = 0;
    this.marks = [];
    this.ring = new OffscreenCanvas(KEPT, this.rows);
    this.context = this.ring.getContext("2d");
    this.context.fillStyle = "#0b0e14";
    this.context.fillRect(0, 0, KEPT, this.rows);
    this.column = this.context.createImageData(1, this.rows);
    this.#resize();
  }

  #resize() {
    const { canvas } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    canvas.width = Math.round(Math.max(1, canvas.clientWidth) * ratio);
    canvas.height = Math.round(Math.max(1, canvas.clientHeight) * ratio);
    this.shown = Math.max(1, Math.min(KEPT, Math.floor(canvas.clientWidth / STEP)));
    this.draw();
  }

  #set(row, colour) {
    for (let c = 0; c < 3; c++) this.column.data[4 * row + c] = colour[c];
    this.column.data[4 * row + 3] = 255;
  }

  /** One time step: inputs from 0 to 255 (the last is on top), and the gates of each layer. */
  push(values, gates) {
    const all = gates.reduce((sum, layer) => sum + layer.length, 0);
    const open = gates.reduce((sum, layer) => sum + layer.reduce((a, b) => a + b, 0), 0);
    const light = ASLEEP + (1 - ASLEEP) * Math.sqrt(all ? open / all : 1);
    for (let i = 0; i < this.inputs; i++) {
      this.#set(i, HEATS[values[this.inputs - 1 - i]].map((c) => c * light));
    }
    let row = this.inputs;
    this.layers.forEach(({ gates: count, rows }, layer) => {
      for (let i = 0; i < GAP; i++) this.#set(row++, [0, 0, 0]);
      for (let i = 0; i < rows; i++) {
        const group = gates[layer].subarray(Math.floor((i * count) / rows), Math.floor(((i + 1) * count) / rows));
        this.#set(row++, group.includes(1) ? OPEN : CLOSED);
      }
    });
    this.context.putImageData(this.column, this.count % KEPT, 0);
    this.count++;
    if (!this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => {
        this.waiting = false;
        this.draw();
      });
    }
  }

  /** A word at the newest time step. */
  mark(text) {
    this.marks.push({ at: this.count, text });
    this.marks = this.marks.filter(({ at }) => at > this.count - KEPT);
  }

  /* The newest time step is at the right. */
  draw() {
    const { canvas, ring, rows, count, shown } = this;
    const screen = canvas.getContext("2d");
    const inputs = 0.68; // of the height
    const { width, height } = canvas;
    screen.imageSmoothingEnabled = false;
    const scale = width / shown;
    const part = (from, columns, to) => {
      if (!columns) return;
      const top = [0, this.inputs, 0, inputs * height];
      const bottom = [this.inputs, rows - this.inputs, inputs * height, (1 - inputs) * height];
      for (const [y, h, Y, H] of [top, bottom]) {
        screen.drawImage(ring, from, y, columns, h, to * scale, Y, columns * scale, H);
      }
    };
    const first = (count + KEPT - shown) % KEPT;
    const before = Math.min(shown, KEPT - first); // columns up to the ring's end
    part(first, before, 0);
    part(0, shown - before, before);
    const size = 13 * (globalThis.devicePixelRatio || 1);
    screen.font = `600 ${size}px system-ui, sans-serif`;
    for (const { at, text } of this.marks) {
      const x = (shown - (count - at)) * scale;
      if (x < 0) continue;
      screen.fillStyle = LINE;
      screen.fillRect(x, 0, Math.max(1, size / 10), height);
      const room = screen.measureText(text).width + size;
      const left = Math.max(0, Math.min(x - room / 2, width - room));
      screen.fillStyle = "#0b0e14";
      screen.fillRect(left, 0, room, 1.5 * size);
      screen.fillStyle = LINE;
      screen.fillText(text, left + size / 2, 1.1 * size);
    }
  }
}
