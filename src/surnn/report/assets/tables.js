// Summary, comparison, configuration, evaluations, environment.

/** A table with a head, from rows of cells; a cell is text or {text, note, mark, title}. */
function table(head, rows, name) {
  const cell = (value, first) => {
    const { text, note, mark, title } = value !== null && typeof value === "object" ? value : { text: value };
    return el(first ? "th" : "td", { class: mark, title, scope: first ? "row" : null },
      el("span", {}, formatNumber(text)), note ? el("small", {}, note) : null);
  };
  const element = el("table", {}, el("caption", { class: "unseen" }, name),
    el("thead", {}, el("tr", {}, head.map((each) => el("th", { scope: "col" }, formatNumber(each))))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((each, i) => cell(each, i === 0))))));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, element);
}

function statusOf(run) {
  const steps = run.config["train.steps"];
  const at = (step) => (step >= steps ? `${formatNumber(step)} steps` : `step ${formatNumber(step)} of ${formatNumber(steps)}`);
  if (!run.status) return [at(run.step), ""];
  const { status, step, why } = run.status;
  return [status, `${at(step)}; ${why}`];
}

/** The metric of the last evaluation on the test set with the task's options as in training. */
function testMetric(run) {
  const asTrained = run.evaluations.filter((each) => each.split === "test" && !Object.keys(each.overrides ?? {}).length);
  return asTrained.at(-1)?.metrics?.[run.metric?.name] ?? null;
}

function rateOf(run) {
  return run.update_rate ? run.update_rate.reduce((a, b) => a + b, 0) / run.update_rate.length : null;
}

/** Words for a fact, and a smaller note on it. */
function rateWords(run) {
  if (!run.update_rate) return ["no gates", ""];
  const layers = run.update_rate.map((mean, i) => (run.soft?.[i] ? `by ${mean.toFixed(2)}` : percent(mean)));
  return [formatRate(rateOf(run), isSoft(run)), layers.length > 1 ? `layers: ${layers.join(", ")}` : ""];
}

function isSoft(run) {
  return Boolean(run.soft?.some(Boolean));
}

function paperWords(run) {
  const paper = run.metric?.paper;
  if (!paper) return ["\u2013", ""];
  const other = paper.differences.length ? `; other training options: ${paper.differences.join(", ")}` : "";
  return [formatNumber(paper.value), `${paper.paper_name}, ${paper.paper_table}; recipe ${paper.recipe}${other}`];
}

function paperTask(run) {
  const numbers = Object.entries(run.metric?.paper_of_task ?? {});
  if (!numbers.length) return null;
  return `The paper's ${run.metric.name} on ${run.task}, at its own sizes: ${
    numbers.map(([who, value]) => `${who}: ${formatNumber(value)}`).join("; ")}.`;
}

function hardware(run) {
  const about = run.environment;
  if (!about.device) return ["\u2013", ""];
  return [about.device, `${about.processes > 1 ? `${about.processes} processes, ` : ""}torch ${about.torch}`];
}

function modelWords(run) {
  const widths = run.config["model.widths"];
  const size = widths ? widths.join(", ") : `${run.config["model.layers"]} x ${run.config["model.width"]}`;
  const gate = run.update_rate ? `, ${run.config["gate.kind"]} gates` : "";
  return [run.model, `${size} units${gate}`];
}

/** Rows of the summary: a label, text and a note, the plain value, and the sign of better values. */
function facts(run) {
  const { metric } = run;
  const better = metric ? (metric.higher_is_better ? 1 : -1) : 0;
  const name = metric?.name ?? "metric";
  const point = (at) => [formatNumber(at?.value), at ? `step ${formatNumber(at.step)}` : ""];
  const fact = (label, [words, note], value, which = 0) => ({ label, words, note, value, better: which });
  return [
    fact("task", [run.task, ""], run.task),
    fact("model", modelWords(run), run.model),
    fact(`best validation ${name}`, point(metric?.best), metric?.best?.value ?? null, better),
    fact(`last validation ${name}`, point(metric?.last), metric?.last?.value ?? null, better),
    fact(`test ${name}`, [formatNumber(testMetric(run)), ""], testMetric(run), better),
    fact("chance", [formatNumber(metric?.chance), ""], metric?.chance ?? null),
    fact("paper", paperWords(run), metric?.paper?.value ?? null),
    fact("parameters", [formatNumber(run.parameters), ""], run.parameters),
    fact("update rate", rateWords(run), rateOf(run)),
    fact("status", statusOf(run), run.status?.status ?? run.step),
    fact("time", [duration(run.seconds), ""], run.seconds),
    fact("hardware", hardware(run), run.environment.device ?? null),
  ];
}

function notes(runs) {
  const who = (run) => (runs.length > 1 ? `${run.name}: ` : "");
  const texts = runs.flatMap((run) => run.notes.map((note) => `${who(run)}${note}`));
  const papers = new Set(runs.map(paperTask).filter(Boolean));
  return [...texts.map((text) => el("p", { class: "note" }, text)),
    ...[...papers].map((text) => el("p", { class: "hint" }, text))];
}

function summarySection(runs) {
  const section = el("section", { id: "summary" }, el("h2", {}, runs.length > 1 ? "Side by side" : "Summary"));
  const all = runs.map(facts);
  const copying = el("div", { class: "toolbar" }, copyButton("summary", () => csv([
    ["", ...runs.map((run) => run.name)],
    ...all[0].map(({ label }, i) => [label, ...all.map((own) => own[i].value)])])));
  section.append(runs.length > 1 ? comparison(runs, all) : cards(all[0]), copying, ...notes(runs));
  return section;
}

function cards(own) {
  const shown = own.filter(({ value, label }) => value !== null || label === "update rate");
  return el("dl", { class: "cards" }, shown.map(({ label, words, note, better }) =>
    el("div", { class: "card" }, el("dt", {}, label), el("dd", {},
      better ? el("strong", {}, words) : words, note ? el("small", {}, note) : null))));
}

/** Runs as columns; the best of comparable numbers is marked. */
function comparison(runs, all) {
  const oneTask = new Set(runs.map((run) => run.task)).size === 1;
  const known = all[0].map((_, i) => i).filter((i) => all.some((own) => own[i].value !== null));
  const rows = known.map((i) => {
    const { label, better } = all[0][i];
    const ranks = all.map((own) => (typeof own[i].value === "number" ? better * own[i].value : null));
    const numbers = ranks.filter((rank) => rank !== null);
    const top = oneTask && better && new Set(numbers).size > 1 ? Math.max(...numbers) : null;
    return [oneTask ? label : label.replace(/(validation|test) .*/, "$1 metric"), ...all.map((own, k) => {
      const best = top !== null && ranks[k] === top;
      return { text: own[i].words, note: own[i].note, mark: best ? "best" : null, title: best ? "best of these runs" : null };
    })];
  });
  const differing = configNames(runs).filter((name) => differs(runs, name) && !["task.name", "model.kind"].includes(name));
  rows.push(...differing.map((name) => [{ text: name, mark: "code" },
    ...runs.map((run) => ({ text: plain(run.config[name]), mark: "code" }))]));
  return table(["", ...runs.map((run) => run.name)], rows, "Runs side by side");
}

const configNames = (runs) => unique(runs.flatMap((run) => Object.keys(run.config)));
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const differs = (runs, name) => runs.some((run) => !same(run.config[name], runs[0].config[name]));
const changed = (run, name) => run.defaults && name in run.config && name !== "task.name"
  && !same(run.config[name], run.defaults[name]);

function configSection(runs) {
  const several = runs.length > 1;
  const place = el("div");
  const rows = (all) => configNames(runs)
    .filter((name) => all || name === "task.name" || differs(runs, name) || runs.some((run) => changed(run, name)))
    .map((name) => [{ text: name, mark: differs(runs, name) ? "code differs" : "code" },
      ...runs.map((run) => ({
        text: plain(run.config[name]), mark: changed(run, name) ? "code changed" : "code",
        title: changed(run, name) ? "differs from the default" : null,
      })),
      { text: plain(runs.find((run) => run.defaults && name in run.defaults)?.defaults[name]), mark: "code soft" }]);
  const draw = (all) => place.replaceChildren(
    table(["option", ...runs.map((run) => (several ? run.name : "value")), "default"], rows(all), "Configuration"));
  draw(false);
  return el("section", { id: "config" }, el("h2", {}, "Configuration"), el("div", { class: "toolbar" },
    tick("all options", draw),
    copyButton("configuration", () => csv([["option", ...runs.map((run) => run.name), "default"],
      ...configNames(runs).map((name) => [name, ...runs.map((run) => run.config[name]),
        runs.find((run) => run.defaults)?.defaults[name]])])),
    ...runs.map((run) => copyButton(`configuration of ${run.name}`, () => JSON.stringify(run.config, null, 2),
      several ? `Copy JSON of ${run.name}` : "Copy JSON"))),
  el("p", { class: "hint" }, el("b", { class: "changed" }, "Bold"), " values differ from the default",
    several ? "; marked options (\u2260) differ between runs." : "."), place);
}

function evaluationsSection(runs) {
  const all = runs.flatMap((run) => run.evaluations.map((each) => ({ run, each })));
  if (!all.length) return null;
  const several = runs.length > 1;
  const scalars = unique(all.flatMap(({ each }) => Object.entries(each.metrics ?? {})
    .filter(([, value]) => typeof value === "number").map(([name]) => name)));
  const head = [...(several ? ["run"] : []), "split", "weights", "changed options", ...scalars, "update rate", "time"];
  const row = ({ run, each }, raw) => {
    const rates = each.metrics?.update_rate;
    const other = Object.entries(each.overrides ?? {}).map(([name, value]) => `${name} ${plain(value)}`).join(", ");
    const mean = rates ? rates.reduce((a, b) => a + b, 0) / rates.length : null;
    return [...(several ? [run.name] : []), each.split, `${each.checkpoint} (step ${raw ? each.step : formatNumber(each.step)})`, other,
      ...scalars.map((name) => each.metrics?.[name] ?? null), raw ? mean : formatRate(mean, isSoft(run)), each.time];
  };
  return el("section", { id: "evaluations" }, el("h2", {}, "Evaluations"), el("div", { class: "toolbar" },
    copyButton("evaluations", () => csv([head, ...all.map((each) => row(each, true))]))),
  table(head, all.map((each) => row(each, false)), "Evaluations"));
}

/** The sessions in which a run was resumed. */
function sessionsOf(run) {
  return run.sessions.map((each) => {
    const changes = Object.entries(each.changes ?? {}).map(([name, [was, now]]) => `${name}: ${plain(was)} \u2192 ${plain(now)}`);
    const where = each.step === undefined ? "" : ` at step ${formatNumber(each.step)}`;
    return el("li", {}, `${each.time}: ${run.name} resumed${where} on ${each.device}${changes.length ? `; ${changes.join(", ")}` : ""}`);
  });
}

function environmentSection(runs) {
  const known = unique(runs.flatMap((run) => Object.keys(run.environment)));
  const rows = known.map((name) => [name, ...runs.map((run) => ({ text: plain(run.environment[name]), mark: "code" }))]);
  const sessions = runs.flatMap(sessionsOf);
  return el("section", { id: "environment" }, el("h2", {}, "Environment"),
    table(["", ...runs.map((run) => (runs.length > 1 ? run.name : "value"))], rows, "Environment"),
    sessions.length ? el("ul", {}, sessions) : null);
}
