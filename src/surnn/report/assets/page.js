// Assembles the sections.

const THEMES = ["system", "light", "dark"];

/** The page's colours: the system's, or the ones chosen on an earlier visit. */
function themes(button, redraw) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const storageKey = "surnn-theme";
  let theme = "system";
  try { theme = localStorage.getItem(storageKey) ?? theme; } catch { /* some browsers forbid it for pages from disk */ }
  const apply = () => {
    const dark = theme === "dark" || (theme === "system" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = `Colours: ${theme}`;
    redraw();
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try { localStorage.setItem(storageKey, theme); } catch { /* the same */ }
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

function save(text, name) {
  const link = el("a", { href: `data:application/json;charset=utf-8,${encodeURIComponent(text)}`, download: name });
  link.click();
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { runs } = data;
  const whole = () => JSON.stringify(data, null, 1);
  document.getElementById("title").textContent = runs.map((run) => run.name).join(" \u00b7 ");
  document.getElementById("subtitle").textContent = runs.length > 1 ? `${runs.length} runs`
    : `${runs[0].task}, ${runs[0].model}`;
  document.getElementById("footer").textContent = `Made by surnn ${data.surnn}, ${data.made}.`;
  document.getElementById("copy-json").addEventListener("click", () => copy(whole(), "everything, as JSON"));
  document.getElementById("save-json").addEventListener("click", () => save(whole(), "surnn-report.json"));
  const gates = new GateSection(runs);
  const sections = [summarySection(runs), curvesSection(runs), gates.section, configSection(runs),
    evaluationsSection(runs), environmentSection(runs)].filter(Boolean);
  document.getElementById("main").append(...sections);
  document.getElementById("contents").append(...sections.map((section) =>
    el("a", { href: `#${section.id}` }, section.querySelector("h2").textContent)));
  for (const section of sections) section.start?.();  // charts need their width
  const redraw = () => { for (const each of drawables) each.draw(); };
  const print = (printing) => { drawables.printing = printing; redraw(); };
  window.addEventListener("resize", redraw);
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  themes(document.getElementById("theme"), redraw);
}

start();
