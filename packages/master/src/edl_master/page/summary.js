// The head of the page: name, state, verdict, progress and the row of figures.

import { byId, element, fillFacts, icon, setText, show } from "./dom.js";
import {
  count, duration, hour, measure, moment, number, percent, plural, rate, words,
} from "./format.js";
import { isOver } from "./feed.js";

const TYPES = { TRAIN: "training", EVALUATE: "evaluation", PREDICT: "prediction" };

// tone colours, icon and note speak for the state; the word is always written as well.
const STATES = {
  STARTING: { tone: "quiet", icon: "waiting", note: "workers start and load the model" },
  RUNNING: { tone: "active", icon: "running", note: "" },
  FINISHING: { tone: "active", icon: "finishing", note: "the last steps: evaluate, export, join" },
  STOPPING: { tone: "warning", icon: "stopped", note: "workers return their leases" },
  SUCCEEDED: { tone: "good", icon: "good", note: "" },
  FAILED: { tone: "bad", icon: "bad", note: "" },
  CANCELLED: { tone: "warning", icon: "stopped", note: "" },
};
const UNKNOWN_STATE = { tone: "quiet", icon: "waiting", note: "" };

/** Share of the main work that is done, 0..1; NaN while its size is unknown. */
export function shareDone(status) {
  const total = number(status.progress?.records_total);
  return total > 0 ? Math.min(1, number(status.progress.records_done) / total) : NaN;
}

/** Shows name, state and title; the announcement changes only when the state does. */
export function showMasthead(status, reachable) {
  const state = STATES[status.state] ?? UNKNOWN_STATE;
  const word = words(status.state) || "unknown";
  const name = status.name || "unnamed job";
  const share = shareDone(status);
  const done = Number.isFinite(share) ? `${percent(share, 0)} % ` : "";

  setText(byId("job-type"), `edl ${TYPES[status.type] ?? ""} job`.replace("  ", " "));
  setText(byId("job-name"), name);
  const badge = byId("state");
  const shown = reachable ? word : `last known: ${word}`;
  if (badge.dataset.shown !== shown) {
    badge.dataset.shown = shown;
    badge.dataset.state = status.state;
    badge.dataset.tone = reachable ? state.tone : "quiet";
    badge.replaceChildren(icon(state.icon), element("span", "badge-word", shown));
  }
  const condition = reachable ? word : `${word}, not reachable`;
  document.title = `${done}${condition} – ${name}`;
  setText(byId("announcement"), `Job ${name}: ${condition}.`);
}

/** The panel for what a job ended with: an error with its remedy, or where the result is. */
export function showVerdict(status) {
  const panel = byId("verdict");
  const left = Object.values(status.tasks ?? {}).reduce((sum, it) => sum + number(it.dead), 0);
  const signature = JSON.stringify([status.state, status.error, status.output, left]);
  if (panel.dataset.shown === signature) return;
  panel.dataset.shown = signature;
  const error = status.error ?? (status.state === "FAILED" ? {} : null);
  const open = panel.querySelector("details")?.open ?? status.state === "FAILED";
  if (error && (error.what || status.state === "FAILED")) {
    const { tone, icon: picture } = STATES[status.state] ?? STATES.FAILED;
    panel.dataset.tone = tone;
    panel.replaceChildren(...errorParts(error, picture, open));
  } else if (status.state === "SUCCEEDED") {
    panel.dataset.tone = left > 0 ? "warning" : "good";
    panel.replaceChildren(...resultParts(status, left));
  } else {
    panel.replaceChildren();
  }
  show(panel, panel.childElementCount > 0);
}

/** What, where, what to do and the traceback of an Error. */
export function errorParts(error, iconName, open) {
  const what = element("h2", "verdict-what", icon(iconName), error.what || "The job failed.");
  what.id = "verdict-what";
  const parts = [what, errorFacts(error)];
  if (error.detail) parts.push(traceback(error.detail, open));
  return parts;
}

/** Where, remedy and kind of an Error as a `dl`. */
export function errorFacts(error) {
  const rows = [
    ["where", error.where, "mono"],
    ["what to do", error.remedy, "remedy"],
    ["kind", error.code === "ERROR_CODE_UNSPECIFIED" ? "" : words(error.code), ""],
  ].filter(([, value]) => value);
  return element(
    "dl",
    "error-facts",
    ...rows.map(([label, value, kind]) =>
      element("div", "", element("dt", "", label), element("dd", kind, value)),
    ),
  );
}

/** A traceback or log tail that opens and scrolls within itself. */
export function traceback(text, open) {
  const lines = element("pre", "", text);
  lines.tabIndex = 0;
  lines.setAttribute("role", "region");
  lines.setAttribute("aria-label", "traceback or log");
  const details = element("details", "detail", element("summary", "", "traceback or log"), lines);
  details.open = open;
  return details;
}

function resultParts(status, left) {
  const time = duration(status.seconds);
  const said = {
    TRAIN: `The model is trained, after ${time}.`,
    EVALUATE: `The model is evaluated, after ${time}.`,
    PREDICT: `${plural(status.predictions, "prediction")} made, after ${time}.`,
  };
  const sentence = said[status.type] ?? `Done after ${time}.`;
  const but = left > 0 ? ` But ${plural(left, "task")} failed for good; their records are left out.` : "";
  const sign = icon(left > 0 ? "warning" : "good");
  const what = element("h2", "verdict-what", sign, sentence + but);
  what.id = "verdict-what";
  if (!status.output) return [what];
  const noun = status.type === "PREDICT" ? "predictions" : "output";
  const row = element("div", "", element("dt", "", noun), element("dd", "mono", status.output));
  return [what, element("dl", "error-facts", row)];
}

/** What took most of the workers' other time, as "; most lost: starting 4.1 %". */
function mostLost(progress) {
  const losses = Object.entries(progress.lost_s ?? {}).map(([why, s]) => [why, number(s)]);
  const [why, most] = losses.reduce((a, b) => (b[1] > a[1] ? b : a), ["", 0]);
  const all = losses.reduce((sum, [, s]) => sum + s, number(progress.productive_s));
  return most / all >= 0.01 ? `; most lost: ${why} ${percent(most / all)} %` : "";
}

/** Percentage, bar, time left and time taken. */
export function showProgress(status) {
  const progress = status.progress ?? {};
  const share = shareDone(status);
  const known = Number.isFinite(share);
  const percentage = byId("percent");
  if (known) {
    const text = percent(share);
    if (percentage.dataset.shown !== text) {
      percentage.dataset.shown = text;
      percentage.replaceChildren(text, element("span", "unit", " %"));
    }
  } else {
    percentage.dataset.shown = "";
    setText(percentage, "–");
  }

  const bar = byId("bar");
  if (known) bar.setAttribute("aria-valuenow", percent(share));
  else bar.removeAttribute("aria-valuenow");
  bar.dataset.tone = (STATES[status.state] ?? UNKNOWN_STATE).tone;
  byId("bar-fill").style.width = `${known ? share * 100 : 0}%`;
  const epochs = number(progress.num_epochs);
  const divided = status.type === "TRAIN" && epochs > 1 && epochs <= 60;
  show(byId("bar-epochs"), divided);
  if (divided) byId("bar-epochs").style.backgroundSize = `${100 / epochs}% 100%`;

  setText(byId("eta"), timeLeft(status));
  const started = status.started_at ? `, started ${moment(status.started_at)}` : "";
  const verb = isOver(status) ? "took" : "running for";
  setText(byId("elapsed"), `${verb} ${duration(status.seconds)}${started}`);
}

function timeLeft(status) {
  if (isOver(status)) {
    return status.finished_at ? `ended ${moment(status.finished_at)}` : "ended";
  }
  const { note } = STATES[status.state] ?? UNKNOWN_STATE;
  if (note) return note;
  const eta = number(status.progress?.eta_s);
  if (!(eta >= 0)) return "time left not known yet";
  return `about ${duration(Math.round(eta))} left, until ${hour(Date.now() + eta * 1000)}`;
}

/** The last point of the loss curve, so that the page has one number for the loss. */
function latestLoss(status) {
  const curve = (status.curves ?? []).find(({ name }) => name === "loss");
  return curve?.points?.at(-1)?.value ?? status.progress?.loss;
}

/** Records per second now, or of the whole job as the command line has it. */
function throughput(status) {
  const p = status.progress ?? {};
  if (!isOver(status)) return { value: rate(p.records_per_s), note: "at present" };
  const mean = number(p.mean_records_per_s);
  if (mean > 0) return { value: rate(mean), note: "first to last record" };
  return { value: rate(number(p.records_done) / number(status.seconds)), note: "whole job" };
}

/** The row of figures; which ones depends on the type of the job. */
export function showStats(status) {
  const p = status.progress ?? {};
  const training = status.type === "TRAIN";
  const figures = [];
  if (status.type === "PREDICT") {
    figures.push({ label: "predictions", value: count(status.predictions), note: "made" });
  }
  const total = number(p.records_total) > 0 ? `of ${count(p.records_total)}` : "";
  figures.push({ label: "records", value: count(p.records_done ?? 0), note: total });
  if (training) {
    const label = p.is_stream ? "window" : "epoch";
    const last = number(p.num_epochs) > 0 ? `of ${count(p.num_epochs)}` : "";
    figures.push({ label, value: count(p.epoch), note: last });
  }
  figures.push({ label: "records/s", ...throughput(status) });
  if (training) {
    figures.push({ label: "loss", value: measure(latestLoss(status)), note: "latest mean" });
    const version = count(p.parameter_version);
    figures.push({ label: "steps", value: count(p.steps), note: "minibatches applied" });
    figures.push({ label: "parameter version", value: version, note: "updates made" });
  }
  const tables = Object.entries(status.embedding_rows ?? {});
  if (tables.length) {
    const rows = tables.reduce((sum, [, n]) => sum + number(n), 0);
    const note = tables.length === 1 ? `of table ${tables[0][0]}` : `of ${tables.length} tables`;
    figures.push({ label: "embedding rows", value: count(rows), note });
  }
  if (number(p.goodput) > 0) {
    const share = `${percent(number(p.goodput))} %`;
    figures.push({ label: "goodput", value: share, note: `productive time${mostLost(p)}` });
  }
  fillFacts(byId("stats"), figures);
}
