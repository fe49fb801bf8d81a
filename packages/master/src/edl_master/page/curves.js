// The panel of curves: what the reader wants to see of all of them, and what failed meanwhile.

import { Chart } from "./chart.js";
import { byId, element, fillFacts, mirror, setText, show } from "./dom.js";
import { measure, number } from "./format.js";
import { showMarksKey } from "./marks.js";
import { savedStatus } from "./saved.js";

const MOST_MARKS = 200;

const EXPECTED = {
  TRAIN: "The first values appear after the first updates.",
  EVALUATE: "Metrics appear when all records are evaluated.",
};

export class CurvePanel {
  #charts = new Map(); // by the curve's name
  #marks = [];
  #zoom = null;
  #earlier = null; // status of another job
  #status = null;

  constructor() {
    for (const id of ["axis", "log", "smoothing"]) {
      byId(id).addEventListener("input", (event) => {
        if (event.target.name === "axis") this.#zoom = null; // it means something else there
        this.#render();
      });
    }
    byId("whole").addEventListener("click", () => this.#zoomTo(null));
    byId("earlier").addEventListener("change", (event) => this.#compare(event.target.files[0]));
  }

  show(status) {
    this.#status = status;
    this.#render();
  }

  /** Takes events that are marked, oldest first. */
  add(marked) {
    // A curve owes its shape to what is lost; workers start without a trace in it.
    this.#marks.push(...marked.filter((event) => event.mark !== "started"));
    this.#marks.splice(0, this.#marks.length - MOST_MARKS);
    this.#render();
  }

  forget() {
    this.#marks = [];
  }

  /** Draws anew, in the colours that hold now. */
  recolour() {
    this.#render();
  }

  #zoomTo(range) {
    this.#zoom = range;
    this.#render();
  }

  async #compare(file) {
    this.#earlier = file ? savedStatus(await file.text()) : null;
    const wrong = file && !this.#earlier;
    const said = wrong ? `${file.name} is not a page that edl saved.` : "";
    setText(byId("earlier-note"), said || (this.#earlier ? `dashed: ${this.#earlier.name}` : ""));
    byId("earlier-note").dataset.tone = wrong ? "bad" : "quiet";
    this.#render();
  }

  #render() {
    const status = this.#status;
    if (status === null) return;
    const curves = withPoints(status).sort((a, b) => (b.name === "loss") - (a.name === "loss"));
    const earlier = new Map(withPoints(this.#earlier).map((it) => [it.name, it.points]));
    const view = this.#view([...curves, ...curves.flatMap((it) => earlier.get(it.name) ? [{ points: earlier.get(it.name) }] : [])]);
    mirror(
      byId("charts"),
      curves,
      (curve) => curve.name,
      (curve) => {
        this.#charts.set(curve.name, new Chart(curve.name, (range) => this.#zoomTo(range)));
        return this.#charts.get(curve.name).node;
      },
      (_, curve) => this.#charts.get(curve.name).update(curve.points, view, earlier.get(curve.name) ?? []),
    );
    this.#showAround(curves, view);
  }

  #view(curves) {
    const axis = document.querySelector("#axis input:checked").value;
    const smoothing = Number(byId("smoothing").value);
    setText(byId("smoothing-note"), smoothing > 1 ? `mean of ${smoothing}` : "off");
    return {
      axis,
      smoothing,
      log: byId("log").checked,
      zoom: this.#zoom,
      range: rangeOf(curves, axis),
      marks: this.#marks.map((event) => this.#mark(event, axis)),
      theme: getComputedStyle(document.body).color,
    };
  }

  #mark(event, axis) {
    const { number: key, message } = event;
    const at = number(event.at_s);
    return { number: key, kind: event.mark, message, x: axis === "time" ? at : this.#stepAt(at) };
  }

  /** The update of a moment, between those of the two nearest points of any curve. */
  #stepAt(at) {
    const points = withPoints(this.#status)
      .flatMap((curve) => curve.points.map((p) => [number(p.at_s), number(p.step)]))
      .sort((a, b) => a[0] - b[0]);
    const after = points.findIndex(([seconds]) => seconds >= at);
    if (after < 0) return points.at(-1)?.[1] ?? 0;
    const [t1, s1] = points[after];
    const [t0, s0] = points[after - 1] ?? [0, 0];
    return t1 > t0 ? s0 + ((s1 - s0) * (at - t0)) / (t1 - t0) : s1;
  }

  /** Values without a curve, the tools, the key of the marks, and what is still to come. */
  #showAround(curves, view) {
    const status = this.#status;
    const drawn = new Set(curves.map((curve) => curve.name));
    const values = Object.entries(status.metrics ?? {})
      .filter(([name]) => !drawn.has(name))
      .map(([label, value]) => ({ label, value: measure(value) }))
      .sort((a, b) => a.label.localeCompare(b.label));
    fillFacts(byId("metrics"), values);
    show(byId("metrics"), values.length > 0);
    show(byId("curve-tools"), curves.length > 0);
    show(byId("whole"), this.#zoom !== null);
    setText(byId("curves-title"), status.type === "TRAIN" ? "Loss and metrics" : "Metrics");
    showMarksKey(byId("marks-key"), curves.length > 0 ? view.marks : []);
    const nothing = curves.length === 0 && values.length === 0;
    setText(byId("curves-note"), EXPECTED[status.type] ?? "");
    show(byId("curves-note"), nothing);
    show(byId("curves"), !nothing || status.type in EXPECTED);
  }
}

/** Curves of a status that have something to draw. A metric of an evaluate job is one value. */
function withPoints(status) {
  return (status?.curves ?? []).filter((curve) => (curve.points ?? []).length > 0);
}

/** From the first to the last point of all curves; from 0 unless they begin far from it. */
function rangeOf(curves, axis) {
  const field = axis === "time" ? "at_s" : "step";
  const all = curves.flatMap((curve) => curve.points.map((point) => number(point[field])));
  if (all.length === 0) return [0, 1];
  const [first, last] = [Math.min(...all), Math.max(...all)];
  const low = first > last * 0.3 && first < last ? first : 0;
  return [low, last > low ? last : low + 1];
}
