// Learning curves: which chart shows which curves of which runs.

const TITLES = {
  loss: "Loss", learning_rate: "Learning rate", gradient_norm: "Gradient norm",
  "update rate": "Update rate", "update rate by kind of token": "Update rate by kind of token",
  "steps per second": "Steps per second",
};
const SHARES = ["update rate", "update rate by kind of token"];
const SPLITS = { train: "training", valid: "validation" };

function title(chart) {
  return TITLES[chart] ?? chart[0].toUpperCase() + chart.slice(1).replaceAll("_", " ");
}

/** Names of the charts, the most important first. */
function chartNames(runs) {
  const known = new Set(runs.flatMap((run) => run.curves.map((curve) => curve.chart)));
  const metrics = runs.map((run) => run.metric?.name);
  const first = ["loss", ...metrics, "update rate", "update rate by kind of token"];
  const last = ["learning_rate", "gradient_norm", "steps per second"];
  const rest = [...known].filter((name) => !first.includes(name) && !last.includes(name));
  return [...new Set([...first, ...rest, ...last])].filter((name) => known.has(name));
}

/** Seconds of training at an optimizer step, interpolated between logged points. */
function secondsAt(run, step) {
  const [steps, seconds] = run.clock;
  if (!steps.length) return null;
  const next = firstFrom(steps, step);
  if (next === steps.length) return seconds.at(-1);
  const [s0, t0] = next ? [steps[next - 1], seconds[next - 1]] : [0, 0];
  const share = steps[next] > s0 ? (step - s0) / (steps[next] - s0) : 1;
  return t0 + share * (seconds[next] - t0);
}

function along(run, steps, axis) {
  return axis === "time" ? steps.map((step) => secondsAt(run, step)) : steps;
}

const unique = (list) => [...new Set(list)];

/** One chart with its selectors, legend and numbers. */
class CurvePanel {
  constructor(host, runs, name, view) {
    Object.assign(this, { runs, name, view, group: 0, part: 0 });
    this.all = runs.flatMap((run, index) => run.curves
      .filter((curve) => curve.chart === name).map((curve) => ({ run, index, curve })));
    this.groups = unique(this.all.map(({ curve }) => curve.group));
    this.parts = unique(this.all.map(({ curve }) => curve.part));
    const format = SHARES.includes(name) ? percent : formatNumber;
    this.legend = el("div", { class: "legend" });
    const box = el("div");
    const panel = el("figure", { class: "panel", "data-chart": name },
      el("figcaption", {}, el("h3", {}, title(name)), el("div", { class: "choices" },
        chooser("Layer", this.groups, (index) => this.choose({ group: index })),
        runs.length > 1 ? chooser(this.groups.length > 1 ? "Token" : "Layer", this.parts, (index) => this.choose({ part: index })) : null,
        tick("log", (on) => { this.chart.log = on; this.chart.draw(); }),
        copyButton(title(name), () => this.numbers()))),
      this.legend, box);
    host.append(panel);
    this.chart = new LineChart(box, `${title(name)} against ${view.label}; arrow keys show values`, view, { format });
    this.update();
  }

  choose(values) {
    Object.assign(this, values);
    this.update();
  }

  /** The selected curves. Colours distinguish runs if there are several, otherwise layers or kinds of token. */
  selection() {
    const several = this.runs.length > 1;
    return this.all.filter(({ curve }) => curve.group === this.groups[this.group]
      && (!several || curve.part === this.parts[this.part]));
  }

  update() {
    const several = this.runs.length > 1;
    const labels = several ? this.runs.map((run) => run.name) : this.parts;
    const splits = unique(this.all.map(({ curve }) => curve.split));
    const series = this.selection().map(({ run, index, curve }) => {
      const place = several ? index : this.parts.indexOf(curve.part);
      const bySplit = !several && this.parts.length === 1 && splits.length > 1;
      const split = splits.length > 1 ? SPLITS[curve.split] : "";
      const label = bySplit ? SPLITS[curve.split] : labels[place] || title(this.name);
      const colour = bySplit ? splits.indexOf(curve.split) : place;
      const means = curve.means && { x: along(run, curve.means[0], this.view.axis), y: curve.means[1] };
      return {
        label, colour: colour % 8, dash: Math.floor(colour / 8) % 4, means,
        name: bySplit || !split ? label : `${label}, ${split}`, dots: curve.split === "valid",
        exact: this.name === "learning_rate",
        bare: curve.split === "valid" && splits.length > 1 && !bySplit,
        x: along(run, curve.points[0], this.view.axis), y: curve.points[1],
      };
    });
    if (!SHARES.includes(this.name)) series.push(...this.constants());
    this.drawLegend(series, splits);
    this.chart.show(series);
  }

  /** Horizontal lines: chance, and the paper's number. */
  constants() {
    const metrics = this.runs.map((run) => run.metric).filter((metric) => metric?.name === this.name);
    const lines = new Map();
    for (const metric of metrics) {
      if (typeof metric.chance === "number") lines.set(`chance ${formatNumber(metric.chance)}`, metric.chance);
      if (metric.paper) lines.set(`paper ${formatNumber(metric.paper.value)}`, metric.paper.value);
    }
    return [...lines].map(([label, y]) => ({ label, y, constant: true, colour: 0 }));
  }

  drawLegend(series, splits) {
    const curves = series.filter((each) => !each.constant);
    const labels = unique(curves.map((each) => each.label));
    const keys = labels.map((label) => {
      const each = curves.find((one) => one.label === label);
      const key = el("button", {
        type: "button", class: "key", "aria-pressed": !this.chart.hidden.has(label),
        onclick: () => {
          if (!this.chart.hidden.delete(label)) this.chart.hidden.add(label);
          key.setAttribute("aria-pressed", !this.chart.hidden.has(label));
          this.chart.draw();
        },
      }, swatch(each), label);
      return key;
    });
    const both = splits.length > 1 && labels.length && !labels.includes("validation");
    this.legend.replaceChildren(
      ...(labels.length > 1 || this.runs.length > 1 ? keys : []),
      ...(both ? [el("span", { class: "hint" }, "dots: validation")] : []));
  }

  /** The curves shown, as CSV. */
  numbers() {
    const rows = [["run", "split", "group", "part", "step", this.name]];
    for (const { run, curve } of this.selection()) {
      curve.points[0].forEach((step, i) => rows.push(
        [run.name, SPLITS[curve.split], curve.group, curve.part, step, curve.points[1][i]]));
    }
    return csv(rows);
  }
}

/** The section of learning curves. */
function curvesSection(runs) {
  const view = new View("step");
  view.axis = "step";
  const panels = [];
  const grid = el("div", { class: "grid-of-charts" });
  const axis = (index) => {
    const longest = Math.max(...runs.map((run) => run.seconds ?? 0));
    const [unit, name] = longest > 7200 ? [3600, "h"] : longest > 180 ? [60, "min"] : [1, "s"];
    Object.assign(view, index ? { axis: "time", label: `time (${name})`, format: (s) => formatNumber(s / unit) }
      : { axis: "step", label: "step", format: formatNumber }, { range: null });
    for (const panel of panels) panel.update();
  };
  const long = runs.flatMap((run) => run.curves).filter((curve) => curve.means);
  const shown = el("output");
  const slider = el("input", { type: "range", min: 0, max: 99, value: long.length ? 90 : 0, oninput: () => smooth() });
  const smooth = () => {
    const level = Number(slider.value) / 100;
    shown.textContent = level ? level.toFixed(2) : "off";
    view.change({ smoothing: level });
  };
  smooth();
  const tools = el("div", { class: "toolbar" },
    chooser("x-axis", ["steps", "time"], axis),
    el("label", { class: "choice" }, "Smooth training curves ", slider, " ", shown),
    el("button", { type: "button", class: "small", onclick: () => view.change({ range: null }) }, "Reset zoom"));
  const thinned = long.length
    ? el("p", { class: "hint", id: "thinned" }, `The longest curve has ${formatNumber(Math.max(...long.map((curve) => curve.logged)))} logged points. Long curves are `
      + "divided into segments and show the lowest and the highest point of each, so no peak is lost. Smoothing uses the "
      + "mean of each segment.")
    : null;
  const section = el("section", { id: "curves" }, el("h2", {}, "Learning curves"), tools,
    el("p", { class: "hint screen-only" }, "Point at a curve to see its values. Drag to zoom all charts; double-click to reset. "
      + "Keyboard: arrows, + and \u2212, Escape."), thinned, grid);
  section.start = () => {
    for (const name of chartNames(runs)) panels.push(new CurvePanel(grid, runs, name, view));
    if (!panels.length) grid.append(el("p", { class: "note" }, "Nothing has been logged yet."));
  };
  return section;
}
