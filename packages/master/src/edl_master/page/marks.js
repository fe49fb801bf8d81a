// Events that a picture over time marks: what has started, died or begun again.

import { element, mirror, setText } from "./dom.js";

// Each kind of mark has a line of its own in page.css.
const KINDS = {
  WorkerStarted: "started",
  WorkerPreempted: "preempted",
  WorkerExited: "died",
  WorkerLost: "died",
  ParameterServerLost: "restarted",
  MasterSuspended: "restarted",
  CheckpointRestored: "restarted",
};
const WORDS = {
  started: ["start of a worker", "starts of workers"],
  preempted: ["preemption", "preemptions"],
  died: ["death of a worker", "deaths of workers"],
  restarted: ["restart of the master", "restarts of the master"],
};

/** The kind of mark that an event is, or undefined. */
export function markKind(event) {
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
