// Puts the sections together.

const THEMES = ["system", "light", "dark"];

/** The page's colours: the system's, or those that were chosen here before. */
function themes(button) {
  const apply = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Colours: ${theme}`;
    button.setAttribute("aria-label", `Colours: ${theme}`);
    window.dispatchEvent(new Event("resize"));
  };
  let now = "system";
  const remember = (theme) => {
    try { localStorage.setItem("surnn-theme", theme); } catch { /* not allowed for pages from disk */ }
  };
  try { now = localStorage.getItem("surnn-theme") ?? now; } catch { /* the same */ }
  apply(THEMES.includes(now) ? now : "system");
  button.addEventListener("click", () => {
    now = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
    remember(now);
    apply(now);
  });
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
  themes(document.getElementById("theme"));
  const gates = new GateSection(runs);
  const sections = [summarySection(runs), curvesSection(runs), gates.section, configSection(runs),
    evaluationsSection(runs), environmentSection(runs)].filter(Boolean);
  document.getElementById("main").append(...sections);
  document.getElementById("contents").append(...sections.map((section) =>
    el("a", { href: `#${section.id}` }, section.querySelector("h2").textContent)));
  for (const section of sections) section.start?.();  // charts need to know how wide they are
  const redraw = () => { for (const each of drawn) each.draw(); };
  const print = (printing) => { drawn.printing = printing; redraw(); };
  window.addEventListener("resize", redraw);
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

start();
