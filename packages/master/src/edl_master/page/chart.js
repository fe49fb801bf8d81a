// A curve over updates or over time: axes, the line, and a reading under pointer, finger or keys.

import { drawing, element, setText } from "./dom.js";
import { count, duration, measure, number } from "./format.js";
import { countAxis, timeAxis, valueAxis } from "./scale.js";

const HEIGHT = 208;
const TOP = 10;
const RIGHT = 14;
const BOTTOM = 24;
const FEW = 24; // so many values are marked one by one
const LABEL_WIDTH = 6.6; // of one character, at the size that page.css gives labels

export class Chart {
  /** @param {string} name of the curve, as the model file or the master calls it */
  constructor(name) {
    this.name = name;
    this.points = [];
    this.axis = "step";
    this.reading = null; // index of the point that is read, or null: the last one
    this.width = 0;

    this.value = element("output", "chart-value");
    this.place = element("span", "chart-place");
    this.canvas = drawing("svg", { class: "chart-canvas", role: "slider", tabindex: "0" });
    this.canvas.setAttribute("aria-label", `${name}: arrow keys read the curve`);
    this.node = element(
      "figure",
      "chart",
      element("figcaption", "", element("h3", "", name), this.value, this.place),
      this.canvas,
    );
    this.#listen();
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width !== this.width) {
        this.width = width;
        this.#draw();
      }
    }).observe(this.canvas);
  }

  /**
   * Shows a Curve's points; draws only what has changed.
   * @param {"step"|"time"} axis the horizontal one
   * @param {[number, number]} range of the horizontal axis, the same for all curves of a job
   */
  update(points, axis, range) {
    const signature = JSON.stringify([axis, range, points.length, points.at(-1)]);
    if (signature === this.signature) return;
    this.signature = signature;
    const readStep = this.reading === null ? null : this.points[this.reading].step;
    this.axis = axis;
    this.range = range;
    this.points = points
      .map((p) => ({ step: number(p.step), at_s: number(p.at_s), value: number(p.value) }))
      .filter((p) => Number.isFinite(p.step) && Number.isFinite(p.at_s));
    if (readStep !== null) this.reading = this.#nearest((p) => p.step, readStep);
    this.#draw();
  }

  #x(point) {
    return this.axis === "time" ? point.at_s : point.step;
  }

  #nearest(measureOf, target) {
    let best = null;
    let least = Infinity;
    this.points.forEach((point, index) => {
      const distance = Math.abs(measureOf(point) - target);
      if (distance <= least && Number.isFinite(point.value)) {
        least = distance;
        best = index;
      }
    });
    return best;
  }

  #listen() {
    const read = (event) => {
      if (!this.scale) return;
      const left = this.canvas.getBoundingClientRect().left;
      this.reading = this.#nearest((p) => this.scale.x(this.#x(p)), event.clientX - left);
      this.#mark();
    };
    const leave = () => {
      this.reading = null;
      this.#mark();
    };
    this.canvas.addEventListener("pointerdown", read);
    this.canvas.addEventListener("pointermove", read);
    this.canvas.addEventListener("pointerleave", leave);
    this.canvas.addEventListener("blur", leave);
    this.canvas.addEventListener("keydown", (event) => {
      const last = this.points.length - 1;
      const at = this.reading ?? last;
      const moves = {
        ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
        PageUp: at + 10, PageDown: at - 10, Home: 0, End: last,
      };
      if (event.key === "Escape") return leave();
      if (!(event.key in moves) || last < 0) return undefined;
      event.preventDefault();
      this.reading = Math.min(last, Math.max(0, moves[event.key]));
      return this.#mark();
    });
  }

  #draw() {
    const finite = this.points.filter((p) => Number.isFinite(p.value));
    if (this.width < 60) return;
    this.canvas.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.canvas.setAttribute("height", HEIGHT);
    if (finite.length === 0) {
      this.scale = null;
      const middle = { x: this.width / 2, y: HEIGHT / 2, "text-anchor": "middle" };
      this.canvas.replaceChildren(drawing("text", middle, "no value yet"));
      this.#mark();
      return;
    }

    const values = finite.map((p) => p.value);
    const y = valueAxis(Math.min(...values), Math.max(...values), 4);
    const labels = y.ticks.map(y.label);
    const left = Math.ceil(Math.max(...labels.map((text) => text.length)) * LABEL_WIDTH) + 10;
    const inner = this.width - left - RIGHT;
    const makeAxis = this.axis === "time" ? timeAxis : countAxis;
    const x = makeAxis(...this.range, Math.max(2, Math.floor(inner / 70)));
    this.scale = {
      x: (v) => left + ((v - x.low) / (x.high - x.low)) * inner,
      y: (v) => TOP + ((y.high - v) / (y.high - y.low)) * (HEIGHT - TOP - BOTTOM),
    };

    const floor = HEIGHT - BOTTOM;
    const end = this.width - RIGHT;
    const parts = [];
    y.ticks.forEach((tick, index) => {
      const at = Math.round(this.scale.y(tick)) + 0.5;
      const words = { x: left - 8, y: at + 3.5, "text-anchor": "end" };
      parts.push(drawing("line", { class: "grid", x1: left, x2: end, y1: at, y2: at }));
      parts.push(drawing("text", words, labels[index]));
    });
    for (const tick of x.ticks) {
      const at = Math.round(this.scale.x(tick)) + 0.5;
      const anchor = at > this.width - 24 ? "end" : "middle";
      parts.push(drawing("line", { class: "notch", x1: at, x2: at, y1: floor, y2: floor + 4 }));
      parts.push(drawing("text", { x: at, y: HEIGHT - 6, "text-anchor": anchor }, x.label(tick)));
    }
    for (const run of this.#runs()) {
      const line = run.map(([px, py]) => `${px.toFixed(1)},${py.toFixed(1)}`).join("L");
      // An area says how much above zero, so it is only drawn down to zero.
      if (y.low === 0) {
        const foot = `L${run.at(-1)[0].toFixed(1)},${floor}L${run[0][0].toFixed(1)},${floor}Z`;
        parts.push(drawing("path", { class: "area", d: `M${line}${foot}` }));
      }
      parts.push(drawing("path", { class: "line", d: `M${line}` }));
      if (finite.length <= FEW) {
        for (const [cx, cy] of run) parts.push(drawing("circle", { class: "dot", cx, cy, r: 2.5 }));
      }
    }
    this.cross = drawing("line", { class: "cross", y1: TOP, y2: floor });
    this.dot = drawing("circle", { class: "dot", r: 3.5 });
    this.canvas.replaceChildren(...parts, this.cross, this.dot);
    this.#mark();
  }

  /** Stretches of the curve without a gap; NaN makes a gap. */
  #runs() {
    const runs = [[]];
    for (const point of this.points) {
      if (Number.isFinite(point.value)) {
        runs.at(-1).push([this.scale.x(this.#x(point)), this.scale.y(point.value)]);
      } else if (runs.at(-1).length > 0) {
        runs.push([]);
      }
    }
    return runs.filter((run) => run.length > 0);
  }

  /** Puts the mark and the reading on the point that is read, or on the newest one. */
  #mark() {
    const last = this.points.length - 1;
    const index = Math.min(this.reading ?? last, last);
    const point = this.points[index];
    setText(this.value, point ? measure(point.value) : "");
    const place = point ? `update ${count(point.step)} · ${duration(point.at_s)}` : "";
    setText(this.place, place);
    const reading = point ? `${measure(point.value)} at ${place}` : "no value yet";
    const range = { valuemin: 0, valuemax: Math.max(0, last), valuenow: Math.max(0, index) };
    for (const [name, value] of Object.entries({ ...range, valuetext: reading })) {
      this.canvas.setAttribute(`aria-${name}`, value);
    }
    if (!this.scale || !point) return;
    const known = Number.isFinite(point.value);
    const at = this.scale.x(this.#x(point)).toFixed(1);
    this.cross.setAttribute("x1", at);
    this.cross.setAttribute("x2", at);
    this.cross.classList.toggle("seen", this.reading !== null);
    this.dot.classList.toggle("seen", known);
    if (known) {
      this.dot.setAttribute("cx", at);
      this.dot.setAttribute("cy", this.scale.y(point.value).toFixed(1));
    }
  }
}
