// The status page of one job: brings the feed and the parts of the page together.

import { Chart } from "./chart.js";
import { byId, fillFacts, mirror, setText, show } from "./dom.js";
import { EventList } from "./events.js";
import { follow } from "./feed.js";
import { clock, measure, moment, number, words } from "./format.js";
import { showMasthead, showProgress, showStats, showVerdict } from "./summary.js";
import { showDeadLetters, showJob, showLedger, showTasks, showWorkers } from "./tables.js";

const events = new EventList();
const charts = new Map(); // by the curve's name
let status = null;
let lost = null;

function showStatus() {
  showMasthead(status, lost === null);
  showVerdict(status);
  showProgress(status);
  showStats(status);
  showCurves();
  showWorkers(status);
  showTasks(status);
  showLedger(status);
  showJob(status);
  showDeadLetters(status);
  show(byId("main"), true);
}

function showCurves() {
  const axis = document.querySelector("#axis input:checked").value;
  // A metric of an evaluate job is one value, no curve.
  const curves = (status.curves ?? []).filter((curve) => (curve.points ?? []).length > 0);
  curves.sort((a, b) => (b.name === "loss") - (a.name === "loss"));
  const drawn = new Set(curves.map((curve) => curve.name));
  const range = rangeOf(curves, axis);
  const values = Object.entries(status.metrics ?? {})
    .filter(([name]) => !drawn.has(name))
    .map(([label, value]) => ({ label, value: measure(value) }))
    .sort((a, b) => a.label.localeCompare(b.label));

  mirror(
    byId("charts"),
    curves,
    (curve) => curve.name,
    (curve) => {
      charts.set(curve.name, new Chart(curve.name));
      return charts.get(curve.name).node;
    },
    (_, curve) => charts.get(curve.name).update(curve.points, axis, range),
  );
  fillFacts(byId("metrics"), values);
  show(byId("metrics"), values.length > 0);
  show(byId("axis"), curves.length > 0);
  setText(byId("curves-title"), status.type === "TRAIN" ? "Loss and metrics" : "Metrics");

  const expected = {
    TRAIN: "The first values appear after the first updates.",
    EVALUATE: "Metrics appear when all records are evaluated.",
  }[status.type];
  const nothing = curves.length === 0 && values.length === 0;
  setText(byId("curves-note"), expected ?? "");
  show(byId("curves-note"), nothing);
  show(byId("curves"), !nothing || expected !== undefined);
}

/** From the first to the last point of all curves; from 0 unless they begin far from it. */
function rangeOf(curves, axis) {
  const field = axis === "time" ? "at_s" : "step";
  const all = curves.flatMap((curve) => curve.points.map((point) => number(point[field])));
  const [first, last] = [Math.min(...all), Math.max(...all)];
  return [first > last * 0.3 && first < last ? first : 0, last];
}

function showLink(text, kind) {
  setText(byId("link"), text);
  byId("link").dataset.kind = kind;
}

function showLost() {
  document.body.classList.toggle("is-lost", lost !== null);
  show(byId("lost"), lost !== null);
  if (lost === null) return;
  const said =
    status === null
      ? `The master cannot be reached (${lost.reason}).`
      : `The master has not been reachable since ${moment(lost.since)} (${lost.reason}). ` +
        "What you see is the last known state.";
  setText(byId("lost-text"), said);
  const wait = Math.max(0, Math.ceil((lost.retryAt - Date.now()) / 1000));
  setText(byId("lost-next"), wait > 0 ? `Next try in ${wait} s.` : "Trying again …");
}

byId("axis").addEventListener("change", showCurves);
setInterval(() => lost && showLost(), 1000);

follow({
  status(news) {
    lost = null;
    status = news;
    showStatus();
  },
  events: (news) => events.add(news),
  forget: () => events.forget(),
  live() {
    showLost();
    showLink(`live, as of ${clock(new Date())}`, "live");
  },
  lost(news) {
    lost = news;
    showLost();
    showLink(status === null ? "no answer" : `last answer ${clock(news.since)}`, "lost");
    if (status !== null) showMasthead(status, false);
  },
  over() {
    showLost();
    showLink(`final: the job is over (${words(status.state)})`, "over");
  },
});
