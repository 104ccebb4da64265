// Helpers for all parts of the page: elements, number formats, copying, ticks.

/** An element with attributes ("on..." are listeners) and children; strings are text, never HTML. */
function el(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "rect", "circle", "text", "title"].includes(name);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(key, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A number with four or five significant digits. */
function formatNumber(value) {
  if (typeof value !== "number") return value === null || value === undefined ? "\u2013" : String(value);
  if (Number.isInteger(value)) return Math.abs(value) < 1e15 ? groupDigits(value) : value.toExponential(4);
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(3);
  return String(Number(value.toPrecision(size < 1 ? 4 : 5)));
}

function groupDigits(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

function percent(share) {
  return share === null || share === undefined ? "\u2013" : `${Number((100 * share).toPrecision(3))}\u202f%`;
}

/** A logged update rate. Soft gates are never closed: theirs says how far they open. */
function formatRate(mean, soft) {
  return soft && mean !== null ? `every time step, by ${mean.toFixed(2)} on average` : percent(mean);
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "\u2013";
  const whole = Math.round(seconds);
  if (seconds < 10) return `${Number(seconds.toPrecision(2))} s`;
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** A configuration's value as JSON, strings without quotes. */
function plain(value) {
  if (value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Rows of values as CSV, with all digits. */
function csv(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : plain(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function showMessage(text) {
  const place = document.getElementById("message");
  place.textContent = text;
  place.classList.add("shown");
  clearTimeout(showMessage.timer);
  showMessage.timer = setTimeout(() => place.classList.remove("shown"), 2500);
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // some browsers forbid it for pages from disk
    const area = el("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) return showMessage("The browser did not allow copying");
  }
  showMessage(`Copied: ${what}`);
}

function copyButton(what, text, label = "Copy CSV") {
  return el("button", {
    type: "button", class: "small", "aria-label": `${label}: ${what}`,
    onclick: () => copy(text(), what),
  }, label);
}

/** A drop-down list; null if there are fewer than two options. */
function chooser(label, options, onchange) {
  if (options.length < 2) return null;
  const list = el("select", { onchange: () => onchange(list.selectedIndex) },
    options.map((option) => el("option", {}, option)));
  return el("label", { class: "choice" }, `${label} `, list);
}

function tick(label, onchange, checked = false) {
  const box = el("input", { type: "checkbox", checked, onchange: () => onchange(box.checked) });
  return el("label", { class: "choice" }, box, ` ${label}`);
}

/** About `count` round numbers from low to high. */
function niceTicks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) {
    ticks.push(Number((i * step).toPrecision(12)));
  }
  return ticks;
}

/** Powers of ten from low to high, with 2 and 5 between them if there are few. */
function logTicks(low, high) {
  const ticks = [];
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const digits = last - first <= 2 ? [1, 2, 5] : [1];
  const stride = Math.ceil((last - first) / 8) || 1;
  for (let power = first; power <= last; power += stride) {
    for (const digit of digits) ticks.push(Number((digit * 10 ** power).toPrecision(3)));
  }
  return ticks.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}

/** Index of the first entry of a rising list that is x or more. */
function firstFrom(list, x) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Index of the entry of a rising list that is nearest to x. */
function nearest(list, x) {
  const after = Math.min(firstFrom(list, x), list.length - 1);
  const before = Math.max(0, after - 1);
  return Math.abs(list[before] - x) <= Math.abs(list[after] - x) ? before : after;
}
