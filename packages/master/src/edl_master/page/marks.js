// Events that a picture over time marks: what has started, died or begun again.

import { element, mirror, setText } from "./dom.js";

// Each kind of mark has a line of its own in page.css.
const KINDS = {
  WorkerStarted: "started",
  WorkerPreempted: "preempted",
  WorkerExited: "died",
  WorkerLost: "died",
  ParameterServerLost: "server-died",
};
const WORDS = {
  started: ["start of a worker", "starts of workers"],
  preempted: ["preemption", "preemptions"],
  died: ["death of a worker", "deaths of workers"],
  "server-died": ["death of a parameter server", "deaths of parameter servers"],
  restarted: ["restart of the master", "restarts of the master"],
};

/** Chooses the events of a job that are marked. */
export class MarkedEvents {
  #last = 0; // number of the last event
  #begun = false; // whether a master of the job has begun
  #restored = ""; // what the next one says of the snapshot that it goes on from

  /** Takes what happened, oldest first; gives what is marked of it, with the kind as `mark`. */
  add(events) {
    return events.map((event) => this.#marked(event)).filter((event) => event.mark);
  }

  forget() {
    this.#last = 0;
    this.#begun = false;
    this.#restored = "";
  }

  #marked(event) {
    const cut = this.#last === 0 && Number(event.number) > 1; // older ones are not in a saved page
    this.#last = Number(event.number);
    this.#begun ||= cut;
    if (event.kind === "CheckpointRestored") this.#restored = event.message;
    if (event.kind !== "JobStarted") return { ...event, mark: kindOf(event) };
    // Each master says this once, also one that found no snapshot: all but the first are restarts.
    const message = this.#restored || event.message;
    const mark = this.#begun ? "restarted" : undefined;
    this.#begun = true;
    this.#restored = "";
    return { ...event, mark, message };
  }
}

function kindOf(event) {
  const asWanted = event.kind === "WorkerExited" && event.severity === "info";
  return asWanted ? undefined : KINDS[event.kind];
}

/** Places marks, `{number, kind}` each, where `leftOf` says; `parent` is as wide as the picture. */
export function placeMarks(parent, marks, leftOf) {
  mirror(parent, marks, (mark) => mark.number, () => element("i", "mark"), (node, mark) => {
    node.dataset.mark = mark.kind;
    node.style.left = leftOf(mark);
  });
}

/** Says which line stands for what, and how often there is one. */
export function showMarksKey(list, marks) {
  const counts = Object.keys(WORDS)
    .map((kind) => [kind, marks.filter((mark) => mark.kind === kind).length])
    .filter(([, n]) => n > 0);
  mirror(list, counts, ([kind]) => kind, ([kind]) => {
    const sign = element("i", "mark");
    sign.dataset.mark = kind;
    return element("li", "", sign, element("span"));
  }, (node, [kind, n]) => setText(node.lastElementChild, `${n} ${WORDS[kind][n === 1 ? 0 : 1]}`));
}
