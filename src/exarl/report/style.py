"""How a page looks, and the few lines that make its tabs and figures work."""

from __future__ import annotations

CSS = """\
:root { --ink: #1f2933; --soft: #616e7c; --line: #e4e7eb; --pale: #f5f7fa; --accent: #2563a8; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 72rem; color: var(--ink);
  background: #fff; font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial,
  sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .5rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--line); }
p { margin: .5rem 0; max-width: 48rem; }
p.lead { color: var(--soft); margin: 0; }
p.note { border-left: 4px solid #d9822b; background: #fdf6ec; padding: .5rem .75rem; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: .75rem 0 0; font-size: .9rem; }
a { color: var(--accent); }
pre { background: var(--pale); border: 1px solid var(--line); border-radius: 4px; padding: .75rem;
  overflow-x: auto; font-size: .85rem; }
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
.tabs > .labels button[aria-selected="true"] { color: #fff; background: var(--accent);
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
// Draws each figure when it is first visible: one in a closed tab has no width yet.
function draw(root) {
  for (const place of root.querySelectorAll(".figure:not(.drawn)")) {
    if (place.offsetParent === null) continue;
    const figure = JSON.parse(document.getElementById(place.id + "-data").textContent);
    place.classList.add("drawn");
    Plotly.newPlot(place, figure.data, figure.layout, {
      responsive: true,
      displaylogo: false,
      displayModeBar: innerWidth > 640 ? "hover" : false,  // it would hide the names on a phone
      plotlyServerURL: "",  // no button may send a figure to anybody
      modeBarButtonsToRemove: ["sendChartToCloud", "select2d", "lasso2d"],
    });
  }
}
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
addEventListener("beforeprint", () =>
  document.querySelectorAll(".drawn").forEach((place) => Plotly.Plots.resize(place)));
"""
