// Draws PANELS, as dashboard_pictures.py has found them, with MARKS on all graphs.
"use strict";

const ROW = 38;
const COLORS = ["#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#b877d9", "#5794f2", "#ca95e5"];
const UNITS = { percentunit: "%", bytes: "B", Bps: "B/s", s: "s", ops: "/s", recps: "rec/s" };

function short(value) {
  const size = Math.abs(value);
  for (const [limit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= limit) return `${+(value / limit).toPrecision(3)} ${letter}`;
  }
  return `${+value.toPrecision(3)} `;
}

function shown(value, unit) {
  if (value == null) return "";
  if (unit === "s") {
    for (const [limit, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (Math.abs(value) >= 2 * limit) return `${+(value / limit).toPrecision(3)} ${name}`;
    }
  }
  if (unit === "dateTimeAsIso") return new Date(value).toISOString().slice(11, 19);
  if (unit === "percentunit") return `${+(value * 100).toPrecision(3)} %`;
  return (short(value) + (UNITS[unit] ?? "")).trim();
}

function clock(seconds) {
  return new Date(seconds * 1000).toISOString().slice(11, 19);
}

function drawMarks(plot) {
  for (const { color, times } of MARKS) {
    plot.ctx.strokeStyle = color;
    plot.ctx.setLineDash([4, 4]);
    for (const time of times) {
      const x = plot.valToPos(time, "x", true);
      plot.ctx.beginPath();
      plot.ctx.moveTo(x, plot.bbox.top);
      plot.ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
      plot.ctx.stroke();
    }
    plot.ctx.setLineDash([]);
  }
}

/** From the lowest to the highest value; a line that is flat lies between 0 and something. */
function range(_, low, high) {
  if (low !== high) return uPlot.rangeNum(low, high, 0.1, true);
  return [Math.min(0, 1.1 * low), low > 0 ? 1.1 * low : 1];
}

function graph(section, panel) {
  const times = [...new Set(panel.series.flatMap((one) => one.points.map(([at]) => at)))].sort((a, b) => a - b);
  const rows = panel.series.map((one) => {
    const values = new Map(one.points);
    return times.map((at) => values.get(at) ?? null);
  });
  const axis = { stroke: "#8e8e99", grid: { stroke: "#2e3036" }, ticks: { stroke: "#2e3036" } };
  new uPlot(
    {
      width: section.clientWidth - 16,
      height: section.clientHeight - 24 - (panel.series.length > 4 ? 56 : 34),
      legend: { live: false },
      scales: { y: { range } },
      series: [{}, ...panel.series.map((one, index) => ({
        label: one.name || "value", stroke: COLORS[index % COLORS.length], width: 1.5,
      }))],
      axes: [{ ...axis, space: 80, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 74, values: (_, ticks) => ticks.map((v) => shown(v, panel.unit)) }],
      hooks: { draw: [drawMarks] },
    },
    [times, ...rows],
    section,
  );
}

function newest(panel) {
  const ends = panel.series.map((one) => one.points.at(-1));
  const end = Math.max(...ends.map(([at]) => at));
  return panel.series.filter((_, index) => ends[index][0] === end);
}

function value(section, panel) {
  const element = section.appendChild(document.createElement("div"));
  element.className = "values";
  for (const one of newest(panel)) {
    const cell = element.appendChild(document.createElement("div"));
    const text = shown(one.points.at(-1)[1], panel.unit);
    const named = panel.title !== "State" && panel.series.length > 1;
    cell.textContent = panel.title === "State" ? one.name : text;
    if (named) cell.appendChild(document.createElement("small")).textContent = one.name;
  }
}

function table(section, panel) {
  const labels = newest(panel).flatMap((one) => Object.keys(one.labels));
  const names = [...new Set(labels)].filter((name) => !["__name__", "job"].includes(name));
  const element = section.appendChild(document.createElement("table"));
  const rows = [names, ...newest(panel).map((one) => names.map((name) => one.labels[name] ?? ""))];
  for (const cells of rows) {
    const row = element.insertRow();
    for (const text of cells) row.insertCell().textContent = text;
  }
}

for (const panel of PANELS) {
  const section = document.querySelector("main").appendChild(document.createElement("section"));
  const unit = document.querySelector("main").clientWidth / 24;
  const { x, y, w, h } = panel.at;
  section.style.cssText = `left:${x * unit}px;top:${y * ROW}px;width:${w * unit - 8}px;height:${h * ROW - 8}px`;
  section.appendChild(document.createElement("h2")).textContent = panel.title;
  if (panel.kind === "row") {
    section.className = "row";
    continue;
  }
  if (!panel.series.length) {
    section.appendChild(document.createElement("p")).textContent = "no data here";
  } else {
    ({ stat: value, table }[panel.kind] ?? graph)(section, panel);
  }
}
