"use strict";
// Runs as the server tells them, by name, and what the page shows of them. Text from runs becomes text
// nodes, or HTML that the server has escaped.
const el = (id) => document.getElementById(id);
const runs = new Map();
const rows = new Map(); // name -> its element in the list
const chosen = new Set(); // names to compare
const figures = new Map(); // id of an element -> its figure
const dark = matchMedia("(prefers-color-scheme: dark)");
const MOST_COMPARED = 60, LOG_LENGTH = 400000;
let version = 0, skew = 0, shown = [], digests = new Map(), log = { next: -1 };

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(60000) });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}
function trouble(words) {
  el("trouble").hidden = !words;
  el("trouble").textContent = words;
}
function text(tag, kind, words) {
  const made = document.createElement(tag);
  made.className = kind;
  made.textContent = words;
  return made;
}
const number = (value) => value === null ? "-" : Math.abs(value) >= 1e5
  ? Number(value.toPrecision(4)).toExponential() : String(Number(value.toPrecision(4)));
function span(seconds) {
  if (seconds < 120) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} d`;
}

// The list of runs.
function curve(points) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 100 20");
  svg.setAttribute("preserveAspectRatio", "none");
  if (points.length > 1) {
    const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
    const [left, low] = [Math.min(...xs), Math.min(...ys)];
    const wide = Math.max(...xs) - left || 1, high = Math.max(...ys) - low || 1;
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    line.setAttribute("points", points.map(([x, y]) =>
      `${(98 * (x - left) / wide + 1).toFixed(1)},${(19 - 18 * (y - low) / high).toFixed(1)}`).join(" "));
    svg.append(line);
  }
  return svg;
}
function row(run) {
  const made = text("div", "run", "");
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = chosen.has(run.run);
  box.setAttribute("aria-label", `compare ${run.run}`);
  box.addEventListener("change", () => {
    box.checked ? chosen.add(run.run) : chosen.delete(run.run);
    counts();
  });
  const link = text("a", "name", run.run);
  link.href = address([run.run]);
  link.title = run.run;
  const state = text("span", `state ${run.state}`, run.state);
  state.title = run.cause;
  const drawn = text("span", "curve", "");
  drawn.append(curve(run.curve));
  made.append(box, link, state, text("span", "what soft", `${run.agent} · ${run.env} · ${run.workflow}`),
    text("span", "steps number", run.steps.toLocaleString("en")),
    text("span", "reward number", number(run.reward)),
    text("span", "evaluation number", number(run.evaluation)), text("span", "age number soft", ""), drawn);
  return made;
}
function ages() {
  const now = Date.now() / 1000 - skew;
  for (const [name, made] of rows)
    made.querySelector(".age").textContent = span(now - runs.get(name).touched);
}
const address = (names) => `#${names.map((name) => `run=${encodeURIComponent(name)}`).join("&")}`;
function matching() {
  const words = el("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  return [...runs.values()].filter((run) => {
    const all = `${run.run} ${run.state} ${run.agent} ${run.env} ${run.workflow}`.toLowerCase();
    return words.every((word) => all.includes(word));
  });
}
function arrange() {
  const by = el("sort").value;
  const found = matching().sort((a, b) => by === "run" ? a.run.localeCompare(b.run, "en", { numeric: true })
    : by === "touched" ? (b.state === "running") - (a.state === "running") || b.touched - a.touched
      : (b[by] ?? -Infinity) - (a[by] ?? -Infinity));
  const place = el("runs");
  const wanted = found.map((run) => rows.get(run.run));
  const same = place.children.length === wanted.length + 1
    && wanted.every((made, i) => place.children[i + 1] === made);
  if (!same) place.replaceChildren(place.firstElementChild, ...wanted);
  counts(found);
}
function counts(found = matching()) {
  const states = {};
  for (const run of found) states[run.state] = (states[run.state] ?? 0) + 1;
  const told = Object.entries(states).map(([state, n]) => `${n} ${state}`).join(", ");
  el("counts").textContent = runs.size ? `${found.length} of ${runs.size} runs: ${told || "none"}`
    : "no runs yet; they appear here when they start";
  const few = chosen.size || Math.min(found.length, MOST_COMPARED);
  el("compare").textContent = chosen.size ? `compare ${few} chosen` : `compare these ${few}`;
  el("compare").disabled = few < 2 || few > MOST_COMPARED;
}
async function refreshList() {
  const told = await ask(`/api/runs?since=${version}`);
  skew = Date.now() / 1000 - told.now;
  if (told.names) {
    const all = new Set(told.names);
    for (const name of [...runs.keys()].filter((name) => !all.has(name))) {
      runs.delete(name);
      rows.delete(name);
      chosen.delete(name);
    }
  }
  for (const run of told.runs) {
    const made = row(run);
    rows.get(run.run)?.replaceWith(made);
    rows.set(run.run, made);
    runs.set(run.run, run);
  }
  el("lead").textContent = shown.length ? "" : told.folder;
  if (told.version !== version || version === 0) arrange();
  version = told.version;
  ages();
}

// The page of one run, or of several.
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    target.inView = isIntersecting;
    if (isIntersecting && target.stale) paint(target);
  }
}, { rootMargin: "300px" });
function colored(value) {
  if (typeof value === "string") return DARK[value] ?? value;
  const numbers = Array.isArray(value) && typeof value[0] === "number" && typeof value.at(-1) === "number";
  if (Array.isArray(value)) return numbers ? value : value.map(colored);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, colored(inner)]));
  return value;
}
function paint(place) {
  const figure = figures.get(place.id);
  if (!figure) return;
  place.stale = !place.inView || place.offsetParent === null; // a closed tab has no width
  if (place.stale) return;
  const { data, layout } = dark.matches ? colored(figure) : figure;
  Plotly.react(place, data, { ...layout, uirevision: "kept" },
    { responsive: true, displayModeBar: false, plotlyServerURL: "" });
}
function forget(root) {
  for (const place of root.querySelectorAll(".figure")) {
    seen.unobserve(place);
    figures.delete(place.id);
    Plotly.purge(place);
  }
}
function tabs(root, open) {
  root.querySelectorAll(".tabs").forEach((group) => {
    const buttons = [...group.querySelectorAll(":scope > .labels > button")];
    const panels = [...group.querySelectorAll(":scope > [role=tabpanel]")];
    const choose = (index) => {
      buttons.forEach((button, i) => button.setAttribute("aria-selected", i === index));
      panels.forEach((panel, i) => panel.classList.toggle("shown", i === index));
      panels[index].querySelectorAll(".figure").forEach((place) => { place.inView = true; paint(place); });
    };
    buttons.forEach((button, i) => button.addEventListener("click", () => choose(i)));
    const index = buttons.findIndex((button) => button.textContent === open);
    if (index > 0) choose(index);
  });
}
function place(section) {
  const html = new DOMParser().parseFromString(section.html, "text/html").body.firstElementChild;
  const old = el(section.id);
  if (old?.source !== section.html) {
    html.source = section.html;
    html.classList.toggle("wide", /^(Now|Overview|Learning|Result|Ranks|Configuration|Runs)/.test(section.title));
    html.classList.toggle("now", section.title === "Now");
    html.querySelectorAll(".figure").forEach((figure) => seen.observe(figure));
    const open = old?.querySelector('[aria-selected="true"]')?.textContent;
    if (old) {
      forget(old);
      old.replaceWith(html);
    } else el("sections").append(html);
    Object.entries(section.figures).forEach(([id, figure]) => figures.set(id, figure));
    tabs(html, open);
  }
  Object.entries(section.figures).forEach(([id, figure]) => {
    figures.set(id, figure);
    paint(el(id));
  });
}
async function refreshPage() {
  const asked = shown;
  const query = asked.map((name) => `run=${encodeURIComponent(name)}`).join("&");
  const have = [...digests.values()].join(",");
  const told = await ask(`/api/view?${query}&x=${el("axis").value}&have=${have}`);
  if (asked !== shown) return; // another page was opened meanwhile
  const ids = new Set(told.sections.map((section) => section.id));
  for (const old of [...el("sections").children].filter((each) => !ids.has(each.id))) {
    forget(old);
    old.remove();
    digests.delete(old.id);
  }
  for (const section of told.sections.filter((each) => each.html !== undefined)) {
    place(section);
    digests.set(section.id, section.digest);
  }
  const order = told.sections.map((section) => el(section.id));
  if (order.some((each, i) => el("sections").children[i] !== each)) el("sections").append(...order);
  links(order);
  const files = told.logs.join("\n");
  el("logs").hidden = !files;
  if (el("file").told !== files) {
    const open = el("file").value;
    el("file").told = files;
    el("file").replaceChildren(...told.logs.map((name) => new Option(name, name)));
    el("file").value = told.logs.includes(open) ? open
      : told.logs.find((name) => name.startsWith("rank_")) ?? told.logs[0] ?? "";
    log = { next: -1 };
  }
  const run = asked.length === 1 ? runs.get(asked[0]) : undefined;
  el("stop").hidden = !(CONTROL && run?.state === "running");
}
function links(order) {
  const titles = [...order, ...(el("logs").hidden ? [] : [el("logs")])];
  const words = titles.map((each) => each.querySelector("h2").textContent);
  if (el("links").told === words.join()) return;
  el("links").told = words.join();
  el("links").replaceChildren(...titles.map((each, i) => {
    const link = text("a", "", words[i]);
    link.href = location.hash;
    link.addEventListener("click", (event) => {
      event.preventDefault();
      each.scrollIntoView({ behavior: "smooth" });
    });
    return link;
  }));
}
async function refreshLog() {
  const file = el("file").value, asked = log;
  if (shown.length !== 1 || !file || el("logs").hidden) return;
  const told = await ask(`/api/log?run=${encodeURIComponent(shown[0])}`
    + `&file=${encodeURIComponent(file)}&from=${log.next}`);
  if (asked !== log) return;
  log.next = told.next;
  const pre = el("log"), atEnd = pre.scrollTop + pre.clientHeight > pre.scrollHeight - 30;
  if (!told.text && !told.fresh) return;
  const all = (told.fresh ? "" : pre.textContent) + told.text;
  pre.textContent = all.slice(-LOG_LENGTH) || "(empty)";
  if (atEnd || told.fresh) pre.scrollTop = pre.scrollHeight;
}
function route() {
  const names = new URLSearchParams(location.hash.slice(1)).getAll("run");
  forget(el("sections"));
  el("sections").replaceChildren();
  digests = new Map();
  shown = names;
  el("links").told = undefined;
  el("file").told = undefined;
  el("said").textContent = "";
  log = { next: -1 };
  el("list").hidden = names.length > 0;
  el("page").hidden = !names.length;
  el("title").textContent = names.length === 1 ? names[0] : names.length ? `${names.length} runs` : "runs";
  document.title = `EXARL: ${el("title").textContent}`;
  scrollTo(0, 0);
  again();
}

// One question at a time, about once per second while the page is visible.
let timer = 0, busy = false, turns = 0;
async function refresh() {
  if (busy || document.hidden) return;
  busy = true;
  try {
    if (!shown.length || turns % 5 === 0) await refreshList();
    if (shown.length) {
      await refreshPage();
      await refreshLog();
    }
    trouble("");
  } catch (error) {
    trouble(error instanceof TypeError ? "no answer from exarl dashboard: was it ended? Trying again ..."
      : error.name === "TimeoutError" ? "exarl dashboard takes long to answer; trying again ..." : error.message);
  }
  turns += 1;
  busy = false;
}
function again() {
  clearInterval(timer);
  turns = 0;
  timer = setInterval(refresh, 1000);
  refresh();
}
addEventListener("hashchange", route);
document.addEventListener("visibilitychange", refresh);
dark.addEventListener("change", () => document.querySelectorAll(".figure").forEach(paint));
el("filter").addEventListener("input", arrange);
el("sort").addEventListener("change", arrange);
el("axis").addEventListener("change", () => { digests = new Map(); refresh(); });
el("file").addEventListener("change", () => { log = { next: -1 }; refreshLog(); });
el("compare").addEventListener("click", () => {
  const names = chosen.size ? [...chosen] : matching().map((run) => run.run).slice(0, MOST_COMPARED);
  location.hash = address(names);
});
el("stop").addEventListener("click", async () => {
  if (!confirm(`Stop ${shown[0]}? It writes a checkpoint first, and can be resumed.`)) return;
  const body = JSON.stringify({ run: shown[0] });
  const answer = await fetch("/api/stop", { method: "POST", body });
  el("said").textContent = answer.ok ? (await answer.json()).said : (await answer.text()).trim();
});
const head = text("div", "run head", "");
head.append(...["", "run", "state", "agent · environment · workflow", "steps", "reward", "evaluation", "age", ""]
  .map((word, i) => text("span", i > 3 ? "number" : "", word)));
el("runs").append(head);
route();
