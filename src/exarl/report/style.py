"""The style of a page, and the script for its tabs and figures."""

from __future__ import annotations

DARK = {
    "#fff": "#14181d",  # paper
    "#1f2933": "#dfe5eb",  # ink
    "#e4e7eb": "#2c343d",  # grid
    "#c4ccd4": "#46515c",  # axes
    "#2563a8": "#6ba8e5",
    "#d9622b": "#f08a56",
    "#2f9e6e": "#4cc790",
    "#8b5cb8": "#b98ae4",
    "#b8860b": "#dcae3d",
    "#c2417c": "#e8719f",
    "#3a9fb5": "#5cc3d8",
    "#7a7f87": "#a3aab3",
    "#8a6508": "#b98f2c",
    "#d3d9e0": "#3c4650",
    "#1d6f80": "#3f9fb3",
    "#e8b37a": "#a97c4c",
    "#8d949c": "#737c86",
}
"""The colours of figures on a dark page, which stay as distinct as on a light one."""

CSS = """\
:root { color-scheme: light dark; --paper: #fff; --ink: #1f2933; --soft: #616e7c; --line: #e4e7eb;
  --pale: #f5f7fa; --accent: #2563a8; --on-accent: #fff; --warm: #fdf6ec; --warm-line: #d9822b; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #14181d; --ink: #dfe5eb; --soft: #9aa7b4; --line: #2c343d; --pale: #1d232a;
    --accent: #6ba8e5; --on-accent: #10151a; --warm: #2b2417; --warm-line: #d9922b; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 72rem; color: var(--ink);
  background: var(--paper); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, Helvetica,
  Arial, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .5rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--line); }
p { margin: .5rem 0; max-width: 48rem; }
p.lead { color: var(--soft); margin: 0; }
p.note { border-left: 4px solid var(--warm-line); background: var(--warm); padding: .5rem .75rem; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: .75rem 0 0; font-size: .9rem; }
a { color: var(--accent); }
.scroll { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td { white-space: nowrap; }
td.number, th.number { text-align: right; }
td.long { white-space: normal; min-width: 16rem; overflow-wrap: anywhere; }
.figure { width: 100%; margin: .25rem 0; }
.tabs > .labels { display: flex; flex-wrap: wrap; gap: .25rem; margin: .5rem 0 0; }
.tabs > .labels button { font: inherit; font-size: .85rem; color: var(--soft); cursor: pointer;
  background: var(--pale); border: 1px solid var(--line); border-radius: 4px; padding: .2rem .7rem; }
.tabs > .labels button[aria-selected="true"] { color: var(--on-accent); background: var(--accent);
  border-color: var(--accent); }
.tabs > [role="tabpanel"]:not(.shown) { display: none; }
footer { margin-top: 3rem; color: var(--soft); font-size: .8rem; }
@media (max-width: 40rem) { body { padding: 1rem .75rem 2rem; font-size: 15px; } }
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; }
  nav, .tabs > .labels, .modebar-container { display: none; }
  th, td { white-space: normal; }
  section, .figure, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
  .scroll { overflow: visible; }
}
"""

SCRIPT = """\
// Figures follow the browser's theme: their colours are replaced before they are drawn.
const dark = matchMedia("(prefers-color-scheme: dark)");
function paint(place, isDark) {
  let text = document.getElementById(place.id + "-data").textContent;
  if (isDark)
    text = text.replace(/"(#[0-9a-f]{3,6})"/g, (all, color) => `"${DARK[color] ?? color}"`);
  const figure = JSON.parse(text);
  Plotly.react(place, figure.data, figure.layout, {
    responsive: true,
    displaylogo: false,
    displayModeBar: innerWidth > 640 ? "hover" : false,  // on a phone it would hide the legend
    plotlyServerURL: "",  // no button may send a figure anywhere
    modeBarButtonsToRemove: ["sendChartToCloud", "select2d", "lasso2d"],
  });
}
// Draw each figure when it becomes visible: in a closed tab it has no width.
function draw(root) {
  for (const place of root.querySelectorAll(".figure:not(.drawn)")) {
    if (place.offsetParent === null) continue;
    place.classList.add("drawn");
    paint(place, dark.matches);
  }
}
function repaint(isDark) {
  document.querySelectorAll(".drawn").forEach((place) => paint(place, isDark));
}
dark.addEventListener("change", () => repaint(dark.matches));
for (const tabs of document.querySelectorAll(".tabs")) {
  const buttons = [...tabs.querySelectorAll(":scope > .labels > button")];
  const panels = [...tabs.querySelectorAll(":scope > [role=tabpanel]")];
  buttons.forEach((button, chosen) => button.addEventListener("click", () => {
    buttons.forEach((other, i) => other.setAttribute("aria-selected", i === chosen));
    panels.forEach((panel, i) => panel.classList.toggle("shown", i === chosen));
    draw(panels[chosen]);
    panels[chosen].querySelectorAll(".drawn").forEach((place) => Plotly.Plots.resize(place));
  }));
}
draw(document);
addEventListener("beforeprint", () => {
  repaint(false);  // paper is white
  document.querySelectorAll(".drawn").forEach((place) => Plotly.Plots.resize(place));
});
addEventListener("afterprint", () => repaint(dark.matches));
"""
