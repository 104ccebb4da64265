// Line and bar charts in SVG. Hovering and arrow keys show values, dragging zooms.

const MARGIN = { left: 58, right: 14, top: 10, bottom: 34 };
const PRINTED = { half: 340, whole: 700 };  // widths on paper, in pixels
const DASHES = [null, "6 3", "2 3", "9 3 2 3"];

/** State shared by charts with a common x-axis: range, label, number format, smoothing. */
class View {
  constructor(label, format = formatNumber) {
    Object.assign(this, { label, format, range: null, smoothing: 0, charts: [] });
  }

  change(values) {
    Object.assign(this, values);
    for (const chart of this.charts) chart.draw();
  }
}

/** Exponential moving average: weights fall by the factor `smoothing` from point to point. */
function movingAverage(values, smoothing) {
  let sum = 0, weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = smoothing * sum + (1 - smoothing) * value;
    weight = smoothing * weight + (1 - smoothing);
    return sum / weight;
  });
}

/** A short piece of a curve's line, for legends. */
function swatch({ colour, dash = 0 }) {
  return el("i", { class: "swatch", style: `border-top-color: var(--c${colour}); border-top-style: ${dash ? "dotted" : "solid"}` });
}

/** Everything whose size depends on the page's width; redrawn on resizing and for printing. */
const drawables = [];

function widthOf(host) {
  if (drawables.printing) return host.closest(".wide") ? PRINTED.whole : PRINTED.half;
  return Math.max(240, Math.round(host.clientWidth));
}

/** Base of line and bar charts: a frame with axes, a tooltip, keyboard control. */
class Chart {
  constructor(host, label, height) {
    drawables.push(this);
    this.host = host;
    this.height = height;
    this.svg = el("svg", { class: "chart", role: "img", tabindex: 0, "aria-label": label });
    this.tip = el("div", { class: "tip", hidden: true, "aria-live": "polite" });
    host.classList.add("chart-box");
    host.append(this.svg, this.tip);
    this.svg.addEventListener("pointermove", (event) => this.hover(this.place(event)));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.svg.addEventListener("blur", () => this.leave());
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => {
      if (widthOf(host) !== this.width) this.draw();
    }).observe(host);
  }

  /** The pointer's x position in the chart's own units. */
  place(event) {
    const box = this.svg.getBoundingClientRect();
    return (event.clientX - box.left) * this.width / box.width;
  }

  begin() {
    this.width = widthOf(this.host);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.replaceChildren();
    this.inner = {
      left: MARGIN.left, right: this.width - MARGIN.right,
      top: MARGIN.top, bottom: this.height - MARGIN.bottom,
    };
  }

  text(x, y, words, anchor = "middle", kind = "") {
    this.svg.append(el("text", { x, y, "text-anchor": anchor, class: kind }, words));
  }

  axisY(ticks, y, format) {
    const { left, right } = this.inner;
    for (const value of ticks) {
      this.svg.append(el("line", { x1: left, x2: right, y1: y(value), y2: y(value), class: "grid" }));
      this.text(left - 6, y(value) + 4, format(value), "end");
    }
  }

  axisX(ticks, x, format, label) {
    const { left, right, bottom } = this.inner;
    this.svg.append(el("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" }));
    for (const value of ticks) {
      const at = x(value);
      const anchor = at > right - 20 ? "end" : "middle";
      this.svg.append(el("line", { x1: at, x2: at, y1: bottom, y2: bottom + 4, class: "axis" }));
      this.text(anchor === "end" ? right + MARGIN.right : at, bottom + 16, format(value), anchor);
    }
    this.text((left + right) / 2, this.height - 4, label, "middle", "label");
  }

  showTip(at, lines) {
    this.tip.replaceChildren(...lines);
    this.tip.hidden = false;
    const scale = this.svg.getBoundingClientRect().width / this.width;
    const room = this.host.clientWidth - this.tip.offsetWidth;
    const right = at * scale + 12;
    const place = right <= room ? right : at * scale - this.tip.offsetWidth - 12;
    this.tip.style.left = `${Math.max(0, Math.min(room, place))}px`;
  }

  leave() {
    this.tip.hidden = true;
    this.mark?.remove();
  }
}

/**
 * Curves over a common x. A series is {label, colour, dash, dots, bare, exact, x, y, means, constant}:
 * `bare` dots have no line between them; `exact` curves and dots are not smoothed; if points were left
 * out, smoothing uses `means` ({x, y}); `constant` is a horizontal line.
 */
class LineChart extends Chart {
  constructor(host, label, view, { format = formatNumber, height = 240, label_y = "" } = {}) {
    super(host, label, height);
    Object.assign(this, { view, format, series: [], hidden: new Set(), log: false, name: label_y });
    view.charts.push(this);
    this.svg.addEventListener("pointerdown", (event) => this.grab(event));
    this.svg.addEventListener("dblclick", () => view.change({ range: null }));
  }

  show(series) {
    this.series = series;
    this.draw();
  }

  visible() {
    return this.series.filter((each) => !this.hidden.has(each.label));
  }

  extent() {
    const curves = this.visible().filter((each) => !each.constant && each.x.length);
    const whole = [
      Math.min(...curves.map((each) => each.x[0])), Math.max(...curves.map((each) => each.x.at(-1))),
    ];
    if (!curves.length) return [0, 1];
    return whole[1] > whole[0] ? whole : [whole[0] - 1, whole[1] + 1];
  }

  /** Lowest and highest visible value. */
  heights([from, to]) {
    let low = Infinity, high = -Infinity;
    const see = (value) => {
      if (value === null || (this.log && value <= 0)) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    };
    for (const each of this.visible()) {
      if (each.constant) see(each.y);
      else each.x.forEach((x, i) => { if (x >= from && x <= to) see(each.y[i]); });
    }
    if (low > high) return this.log ? [0.1, 1] : [0, 1];
    if (this.log) return high > low ? [low, high] : [low / 2, high * 2];
    if (low >= 0 && low < 0.4 * high) low = 0;
    if (low === high) return [low - (Math.abs(low) || 1) / 10, high + (Math.abs(high) || 1) / 10];
    return [low, high + (high - low) * 0.04];
  }

  draw() {
    this.begin();
    const { left, right, top, bottom } = this.inner;
    const range = this.view.range ?? this.extent();
    const [low, high] = this.heights(range);
    const bend = this.log ? Math.log10 : (value) => value;
    this.toX = (value) => left + (value - range[0]) / (range[1] - range[0]) * (right - left);
    this.fromX = (at) => range[0] + (at - left) / (right - left) * (range[1] - range[0]);
    this.toY = (value) => bottom - (bend(value) - bend(low)) / (bend(high) - bend(low)) * (bottom - top);
    this.axisY(this.log ? logTicks(low, high) : niceTicks(low, high, 5), this.toY, this.format);
    this.axisX(niceTicks(...range, this.width < 480 ? 4 : 7), this.toX, this.view.format, this.view.label);
    const area = el("svg", {
      x: left, y: 0, width: right - left, height: this.height,
      viewBox: `${left} 0 ${right - left} ${this.height}`, class: "area",
    });
    this.svg.append(area);
    for (const each of this.visible()) this.drawSeries(area, each, range);
    this.mark = null;
  }

  drawSeries(area, each, range) {
    const style = `--stroke: var(--c${each.colour})`;
    const dash = DASHES[each.dash ?? 0];
    if (each.constant) {
      const y = this.toY(each.y);
      const { left, right } = this.inner;
      area.append(el("line", { x1: left, x2: right, y1: y, y2: y, class: "constant" }));
      area.append(el("text", { x: right - 4, y: y - 4, "text-anchor": "end", class: "constant-name" }, each.label));
      return;
    }
    const [from, to] = [Math.max(0, nearest(each.x, range[0]) - 1), nearest(each.x, range[1]) + 2];
    const draw = (x, y, kind) => area.append(el("path", {
      d: this.path(x, y), style, class: kind, "stroke-dasharray": dash,
    }));
    const smooth = this.view.smoothing > 0 && !each.dots && !each.exact && each.x.length > 4;
    // A single point makes no line.
    const dotted = (each.dots || each.x.length === 1) && to - from < 150;
    if (!(dotted && each.bare)) draw(each.x.slice(from, to), each.y.slice(from, to), smooth ? "curve faint" : "curve");
    if (smooth) {
      const { x, y } = each.means ?? each;
      draw(x, movingAverage(y, this.view.smoothing), "curve");
    }
    if (dotted) {
      for (let i = from; i < Math.min(to, each.x.length); i += 1) {
        if (!this.drawable(each.y[i])) continue;
        area.append(el("circle", { cx: this.toX(each.x[i]), cy: this.toY(each.y[i]), r: 2.6, style, class: "dot" }));
      }
    }
  }

  drawable(value) {
    return value !== null && !(this.log && value <= 0);
  }

  path(x, y) {
    let pen = "M";
    let commands = "";
    for (let i = 0; i < x.length; i += 1) {
      if (!this.drawable(y[i])) { pen = "M"; continue; }
      commands += `${pen}${this.toX(x[i]).toFixed(1)} ${this.toY(y[i]).toFixed(1)}`;
      pen = "L";
    }
    return commands;
  }

  /** Show the values of all curves at the logged point nearest to `at`. */
  hover(at) {
    const curves = this.visible().filter((each) => !each.constant && each.x.length);
    if (!curves.length || !this.toX) return;
    const target = this.fromX(Math.max(this.inner.left, Math.min(this.inner.right, at)));
    const closest = curves.map((each) => ({ each, i: nearest(each.x, target) }));
    const off = ({ each, i }) => Math.abs(each.x[i] - target);
    const first = closest.reduce((a, b) => (off(b) < off(a) ? b : a));
    const here = first.each.x[first.i];
    this.at = here;
    this.mark?.remove();
    const x = this.toX(here);
    this.mark = el("g", { class: "mark" }, el("line", { x1: x, x2: x, y1: this.inner.top, y2: this.inner.bottom }));
    const lines = [el("div", { class: "tip-x" }, `${this.view.label} ${this.view.format(here)}`)];
    for (const { each, i } of closest) {
      const value = each.y[i];
      if (this.drawable(value)) {
        this.mark.append(el("circle", {
          cx: this.toX(each.x[i]), cy: this.toY(value), r: 3.5, style: `--stroke: var(--c${each.colour})`,
        }));
      }
      const elsewhere = each.x[i] === here ? "" : ` (at ${this.view.format(each.x[i])})`;
      lines.push(el("div", { class: "tip-row" },
        swatch(each),
        el("span", {}, `${each.name ?? each.label}${elsewhere}`),
        el("b", {}, value === null ? "not finite" : this.format(value))));
    }
    this.svg.append(this.mark);
    this.showTip(x, lines.slice(0, 14));
  }

  key(event) {
    const curves = this.visible().filter((each) => !each.constant && each.x.length);
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    if (step && curves.length) {
      const longest = curves.reduce((a, b) => (b.x.length > a.x.length ? b : a)).x;
      const [from, to] = this.view.range ?? this.extent();
      const now = nearest(longest, this.at ?? from);
      const next = Math.max(0, Math.min(longest.length - 1, now + step));
      if (longest[next] >= from && longest[next] <= to) this.hover(this.toX(longest[next]));
    } else if (event.key === "+" || event.key === "-") {
      this.zoomAround(this.at, event.key === "+" ? 0.5 : 2);
    } else if (event.key === "Escape") {
      this.leave();
      this.view.change({ range: null });
    } else return;
    event.preventDefault();
  }

  zoomAround(middle, factor) {
    const whole = this.extent();
    const [from, to] = this.view.range ?? whole;
    const centre = middle ?? (from + to) / 2;
    const half = (to - from) * factor / 2;
    const next = [Math.max(whole[0], centre - half), Math.min(whole[1], centre + half)];
    this.view.change({ range: next[0] <= whole[0] && next[1] >= whole[1] ? null : next });
  }

  /** Drag with a mouse or pen to zoom; fingers scroll the page. */
  grab(event) {
    if (event.pointerType === "touch" || event.button !== 0) return;
    const begin = this.place(event);
    const band = el("rect", { class: "band", y: this.inner.top, height: this.inner.bottom - this.inner.top });
    this.svg.append(band);
    const clamp = (at) => Math.max(this.inner.left, Math.min(this.inner.right, at));
    const move = (moved) => {
      const [a, b] = [clamp(begin), clamp(this.place(moved))].sort((p, q) => p - q);
      band.setAttribute("x", a);
      band.setAttribute("width", b - a);
    };
    const end = (ended) => {
      window.removeEventListener("pointermove", move);
      band.remove();
      const [a, b] = [clamp(begin), clamp(this.place(ended))].sort((p, q) => p - q);
      if (b - a > 6) this.view.change({ range: [this.fromX(a), this.fromX(b)] });
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", end, { once: true });
  }
}

/** Bars with names; a bar is {name, value, note}. */
class BarChart extends Chart {
  constructor(host, label, { label_x, format = formatNumber, height = 200 }) {
    super(host, label, height);
    Object.assign(this, { bars: [], label: label_x, format, at: -1 });
  }

  show(bars) {
    this.bars = bars;
    this.draw();
  }

  draw() {
    this.begin();
    const { left, right, top, bottom } = this.inner;
    const high = Math.max(...this.bars.map((bar) => bar.value), 0) * 1.04 || 1;
    const wide = (right - left) / Math.max(1, this.bars.length);
    const y = (value) => bottom - value / high * (bottom - top);
    this.middle = (i) => left + (i + 0.5) * wide;
    this.axisY(niceTicks(0, high, 4), y, this.format);
    const gap = wide > 4 ? 1 : 0;
    this.bars.forEach((bar, i) => this.svg.append(el("rect", {
      x: left + i * wide + gap / 2, width: Math.max(0.5, wide - gap),
      y: y(bar.value), height: bottom - y(bar.value), class: "bar",
    })));
    const every = Math.ceil(this.bars.length / Math.max(1, Math.floor((right - left) / 44)));
    const ticks = this.bars.map((_, i) => i).filter((i) => i % every === 0);
    this.axisX(ticks, this.middle, (i) => this.bars[i].name, this.label);
    this.mark = null;
  }

  hover(at) {
    const wide = (this.inner.right - this.inner.left) / Math.max(1, this.bars.length);
    this.point(Math.floor((at - this.inner.left) / wide));
  }

  point(index) {
    if (!this.bars.length) return;
    this.at = Math.max(0, Math.min(this.bars.length - 1, index));
    const x = this.middle(this.at);
    this.mark?.remove();
    this.mark = el("g", { class: "mark" }, el("line", { x1: x, x2: x, y1: this.inner.top, y2: this.inner.bottom }));
    this.svg.append(this.mark);
    const bar = this.bars[this.at];
    this.showTip(x, [el("div", { class: "tip-x" }, bar.note), el("b", {}, this.format(bar.value))]);
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    this.point(this.at + step);
    event.preventDefault();
  }
}
