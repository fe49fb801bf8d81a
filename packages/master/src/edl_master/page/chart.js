// One curve, drawn by uPlot: a reading under pointer, finger or keys, zoom, and what failed meanwhile.

import { colour, element, setText } from "./dom.js";
import { count, duration, measure, number, tickNumber, tickTime, TIME_STEPS_S } from "./format.js";
import { placeMarks } from "./marks.js";

const HEIGHT = 208;
const FEW = 24; // so many values are marked one by one
const LABEL_WIDTH = 6.6; // of one character of an axis
const MARK_REACH = 7; // pixels from a mark at which the reading names it
const SHORTEST_DRAG = 8; // pixels; less is a click

export class Chart {
  /**
   * @param {string} name of the curve, as the model file or the master calls it
   * @param {(range: [number, number] | null) => void} onZoom the reader wants this range, or all
   */
  constructor(name, onZoom) {
    this.name = name;
    this.onZoom = onZoom;
    this.points = [];
    this.reading = null; // index of the point that is read, or null: the last one
    this.plot = null;
    this.width = 0;

    this.value = element("output", "chart-value");
    this.place = element("span", "chart-place");
    this.canvas = element("div", "chart-canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "slider");
    this.canvas.setAttribute("aria-label", `${name}: arrow keys read the curve, + and - zoom`);
    this.marks = element("div", "marks");
    this.node = element(
      "figure",
      "chart",
      element("figcaption", "", element("h3", "", name), this.value, this.place),
      this.canvas,
    );
    this.canvas.addEventListener("keydown", (event) => this.#press(event));
    this.canvas.addEventListener("blur", () => this.#leave());
    new ResizeObserver(([entry]) => {
      this.width = Math.floor(entry.contentRect.width);
      if (this.view) this.#draw();
    }).observe(this.canvas);
  }

  /**
   * Shows a Curve's points; draws only what has changed.
   * @param {object} view of all curves: axis, log, smoothing, zoom, range, marks, theme
   * @param {object[]} earlier points of the same curve of an earlier job
   */
  update(points, view, earlier) {
    const signature = JSON.stringify([view, points.length, points.at(-1), earlier.length]);
    if (signature === this.signature) return;
    this.signature = signature;
    const readStep = this.reading === null ? null : this.points[this.reading]?.step;
    this.view = view;
    this.data = columns(points, earlier, view);
    this.points = numbered(points);
    this.reading = readStep == null ? null : this.#nearest((p) => p.step, readStep);
    this.#draw();
  }

  #x(point) {
    return this.view.axis === "time" ? point.at_s : point.step;
  }

  #nearest(measureOf, target) {
    let best = null;
    let least = Infinity;
    this.points.forEach((point, index) => {
      const distance = Math.abs(measureOf(point) - target);
      if (distance <= least && Number.isFinite(point.value)) [least, best] = [distance, index];
    });
    return best;
  }

  #draw() {
    if (this.width < 60) return;
    const { axis, log, theme } = this.view;
    const shape = JSON.stringify([axis, log, theme, this.width, this.data.length]);
    if (this.plot === null || shape !== this.shape) {
      this.shape = shape;
      this.plot?.destroy();
      this.plot = new uPlot(this.#options(), this.data, this.canvas);
      this.plot.over.append(this.marks); // filled when uPlot has painted and knows its scales
    } else {
      this.plot.setData(this.data); // scales included
    }
    this.#tell();
  }

  #options() {
    const { axis, log, smoothing } = this.view;
    const [soft, line, accent, surface] = ["--soft", "--line", "--accent", "--surface"].map(colour);
    const font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
    const ticks = { stroke: line, size: 4, width: 1 };
    const stroke = { stroke: accent, width: 1.75 };
    const own = { ...stroke, points: { show: this.points.length <= FEW, size: 5, fill: accent } };
    const series = [{}, smoothing > 1 ? { ...own, width: 1, alpha: 0.35 } : own];
    if (smoothing > 1) series.push({ ...stroke, points: { show: false } });
    if (this.data.length > series.length) {
      series.push({ stroke: soft, width: 1.5, dash: [5, 4], points: { show: false } });
    }
    const spread = (_, low, high) => {
      if (low === null) return log ? [0.1, 1] : [0, 1];
      return log ? uPlot.rangeLog(low, high, 10, false) : uPlot.rangeNum(low, high, 0.08, true);
    };
    const words = axis === "time" ? tickTime : tickNumber;
    const widest = (labels) => Math.max(...(labels ?? []).map((text) => text?.length ?? 0), 1);
    return {
      width: this.width,
      height: HEIGHT,
      padding: [10, 14, 0, 0],
      legend: { show: false },
      series,
      scales: {
        x: { time: false, range: () => this.view.zoom ?? this.view.range },
        y: { distr: log ? 3 : 1, range: spread },
      },
      axes: [
        {
          font, ticks, stroke: soft, grid: { show: false }, size: 28, space: 70, gap: 4,
          ...(axis === "time" ? { incrs: TIME_STEPS_S } : {}),
          values: (_, places, index, space, step) => places.map((v) => words(v, step)),
        },
        {
          font, stroke: soft, grid: { stroke: line, width: 1 }, ticks: { show: false }, gap: 6,
          space: 40,
          size: (_, labels) => Math.ceil(widest(labels) * LABEL_WIDTH) + 12,
          values: (_, places, index, space, step) =>
            places.map((v) => (v === null ? "" : tickNumber(v, log ? v : step))),
        },
      ],
      cursor: {
        y: false,
        points: { size: 8, stroke: surface, fill: accent },
        drag: { x: true, y: false, setScale: false, dist: SHORTEST_DRAG },
        sync: { key: "curves", filters: { pub: (type) => type.startsWith("mouse") && !/up|down/.test(type) } },
        bind: { dblclick: () => () => this.onZoom(null) },
      },
      hooks: {
        draw: [() => this.#drawMarks()],
        ready: [(plot) => this.#followFinger(plot)],
        setCursor: [(plot) => this.#read(plot)],
        setSelect: [(plot) => this.#select(plot)],
      },
    };
  }

  /** uPlot follows the mouse alone. */
  #followFinger(plot) {
    const follow = (event) => {
      if (event.pointerType !== "touch") return;
      const box = plot.over.getBoundingClientRect();
      plot.setCursor({ left: event.clientX - box.left, top: event.clientY - box.top });
    };
    plot.over.addEventListener("pointerdown", follow);
    plot.over.addEventListener("pointermove", follow);
  }

  #read(plot) {
    const { left } = plot.cursor;
    if (left < 0 || this.data[0].length === 0) return this.#leave(false);
    this.reading = this.#nearest((p) => plot.valToPos(this.#x(p), "x"), left);
    return this.#tell();
  }

  #select(plot) {
    const { left, width } = plot.select;
    if (width < SHORTEST_DRAG) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.onZoom([left, left + width].map((at) => plot.posToVal(at, "x")));
  }

  #leave(alsoCursor = true) {
    this.reading = null;
    if (alsoCursor) this.plot?.setCursor({ left: -10, top: -10 });
    this.#tell();
  }

  #press(event) {
    const last = this.points.length - 1;
    const at = this.reading ?? last;
    const moves = {
      ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
      PageUp: at + 10, PageDown: at - 10, Home: 0, End: last,
    };
    if (last < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") this.#leave();
    else if (event.key === "+" || event.key === "=") this.#zoomBy(0.5, this.#x(this.points[at]));
    else if (event.key === "-") this.#zoomBy(2, this.#x(this.points[at]));
    else if (event.key === "0") this.onZoom(null);
    else if (event.key in moves) {
      const index = Math.min(last, Math.max(0, moves[event.key]));
      const point = this.points[index];
      this.plot.setCursor({ left: this.plot.valToPos(this.#x(point), "x"), top: 0 }, false);
      this.reading = index; // of two points on one pixel, the one that the keys chose
      this.#tell();
    } else return;
    event.preventDefault();
  }

  #zoomBy(factor, middle) {
    const [first, last] = this.view.range;
    const [low, high] = this.view.zoom ?? this.view.range;
    const half = ((high - low) * factor) / 2;
    const wanted = [Math.max(first, middle - half), Math.min(last, middle + half)];
    this.onZoom(wanted[0] <= first && wanted[1] >= last ? null : wanted);
  }

  #drawMarks() {
    const [low, high] = this.view.zoom ?? this.view.range;
    const seen = this.view.marks.filter((mark) => mark.x >= low && mark.x <= high);
    placeMarks(this.marks, seen, (mark) => `${this.plot.valToPos(mark.x, "x").toFixed(1)}px`);
  }

  /** Says in words what is read: the point under the pointer, or the newest one. */
  #tell() {
    const last = this.points.length - 1;
    const index = Math.min(this.reading ?? last, last);
    const point = this.points[index];
    const place = point ? `update ${count(point.step)} · ${duration(point.at_s)}` : "";
    const said = this.reading === null || !point ? "" : this.#nearbyMark(point);
    setText(this.value, point ? measure(point.value) : "no value yet");
    setText(this.place, [place, said].filter(Boolean).join(" · "));
    const range = { valuemin: 0, valuemax: Math.max(0, last), valuenow: Math.max(0, index) };
    const reading = point ? `${measure(point.value)} at ${this.place.textContent}` : "no value yet";
    for (const [name, value] of Object.entries({ ...range, valuetext: reading })) {
      this.canvas.setAttribute(`aria-${name}`, value);
    }
  }

  #nearbyMark(point) {
    const at = (x) => this.plot.valToPos(x, "x");
    const near = (mark) => Math.abs(at(mark.x) - at(this.#x(point))) <= MARK_REACH;
    return this.view.marks.find(near)?.message ?? "";
  }
}

/** Points of a Curve as numbers; those without a place on the axes are left out. */
function numbered(points) {
  return points
    .map((p) => ({ step: number(p.step), at_s: number(p.at_s), value: number(p.value) }))
    .filter((p) => Number.isFinite(p.step) && Number.isFinite(p.at_s));
}

/** uPlot's columns: x, the curve, its moving average, the earlier job's; null makes a gap. */
export function columns(points, earlier, { axis, log, smoothing }) {
  const field = axis === "time" ? "at_s" : "step";
  const drawable = (value) => (Number.isFinite(value) && (!log || value > 0) ? value : null);
  const tables = [points, ...(earlier.length > 0 ? [earlier] : [])].map((given) => {
    const rows = numbered(given);
    return [rows.map((p) => p[field]), rows.map((p) => drawable(p.value))];
  });
  if (smoothing > 1) tables[0].push(movingAverage(tables[0][1], smoothing));
  return tables.length > 1 ? uPlot.join(tables) : tables[0];
}

/** Mean of each value and the ones before it, `window` at most; a gap stays one. */
export function movingAverage(values, window) {
  const recent = [];
  return values.map((value) => {
    if (value === null) return null;
    recent.push(value);
    if (recent.length > window) recent.shift();
    return recent.reduce((sum, each) => sum + each, 0) / recent.length;
  });
}
