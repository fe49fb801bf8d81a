// Where the time of each worker went: a strip over the life of the job, and the shares of its phases.

import { byId, drawing, element, mirror, setText, show } from "./dom.js";
import { clock, count, duration, number, plural, tickTime, TIME_STEPS_S } from "./format.js";
import { placeMarks, showMarksKey } from "./marks.js";

// Each has a colour in page.css; from the bottom of a strip to its top.
const PHASES = {
  compute: "computes gradients",
  other: "works, but not on training steps: evaluation, prediction, export, compiling the model",
  input: "waits for the next minibatch: reading, and dataset_fn",
  exchange: "waits for pushes and pulls, and for step permits in synchronous mode",
  loading: "loads TensorFlow and the model file",
  idle: "has no task, or waits before it may continue one",
};
const STRIP = "time";
const AT_WORK = ["compute", "other"];
const ROWS_AT_FIRST = 12;
const MOST_MARKS = 500;
const MOST_TICKS = 5;
const LAST_TICK = 0.96; // share of the axis; a later label has no room
const MARK_REACH = 0.01; // share of the strip from a mark at which the reading names it
const TO_READ = "To read a strip, point at it, or focus it and press the arrow keys.";

export class TimelinePanel {
  #times = null;
  #events = []; // that are marked
  #marks = []; // of those the ones in sight
  #startedAt = Infinity; // of the job, in seconds since the epoch
  #rows = []; // the workers that are shown
  #all = false; // whether that is to be all of them
  #current = null; // {worker, at} that is read; at in seconds since the epoch
  #worker = null; // whose strip the tab key reaches
  #redraw = false;

  constructor() {
    const head = byId("timeline-rows").tHead.rows[0];
    head.append(heading("worker"), heading(STRIP));
    head.lastElementChild.append(element("div", "axis"));
    for (const [name, meaning] of Object.entries(PHASES)) {
      const cell = heading(name, "number");
      cell.dataset.phase = name;
      cell.title = meaning;
      head.append(cell);
    }
    head.append(heading("tasks", "number"), heading("lost", "number"));
    byId("timeline-more").addEventListener("click", () => {
      this.#all = true;
      this.#render();
    });
  }

  show(times) {
    this.#times = times;
    this.#render();
  }

  /** Takes what happened, oldest first, and what of it is marked. */
  add(events, marked) {
    for (const event of events) {
      const began = Date.parse(event.at) / 1000 - number(event.at_s);
      // Only the first events have the start of the job: its own clock stands while it has no master.
      if (Number.isFinite(began)) this.#startedAt = Math.min(this.#startedAt, began);
    }
    this.#events.push(...marked);
    this.#events.splice(0, this.#events.length - MOST_MARKS);
    this.#render();
  }

  forget() {
    this.#events = [];
  }

  #render() {
    const times = this.#times;
    show(byId("timeline"), times !== null && times.workers.length > 0);
    if (times === null || times.workers.length === 0 || this.#redraw) return;
    // Events and times come together; one drawing is enough.
    this.#redraw = true;
    queueMicrotask(() => {
      this.#redraw = false;
      this.#draw();
    });
  }

  #draw() {
    this.#rows = this.#all ? this.#times.workers : this.#slowest();
    if (!this.#rows.some((it) => it.worker === this.#worker)) this.#worker = this.#rows[0].worker;
    const marks = this.#marksInSight();
    this.#marks = marks;
    mirror(
      byId("timeline-rows").tBodies[0],
      this.#rows,
      (it) => it.worker,
      (it) => this.#newRow(it.worker),
      (node, it) => this.#fill(node, it, marks.filter((m) => m.worker === undefined || m.worker === it.worker)),
    );
    this.#drawAxis();
    this.#drawAround();
    showMarksKey(byId("timeline-key"), marks.filter((it) => it.worker === undefined || this.#row(it.worker)));
    this.#tell();
  }

  /** How much there is, and how much of it is shown. */
  #drawAround() {
    const { workers, left_out: leftOut, buckets, width_s: width } = this.#times;
    const of = workers.length + leftOut;
    const shown = this.#rows.length;
    const steps = `${duration(buckets * width)} in steps of ${width < 10 ? `${width} s` : duration(width)}`;
    const chosen = `the ${shown} of ${count(of)} workers that waited most${leftOut > 0 ? "; edl trace has all" : ""}`;
    setText(byId("timeline-note"), shown < of ? `${steps} · ${chosen}` : steps);
    const more = byId("timeline-more");
    show(more, shown < workers.length);
    setText(more, leftOut > 0 ? `show ${workers.length} of them` : `show all ${plural(of, "worker")}`);
  }

  /** Those that were at work for the smallest share of their time, in the order of their numbers. */
  #slowest() {
    const used = (it) => {
      const total = it.seconds.reduce((sum, each) => sum + each, 0);
      return AT_WORK.reduce((sum, phase) => sum + it.seconds[this.#times.phases.indexOf(phase)], 0) / (total || 1);
    };
    return [...this.#times.workers]
      .sort((a, b) => used(a) - used(b))
      .slice(0, ROWS_AT_FIRST)
      .sort((a, b) => a.worker - b.worker);
  }

  #row(worker) {
    return this.#rows.find((it) => it.worker === worker);
  }

  /** Seconds since the job's start at the left end of all strips. */
  #left() {
    const { at } = this.#times;
    return at - (Number.isFinite(this.#startedAt) ? this.#startedAt : at);
  }

  #marksInSight() {
    const { at, buckets, width_s: width } = this.#times;
    return this.#events
      .map((event) => ({
        number: event.number,
        kind: event.mark,
        message: event.message,
        worker: event.facts?.worker === undefined ? undefined : Number(event.facts.worker),
        x: (Date.parse(event.at) / 1000 - at) / (buckets * width),
      }))
      .filter((mark) => mark.x >= 0 && mark.x <= 1);
  }

  #drawAxis() {
    const { buckets, width_s: width } = this.#times;
    const left = this.#left();
    const span = buckets * width;
    const step = TIME_STEPS_S.find((it) => span / it <= MOST_TICKS) ?? span;
    const ticks = [];
    for (let at = Math.ceil(left / step) * step; at <= left + span * LAST_TICK; at += step) ticks.push(at);
    const axis = byId("timeline-rows").tHead.querySelector(".axis");
    mirror(axis, ticks, (at) => `${at}/${step}`, (at) => element("span", "", tickTime(at, step)), (node, at) => {
      node.style.left = `${(((at - left) / span) * 100).toFixed(2)}%`;
    });
  }

  #newRow(worker) {
    const node = element("tr");
    node.setAttribute("role", "row");
    const cell = (tag, role, column, className = "") => {
      const it = element(tag, className);
      it.setAttribute("role", role);
      it.dataset.column = column;
      node.append(it);
      return it;
    };
    const name = cell("th", "rowheader", "worker");
    name.scope = "row";
    name.append(String(worker));
    cell("td", "cell", STRIP).append(this.#strip(worker));
    for (const phase of Object.keys(PHASES)) cell("td", "cell", phase, "number").dataset.phase = phase;
    cell("td", "cell", "tasks", "number");
    cell("td", "cell", "lost", "number");
    return node;
  }

  #strip(worker) {
    const paths = Object.keys(PHASES).map((phase) => drawing("path", { "data-phase": phase }));
    const picture = drawing("svg", { preserveAspectRatio: "none", "aria-hidden": "true" }, ...paths);
    const strip = element("div", "strip", picture, element("i", "strip-cursor"), element("div", "marks"));
    strip.setAttribute("role", "slider");
    strip.setAttribute("aria-label", `worker ${worker} over time: left and right arrow keys read it, up and down change the worker`);
    strip.addEventListener("keydown", (event) => this.#press(event, worker));
    strip.addEventListener("blur", () => this.#read());
    strip.addEventListener("pointermove", (event) => this.#point(event, worker, strip));
    strip.addEventListener("pointerdown", (event) => this.#point(event, worker, strip));
    strip.addEventListener("pointerleave", () => this.#read());
    strip.addEventListener("focus", () => {
      this.#worker = worker;
      this.#tell();
    });
    return strip;
  }

  #fill(node, it, marks) {
    const strip = node.querySelector(".strip");
    const { at, width_s: width, buckets } = this.#times;
    const signature = JSON.stringify([at, width, buckets, it, marks.map((mark) => mark.number)]);
    if (signature === node.dataset.drawn) return;
    node.dataset.drawn = signature;
    strip.firstElementChild.setAttribute("viewBox", `0 0 ${buckets} 100`);
    const areas = stackedAreas(it.percent.map((shares) => this.#ordered(shares)), it.first);
    areas.forEach((area, index) => strip.firstElementChild.children[index].setAttribute("d", area));
    placeMarks(strip.lastElementChild, marks, (mark) => `${(mark.x * 100).toFixed(2)}%`);
    const seconds = this.#ordered(it.seconds);
    const total = seconds.reduce((sum, each) => sum + each, 0);
    const cells = [...node.children].slice(2);
    seconds.forEach((spent, index) => {
      const share = total > 0 ? spent / total : 0;
      setText(cells[index], spent <= 0 ? "–" : share < 0.005 ? "<1 %" : `${Math.round(share * 100)} %`);
      cells[index].title = duration(spent);
    });
    const lost = it.tasks.lost ?? 0;
    setText(cells.at(-2), count(it.tasks.done ?? 0));
    setText(cells.at(-1), count(lost));
    cells.at(-1).dataset.tone = lost > 0 ? "warning" : "";
  }

  /** Figures by phase in the order of PHASES. */
  #ordered(figures) {
    return Object.keys(PHASES).map((phase) => figures[this.#times.phases.indexOf(phase)] ?? 0);
  }

  /** Reads a bucket of a worker, or nothing. */
  #read(worker = null, bucket = 0) {
    const { at, width_s: width } = this.#times;
    this.#current = worker === null ? null : { worker, at: at + (bucket + 0.5) * width };
    this.#tell();
  }

  /** The bucket of a worker that is read; without one the last. Buckets become wider meanwhile. */
  #bucket(worker) {
    const { at, buckets, width_s: width } = this.#times;
    if (this.#current?.worker !== worker) return buckets - 1;
    return Math.min(buckets - 1, Math.max(0, Math.floor((this.#current.at - at) / width)));
  }

  #point(event, worker, strip) {
    const box = strip.getBoundingClientRect();
    const share = Math.min(0.999999, Math.max(0, (event.clientX - box.left) / box.width));
    this.#read(worker, Math.floor(share * this.#times.buckets));
  }

  #press(event, worker) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { buckets } = this.#times;
    const last = buckets - 1;
    const at = this.#bucket(worker);
    const page = Math.max(1, Math.round(buckets / 10));
    const moves = {
      ArrowLeft: at - 1, ArrowRight: at + 1, PageDown: at - page, PageUp: at + page, Home: 0, End: last,
    };
    const row = this.#rows.findIndex((it) => it.worker === worker);
    const other = { ArrowUp: this.#rows[row - 1], ArrowDown: this.#rows[row + 1] };
    if (event.key in moves) {
      this.#read(worker, Math.min(last, Math.max(0, moves[event.key])));
    } else if (event.key in other) {
      if (other[event.key]) this.#moveTo(other[event.key].worker, at);
    } else if (event.key === "Escape") this.#read();
    else return;
    event.preventDefault();
  }

  #moveTo(worker, bucket) {
    this.#stripOf(worker).focus(); // the strip that loses the focus clears the reading
    this.#read(worker, bucket);
  }

  #stripOf(worker) {
    return byId("timeline-rows").tBodies[0].querySelector(`[data-key="${worker}"] .strip`);
  }

  /** Says in words what is read, and shows the place in its strip. */
  #tell() {
    const { buckets } = this.#times;
    for (const it of this.#rows) {
      const strip = this.#stripOf(it.worker);
      const isRead = this.#current?.worker === it.worker;
      const bucket = this.#bucket(it.worker);
      const reading = { valuemin: 0, valuemax: buckets - 1, valuenow: bucket, valuetext: this.#words(it, bucket) };
      for (const [name, value] of Object.entries(reading)) strip.setAttribute(`aria-${name}`, value);
      strip.tabIndex = it.worker === this.#worker ? 0 : -1;
      const cursor = strip.querySelector(".strip-cursor");
      show(cursor, isRead);
      cursor.style.left = `${(((bucket + 0.5) / buckets) * 100).toFixed(2)}%`;
    }
    const read = this.#row(this.#current?.worker);
    const said = read ? `worker ${read.worker} · ${this.#words(read, this.#bucket(read.worker))}` : TO_READ;
    setText(byId("timeline-reading"), said);
  }

  #words(it, bucket) {
    const { at, buckets, width_s: width } = this.#times;
    const begins = Math.max(0, this.#left() + bucket * width);
    const shares = this.#ordered(it.percent[bucket - it.first] ?? []);
    const spent = Object.keys(PHASES)
      .map((phase, index) => [phase, shares[index]])
      .filter(([, share]) => share > 0)
      .sort((a, b) => b[1] - a[1])
      .map(([phase, share]) => `${phase} ${share} %`);
    const when = `${duration(begins)} after the start (${clock((at + bucket * width) * 1000)})`;
    const reach = Math.max(MARK_REACH, 0.5 / buckets);
    const near = this.#marks.find(
      (mark) => (mark.worker ?? it.worker) === it.worker && Math.abs(mark.x - (bucket + 0.5) / buckets) <= reach,
    );
    return [when, spent.join(", ") || "no reports", near?.message].filter(Boolean).join(" · ");
  }
}

/** SVG paths, one for each phase, of strips that are 100 high and a unit wide for each bucket. */
export function stackedAreas(rows, first) {
  const paths = (rows[0] ?? []).map(() => []);
  rows.forEach((shares, index) => {
    let low = 0;
    shares.forEach((share, phase) => {
      const high = Math.min(100, low + share);
      const runs = paths[phase];
      const run = runs.at(-1);
      if (run?.end === first + index && run.low === low && run.high === high) run.end += 1;
      else if (high > low) runs.push({ begin: first + index, end: first + index + 1, low, high });
      low = high;
    });
  });
  return paths.map((runs) =>
    runs.map((it) => `M${it.begin} ${100 - it.low}V${100 - it.high}H${it.end}V${100 - it.low}z`).join(""),
  );
}

function heading(name, className = "") {
  const cell = element("th", className, element("span", "", name));
  cell.setAttribute("role", "columnheader");
  cell.scope = "col";
  return cell;
}
