// The job's events, newest first.

import { byId, element, mirror, setText, show } from "./dom.js";
import { clock, duration, moment, plural } from "./format.js";
import { sign } from "./tables.js";

const AT_FIRST = 60;
const MORE = 240;
const KEPT = 5000; // older ones stay in the job's events.jsonl

const SEVERITIES = {
  info: { tone: "quiet", icon: "info" },
  warning: { tone: "warning", icon: "warning" },
  error: { tone: "bad", icon: "bad" },
};

export class EventList {
  #events = []; // newest first
  #limit = AT_FIRST;

  constructor() {
    byId("events-filter").addEventListener("change", () => this.#render());
    byId("events-more").addEventListener("click", () => {
      this.#limit += MORE;
      this.#render();
    });
  }

  /** Adds events, given oldest first. */
  add(events) {
    this.#events.unshift(...[...events].reverse());
    this.#events.length = Math.min(this.#events.length, KEPT);
    this.#render();
  }

  forget() {
    this.#events = [];
    this.#render();
  }

  #render() {
    const grave = byId("events-filter").checked;
    const wanted = grave ? this.#events.filter((e) => e.severity !== "info") : this.#events;
    const shown = wanted.slice(0, this.#limit);
    mirror(byId("events"), shown, (event) => event.number, eventItem);
    const empty = byId("events-empty");
    show(empty, wanted.length === 0);
    setText(empty, grave ? "No warnings or errors." : "Nothing has happened yet.");
    const more = byId("events-more");
    const rest = wanted.length - shown.length;
    show(more, rest > 0);
    setText(more, `show older ones (${plural(rest, "event")})`);
  }
}

function eventItem(event) {
  const look = SEVERITIES[event.severity] ?? SEVERITIES.info;
  const time = element("time", "event-time", clock(event.at));
  time.dateTime = event.at;
  time.title = `${moment(event.at)}, ${duration(event.at_s)} after the start`;
  const line = [
    time,
    sign(look.tone, look.icon, event.severity || "info"),
    element("span", "event-kind", event.kind),
    element("span", "event-message", event.message),
  ];
  const facts = Object.entries(event.facts ?? {}).sort();
  const item = element("li", "event");
  item.dataset.severity = event.severity;
  if (facts.length === 0) {
    item.append(element("div", "event-line", ...line));
    return item;
  }
  const list = facts.map(([name, value]) =>
    element("div", "fact", element("dt", "", name), element("dd", "", value)),
  );
  item.append(
    element(
      "details",
      "",
      element("summary", "event-line", ...line),
      element("dl", "event-facts", ...list),
    ),
  );
  return item;
}
