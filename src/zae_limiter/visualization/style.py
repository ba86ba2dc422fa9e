"""Define the style of the usage page, and the script that shows the values of its charts."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #14181f; --dim: #5b6472; --line: #e3e6eb; --grid: #edeff3;
  --hover: rgb(20 24 31 / 7%); --shade: rgb(20 24 31 / 18%); --focus: #2563eb;
  --c0: #2f6feb; --c1: #f29f05; --c2: #12a594; --c3: #8e4ec6; --c4: #e5484d; --c5: #8b95a5; --limit: #c62a2f;
  --soft: #b45309;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1116; --card: #171b22; --ink: #e8ebf0; --dim: #98a2b3; --line: #2a303a; --grid: #222832;
    --hover: rgb(232 235 240 / 10%); --shade: rgb(0 0 0 / 75%); --focus: #7aa8ff;
    --c0: #6098ff; --c1: #f5b642; --c2: #2cc5b2; --c3: #b27ae6; --c4: #f2777b; --c5: #7b8494; --limit: #ff8f8f;
    --soft: #ffb224;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums;
}
main { max-width: 1120px; margin: 0 auto; padding: 32px 24px 48px; }
h1 { font-size: 26px; line-height: 1.25; letter-spacing: -0.01em; margin: 0 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 17px; line-height: 1.3; margin: 0; overflow-wrap: anywhere; }
.filters { display: flex; flex-wrap: wrap; gap: 8px; list-style: none; margin: 0 0 24px; padding: 0; }
.filters li {
  background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 2px 12px; font-size: 13px;
  overflow-wrap: anywhere;
}
.created { margin: -8px 0 14px; font-size: 13px; }
.filters span, .sub, dt, footer, .readout, .created, .note, td small, th small, .meters small { color: var(--dim); }
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 20px 24px; margin: 0 0 20px;
}
.top { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 8px 32px; }
.sub { margin: 2px 0 0; font-size: 13px; }
dl { display: flex; flex-wrap: wrap; gap: 4px 28px; margin: 0; }
dl div { display: flex; flex-direction: column; }
dt { font-size: 12px; }
dd { margin: 0; font-size: 20px; font-weight: 600; line-height: 1.3; }
dd small { display: block; font-size: 12px; font-weight: 400; color: var(--dim); }
figure { margin: 12px 0 0; border-radius: 8px; outline-offset: 6px; }
figure:focus-visible, .scroll:focus-visible { outline: 2px solid var(--focus); }
.readout { display: block; min-height: 1.5em; font-size: 13px; overflow-wrap: anywhere; }
.readout.on { color: var(--ink); }
.plot { display: grid; grid-template-columns: max-content 1fr; column-gap: 8px; margin-top: 14px; }
.amounts { position: relative; font-size: 12px; color: var(--dim); text-align: right; }
.amounts span { position: absolute; right: 0; transform: translateY(-50%); white-space: nowrap; }
.amounts i { visibility: hidden; font-style: normal; white-space: nowrap; }
.plot svg { display: block; width: 100%; height: 220px; overflow: visible; touch-action: pan-y; }
.area { position: relative; }
path.limit { fill: none; stroke: var(--limit); stroke-width: 1.5; stroke-dasharray: 6 4; pointer-events: none; }
span.limit {
  position: absolute; right: 0; transform: translateY(-100%); font-size: 12px; font-weight: 600; color: var(--limit);
  background: var(--card); border-radius: 4px; padding: 0 4px; line-height: 1.3; pointer-events: none;
}
path.soft { stroke: var(--soft); stroke-dasharray: 1.5 4; stroke-width: 2; } span.soft { color: var(--soft); }
.beyond { fill: var(--soft); }
.note { font-size: 13px; margin: 10px 0 0; }
.meters { display: grid; gap: 12px; }
.meters > div {
  display: grid; grid-template-columns: 9.5em 1fr minmax(9em, max-content); gap: 4px 16px; align-items: center;
}
.meters > div > span { color: var(--dim); font-size: 13px; }
.meters strong { font-weight: 600; overflow-wrap: anywhere; } .meters small { display: block; font-weight: 400; }
.track { position: relative; display: flex; height: 22px; border-radius: 6px; background: var(--grid); }
.track i { background: var(--key); min-width: 2px; } .track i:first-child { border-radius: 6px 0 0 6px; }
.track i:last-of-type { border-top-right-radius: 6px; border-bottom-right-radius: 6px; }
.track b { position: absolute; top: -4px; bottom: -4px; border-left: 2px dashed var(--limit); margin-left: -1px; }
.track b.soft { border-left: 2px dotted var(--soft); }
.track u { position: absolute; top: 0; bottom: 0; background: var(--soft); border-radius: 0 6px 6px 0; }
.times { grid-column: 2; position: relative; height: 24px; font-size: 12px; color: var(--dim); }
.times span { position: absolute; top: 6px; transform: translateX(-50%); white-space: nowrap; }
.times .edge-left { transform: none; }
.times .edge-right { transform: translateX(-100%); }
.grid { stroke: var(--grid); } .zero { stroke: var(--dim); }
.hit { fill: transparent; } .col:hover .hit, .col.on .hit { fill: var(--hover); }
.c0 { fill: var(--c0); --key: var(--c0); } .c1 { fill: var(--c1); --key: var(--c1); }
.c2 { fill: var(--c2); --key: var(--c2); } .c3 { fill: var(--c3); --key: var(--c3); }
.c4 { fill: var(--c4); --key: var(--c4); } .c5 { fill: var(--c5); --key: var(--c5); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; list-style: none; margin: 12px 0 0; padding: 0; }
.legend { font-size: 13px; }
.legend li { overflow-wrap: anywhere; }
.legend li::before {
  content: ""; display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 7px;
  background: var(--key); forced-color-adjust: none;
}
.legend span { color: var(--dim); }
/* An edge is shaded while columns are hidden behind it: the first two layers move with the table, the others stay. */
.scroll {
  overflow: auto; max-height: 560px; margin: 14px -24px -20px; border-top: 1px solid var(--line);
  border-radius: 0 0 12px 12px;
  background:
    linear-gradient(to right, var(--card) 50%, transparent) left / 36px 100% no-repeat local,
    linear-gradient(to left, var(--card) 50%, transparent) right / 36px 100% no-repeat local,
    linear-gradient(to right, var(--shade), transparent) left / 14px 100% no-repeat,
    linear-gradient(to left, var(--shade), transparent) right / 14px 100% no-repeat;
}
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 14px; }
th, td { padding: 7px 12px; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { position: sticky; top: 0; background: var(--card); font-weight: 600; font-size: 13px; color: var(--dim); }
th:first-child, td:first-child { padding-left: 24px; } th:last-child, td:last-child { padding-right: 24px; }
.number { text-align: right; }
td span { display: inline-block; width: max-content; max-width: 26ch; white-space: normal; overflow-wrap: anywhere; }
tbody tr:last-child td { border-bottom: 0; } tbody tr:hover td { background: var(--hover); }
section.verdict { border-left: 4px solid var(--c2); } section.broken { border-left-color: var(--limit); }
td.held { color: var(--c2); } td.broken { color: var(--limit); font-weight: 600; }
.nothing { text-align: center; padding: 56px 24px; color: var(--dim); }
footer { font-size: 13px; margin-top: 28px; }
@media (max-width: 600px) {
  main { padding: 20px 14px 32px; }
  h1 { font-size: 22px; }
  dl { gap: 4px 14px; }
  dt, dd small { font-size: 11px; }
  dd { font-size: 18px; }
  .card { padding: 16px; border-radius: 10px; }
  .plot svg { height: 180px; }
  .times .second { display: none; }
  .meters > div { grid-template-columns: max-content 1fr; }
  .meters strong { text-align: right; }
  .track { grid-column: 1 / -1; grid-row: 2; }
  table { font-size: 13px; }
  th, td { padding: 7px 6px; }
  th small { display: none; }
  .scroll { margin: 12px -16px -16px; }
  th:first-child, td:first-child { padding-left: 16px; } th:last-child, td:last-child { padding-right: 16px; }
}
@media print {
  body { background: none; } .card { break-inside: avoid; } .scroll { max-height: none; overflow: visible; }
  .card:has(table) { break-inside: auto; }
}
""".strip()

SCRIPT = """
for (const figure of document.querySelectorAll("figure")) {
  const columns = [...figure.querySelectorAll(".col")];
  const readout = figure.querySelector(".readout");
  const svg = figure.querySelector("svg");
  if (!svg) continue;
  const resting = readout.textContent;
  let at = -1;
  const show = (next) => {
    if (at >= 0) columns[at].classList.remove("on");
    at = next;
    if (at >= 0) columns[at].classList.add("on");
    readout.classList.toggle("on", at >= 0);
    readout.textContent = at < 0 ? resting : columns[at].querySelector("title").textContent;
  };
  const within = (place) => Math.max(0, Math.min(columns.length - 1, place));
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    show(within(Math.floor((event.clientX - box.left) / box.width * columns.length)));
  };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", () => show(-1));
  figure.addEventListener("blur", () => show(-1));
  figure.addEventListener("keydown", (event) => {
    const last = columns.length - 1;
    const steps = {
      ArrowLeft: at < 0 ? last : within(at - 1), ArrowRight: within(at + 1), Home: 0, End: last, Escape: -1,
    };
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(steps[event.key]);
  });
}
""".strip()
