// Charts of the last hours: uPlot over /network/history, in the page's own colours.

import uPlot from "./uplot/uPlot.esm.js";

const base = document.body.dataset.base;
const CHARTS = {
  requests: { unit: "/s", lines: [["served", "served_per_s", "--t1"], ["failed", "failed_per_s", "--t5"]] },
  first_output: { unit: " ms", lines: [["median", "first_output_p50_ms", "--t1"], ["95 %", "first_output_p95_ms", "--t3"]] },
  decode: { unit: " tok/s", lines: [["median", "decode_p50_tok_s", "--t2"]] },
  fleet: {
    unit: "",
    lines: [["online", "online", "--t2"], ["busy", "busy", "--t1"], ["degraded", "degraded", "--t3"], ["draining", "draining", "--t4"], ["offline", "offline", "--t5"]],
  },
};
const plots = new Map();
let columns = null;
let minutes = 60;

const clock = (time_s) => new Date(1000 * time_s).toISOString().slice(11, 16); // UTC, as all times of these pages
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(name, width) {
  const { unit, lines } = CHARTS[name];
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  return {
    width,
    height: 190,
    legend: { live: false },
    cursor: { y: false },
    tzDate: (time_s) => uPlot.tzDate(new Date(1000 * time_s), "Etc/UTC"),
    scales: { x: { range: (_, __, last) => [last - 60 * minutes, last] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: [{ ...axis, values: (_, times) => times.map(clock) }, { ...axis, size: 56 }],
    series: [
      {},
      ...lines.map(([label, , tint]) => ({
        label,
        stroke: colour(tint),
        width: 2,
        points: { show: columns.time_s.length < 40, size: 4 },
        value: (_, value) => (value === null ? "" : `${value}${unit}`),
      })),
    ],
  };
}

function latest(name) {
  const { unit, lines } = CHARTS[name];
  const at = columns.time_s.length - 1;
  const text = lines
    .map(([label, column]) => {
      const value = columns[column][at];
      return `${label} ${value === null || value === undefined ? "UNKNOWN" : `${Number(value.toFixed(2))}${unit}`}`;
    })
    .join(", ");
  document.querySelector(`[data-latest="${name}"]`).textContent = `Latest: ${text}`;
}

function draw(anew) {
  for (const place of document.querySelectorAll("[data-chart]")) {
    const name = place.dataset.chart;
    const data = [columns.time_s, ...CHARTS[name].lines.map(([, column]) => columns[column])];
    let plot = plots.get(name);
    if (anew || !plot) {
      plot?.destroy();
      plot = new uPlot(options(name, place.clientWidth), data, place);
      plot.root.setAttribute("aria-hidden", "true"); // the line below it says the same in words
      plots.set(name, plot);
    } else plot.setData(data);
    latest(name);
  }
}

async function load(anew = false) {
  if (document.hidden) return;
  minutes = document.querySelector('input[name="span"]:checked').value;
  try {
    const reply = await fetch(`${base}/network/history?minutes=${minutes}`);
    if (!reply.ok) return;
    columns = await reply.json();
  } catch {
    return; // the line at the top says that the link is down
  }
  if (columns.time_s.length) draw(anew);
}

new ResizeObserver(() => {
  for (const [name, plot] of plots) {
    const width = document.querySelector(`[data-chart="${name}"]`).clientWidth;
    if (width && width !== plot.width) plot.setSize({ width, height: 190 });
  }
}).observe(document.getElementById("charts"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => columns && draw(true));
document.querySelectorAll('input[name="span"]').forEach((choice) => choice.addEventListener("change", () => load(true)));
setInterval(load, 15000);
load();
