// Summary, comparison, configuration, evaluations, environment.

/** A table with a head, from rows of cells; a cell is text or {text, mark, title}. */
function table(head, rows, name) {
  const cell = (tag, value) => {
    const { text, mark, note } = value !== null && typeof value === "object" ? value : { text: value };
    return el(tag, { class: mark, title: note }, told(text));
  };
  const made = el("table", {}, el("caption", { class: "unseen" }, name),
    el("thead", {}, el("tr", {}, head.map((each) => el("th", { scope: "col" }, told(each))))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((each, i) => {
      const made = cell(i ? "td" : "th", each);
      if (!i) made.setAttribute("scope", "row");
      return made;
    })))));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, made);
}

function statusOf(run) {
  const steps = run.config["train.steps"];
  if (!run.status) return `at update ${told(run.step)} of ${told(steps)}`;
  const { status, step, why } = run.status;
  return `${status} at update ${told(step)} of ${told(steps)}: ${why}`;
}

function bestOf(run) {
  const best = run.metric?.best;
  return best ? best.value : null;
}

/** The metric on the test set: of the evaluation made last, with the task as it was trained. */
function tested(run) {
  const plainly = run.evaluations.filter((each) => each.split === "test" && !Object.keys(each.overrides ?? {}).length);
  return plainly.at(-1)?.metrics?.[run.metric?.name] ?? null;
}

function rateOf(run) {
  return run.update_rate ? run.update_rate.reduce((a, b) => a + b, 0) / run.update_rate.length : null;
}

function rateWords(run) {
  if (!run.update_rate) return "no gates";
  const each = run.update_rate.length > 1 ? ` (${run.update_rate.map(percent).join(", ")})` : "";
  return percent(rateOf(run)) + each;
}

function paperWords(run) {
  const paper = run.metric?.paper;
  if (!paper) return "\u2013";
  const other = paper.other.length ? `; training differs in ${paper.other.join(", ")}` : "";
  return `${told(paper.value)} (${paper.called}, ${paper.where}; recipe ${paper.recipe}${other})`;
}

function paperTask(run) {
  const numbers = Object.entries(run.metric?.paper_of_task ?? {});
  if (!numbers.length) return null;
  return `The paper's ${run.metric.name} on ${run.task}, at its own sizes: ${
    numbers.map(([who, value]) => `${who} ${told(value)}`).join(", ")}.`;
}

function hardware(run) {
  const about = run.environment;
  const many = about.processes > 1 ? `, ${about.processes} processes` : "";
  return about.device ? `${about.device}${many}, torch ${about.torch}` : "\u2013";
}

/** What is compared: name, words, the bare value, and which is better. */
function facts(run) {
  const metric = run.metric;
  const better = metric ? (metric.higher_is_better ? 1 : -1) : 0;
  const name = metric?.name ?? "metric";
  const best = metric?.best ? `${told(metric.best.value)} (update ${told(metric.best.step)})` : "\u2013";
  return [
    ["task", run.task, run.task],
    ["model", run.model, run.model],
    [`best validation ${name}`, best, bestOf(run), better],
    [`last validation ${name}`, told(metric?.last?.value), metric?.last?.value ?? null, better],
    [`test ${name}`, told(tested(run)), tested(run), better],
    ["chance", told(metric?.chance), metric?.chance ?? null],
    ["paper", paperWords(run), metric?.paper?.value ?? null],
    ["parameters", told(run.parameters), run.parameters ?? null, -1],
    ["update rate", rateWords(run), rateOf(run), -1],
    ["status", statusOf(run), run.status?.status ?? run.step],
    ["time", duration(run.seconds), run.seconds, -1],
    ["hardware", hardware(run), run.environment.device ?? null],
  ];
}

function notes(runs) {
  const who = (run) => (runs.length > 1 ? `${run.name}: ` : "");
  const found = runs.flatMap((run) => run.notes.map((note) => `${who(run)}${note}`));
  const papers = new Set(runs.map(paperTask).filter(Boolean));
  return [...found.map((text) => el("p", { class: "note" }, text)),
    ...[...papers].map((text) => el("p", { class: "hint" }, text))];
}

function summarySection(runs) {
  const section = el("section", { id: "summary" }, el("h2", {}, runs.length > 1 ? "Side by side" : "Summary"));
  const all = runs.map(facts);
  const copying = el("div", { class: "toolbar" }, copyButton("summary", () => csv([
    ["", ...runs.map((run) => run.name)],
    ...all[0].map(([name], i) => [name, ...all.map((own) => own[i][2])])])));
  section.append(runs.length > 1 ? comparison(runs, all) : cards(all[0], runs[0]), copying, ...notes(runs));
  return section;
}

function cards(own, run) {
  const shown = own.filter(([, , value], i) => i < 2 || value !== null);
  return el("dl", { class: "cards" }, shown.map(([name, words], i) =>
    el("div", { class: i === 2 && run.metric?.best ? "card main" : "card" }, el("dt", {}, name), el("dd", {}, words))));
}

/** Runs as columns; the best of numbers that can be compared is marked. */
function comparison(runs, all) {
  const oneTask = new Set(runs.map((run) => run.task)).size === 1;
  const rows = all[0].map(([name], i) => {
    const values = all.map((own) => own[i][2]);
    const known = values.filter((value) => typeof value === "number");
    const better = oneTask ? all[0][i][3] : 0;
    const top = better && known.length > 1 && new Set(known).size > 1
      ? Math.max(...known.map((value) => better * value)) : null;
    return [oneTask ? name : name.replace(/(validation|test) .*/, "$1 metric"), ...all.map((own, k) => {
      const best = typeof values[k] === "number" && top !== null && better * values[k] === top;
      return { text: own[i][1], mark: best ? "best" : null, note: best ? "best of these runs" : null };
    })];
  });
  const differing = configNames(runs).filter((name) => differs(runs, name));
  rows.push(...differing.map((name) => [name, ...runs.map((run) => ({ text: plain(run.config[name]), mark: "code" }))]));
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
        note: changed(run, name) ? "not the default" : null,
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
  el("p", { class: "hint" }, el("b", { class: "changed" }, "Bold"), " values are not the default",
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
    return [...(several ? [run.name] : []), each.split, `${each.checkpoint} (update ${raw ? each.step : told(each.step)})`, other,
      ...scalars.map((name) => each.metrics?.[name] ?? null), raw ? mean : percent(mean), each.time];
  };
  return el("section", { id: "evaluations" }, el("h2", {}, "Evaluations"), el("div", { class: "toolbar" },
    copyButton("evaluations", () => csv([head, ...all.map((each) => row(each, true))]))),
  table(head, all.map((each) => row(each, false)), "Evaluations"));
}

function environmentSection(runs) {
  const parts = runs.map((run) => {
    const rows = Object.entries(run.environment).map(([name, value]) => [name, { text: plain(value), mark: "code" }]);
    const sessions = run.sessions.map((each) => {
      const changes = Object.entries(each.changes ?? {}).map(([name, [was, now]]) => `${name}: ${plain(was)} \u2192 ${plain(now)}`);
      const where = each.step === undefined ? "" : ` at update ${told(each.step)}`;
      return el("li", {}, `${each.time}: went on${where} on ${each.device}${changes.length ? `; ${changes.join(", ")}` : ""}`);
    });
    return [runs.length > 1 ? el("h3", {}, run.name) : null, table(["", "value"], rows, `Environment of ${run.name}`),
      sessions.length ? el("ul", {}, sessions) : null];
  });
  return el("section", { id: "environment" }, el("h2", {}, "Made with"), ...parts.flat());
}
