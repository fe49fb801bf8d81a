// Workers, tasks, the ledger's figures, facts about the job, dead letters.

import { byId, element, fillFacts, icon, mirror, setText, show } from "./dom.js";
import { count, duration, moment, number, plural, rate, words } from "./format.js";
import { errorFacts, traceback } from "./summary.js";

const WORKERS_AT_FIRST = 24;
const LATE_S = 3; // a heartbeat is due every second, and a worker lost after five

const WORKER_STATES = {
  starting: { tone: "quiet", icon: "waiting" },
  loading: { tone: "quiet", icon: "waiting" },
  ready: { tone: "quiet", icon: "info" },
  working: { tone: "active", icon: "running" },
  leaving: { tone: "warning", icon: "away" },
  lost: { tone: "bad", icon: "bad" },
  gone: { tone: "quiet", icon: "away" },
};

// Where a speed means something.
const AT_WORK = new Set(["ready", "working", "leaving"]);

const WORKER_COLUMNS = [
  "worker", "state", "task", "records/s", "steps", "restarts", "heartbeat", "last exit",
];
const WORKER_NUMBERS = new Set(["records/s", "steps", "restarts", "heartbeat"]);

const TASK_ORDER = ["training", "evaluation", "evaluation_summary", "callbacks", "prediction", "export"];

let allWorkers = false;

export function showWorkers(status) {
  const workers = [...(status.workers ?? [])].sort(
    (a, b) => (a.state === "gone") - (b.state === "gone") || a.id - b.id,
  );
  const shown = allWorkers ? workers : workers.slice(0, WORKERS_AT_FIRST);
  const fastest = Math.max(0, ...workers.map((w) => number(w.records_per_s) || 0));
  // A step is a minibatch that was applied; other jobs than training apply none.
  const work = status.type === "TRAIN" ? "steps" : "records";
  setText(byId("workers-work"), work);
  mirror(
    byId("workers").tBodies[0],
    shown,
    (worker) => worker.id,
    () => row(WORKER_COLUMNS, WORKER_NUMBERS),
    (node, worker) => fillWorker(node, worker, fastest, work),
  );
  show(byId("workers"), workers.length > 0);
  setText(byId("workers-note"), workersNote(workers, status.workers_wanted));
  const more = byId("workers-more");
  show(more, shown.length < workers.length);
  setText(more, `show all ${plural(workers.length, "worker")}`);
  more.onclick = () => {
    allWorkers = true;
    showWorkers(status);
  };
}

function fillWorker(node, worker, fastest, work) {
  const [id, state, task, speed, amount, restarts, heartbeat, exit] = node.children;
  const word = worker.state || "unknown";
  const look = WORKER_STATES[word] ?? { tone: "quiet", icon: "info" };
  node.dataset.state = word;
  setText(id, String(worker.id));
  const gpu = worker.gpu ? `, GPU ${worker.gpu}` : "";
  id.title = worker.host ? `${worker.host}, process ${worker.pid}${gpu}` : "";
  if (state.dataset.word !== word) {
    state.dataset.word = word;
    state.replaceChildren(sign(look.tone, look.icon, word));
  }
  const waits = worker.pending ? `waits: ${worker.pending.split(":")[0]}` : "";
  setText(task, worker.task || waits || "–");
  task.title = worker.pending || "";
  const share = fastest > 0 ? (number(worker.records_per_s) || 0) / fastest : 0;
  if (!speed.firstElementChild) {
    speed.append(element("span", ""), element("span", "speed", element("i", "")));
    speed.lastElementChild.setAttribute("aria-hidden", "true");
  }
  setText(speed.firstElementChild, AT_WORK.has(word) ? rate(worker.records_per_s) : "–");
  show(speed.lastElementChild, AT_WORK.has(word));
  speed.lastElementChild.firstElementChild.style.width = `${(share * 100).toFixed(1)}%`;
  amount.dataset.column = work;
  setText(amount, count(worker[work]));
  setText(restarts, count(worker.restarts));
  restarts.dataset.tone = number(worker.restarts) > 0 ? "warning" : "";
  const alive = !["starting", "gone", "lost"].includes(word);
  const late = alive && number(worker.heartbeat_age_s) > LATE_S;
  setText(heartbeat, word === "gone" || word === "starting" ? "–" : ago(worker, late));
  heartbeat.dataset.tone = late ? "warning" : "";
  setText(exit, worker.last_exit || "–");
}

function ago(worker, late) {
  const age = duration(worker.heartbeat_age_s);
  return late ? `late: ${age} ago` : `${age} ago`;
}

function workersNote(workers, wanted) {
  if (workers.length === 0) return "no worker has started yet";
  const counts = new Map();
  for (const { state } of workers) counts.set(state, (counts.get(state) ?? 0) + 1);
  const parts = [...counts].map(([state, n]) => `${n} ${state || "unknown"}`);
  if (wanted?.max > 0) {
    const { min, max } = wanted;
    parts.push(min === max ? `${max} wanted` : `${min} to ${max} wanted`);
  }
  return parts.join(" · ");
}

const MAX_LETTERS = 100; // as many are shown; edl status -o json has more
const TASK_COLUMNS = ["type", "pending", "leased", "done", "retried", "dead"];
const TASK_NUMBERS = new Set(TASK_COLUMNS.slice(1));

export function showTasks(status) {
  const types = Object.entries(status.tasks ?? {})
    .map(([type, counts]) => ({ type, key: type.toLowerCase(), counts }))
    .sort((a, b) => place(a.key) - place(b.key) || a.key.localeCompare(b.key));
  mirror(
    byId("tasks").tBodies[0],
    types,
    (item) => item.type,
    () => row(TASK_COLUMNS, TASK_NUMBERS),
    fillTask,
  );
  show(byId("tasks"), types.length > 0);
  setText(byId("tasks-note"), types.length > 0 ? "" : "none yet: the data is being counted");
}

const place = (key) => (TASK_ORDER.includes(key) ? TASK_ORDER.indexOf(key) : TASK_ORDER.length);

function fillTask(node, { type, counts }) {
  const [name, ...cells] = node.children;
  if (!name.firstElementChild) {
    const parts = ["done", "leased", "pending", "dead"].map((part) => element("i", part));
    name.append(element("span", ""), element("span", "shares", ...parts));
    name.lastElementChild.setAttribute("aria-hidden", "true");
  }
  setText(name.firstElementChild, words(type));
  for (const part of name.lastElementChild.children) {
    part.style.flexGrow = number(counts[part.className]) || 0;
  }
  for (const cell of cells) setText(cell, count(counts[cell.dataset.column] ?? 0));
  cells[3].dataset.tone = number(counts.retried) > 0 ? "warning" : "";
  cells[4].dataset.tone = number(counts.dead) > 0 ? "bad" : "";
}

/** What the master's ledger knows: each record once, and what it cost to keep it so. */
export function showLedger(status) {
  const training = status.type === "TRAIN";
  const failures = number(status.worker_failures) || 0;
  const rejected = number(status.gradients_rejected) || 0;
  const staleness = number(status.staleness_mean);
  const facts = [];
  if (training) {
    facts.push({ label: "records trained", value: count(status.records_trained ?? 0) });
    facts.push({ label: "records computed again", value: count(status.records_replayed ?? 0) });
  } else {
    const p = status.progress ?? {};
    facts.push({ label: "records done", value: count(p.records_done ?? 0) });
  }
  if (status.type !== "PREDICT" && (status.examples ?? 0) !== (status.examples_of ?? 0)) {
    facts.push({
      label: "examples",
      value: count(status.examples ?? 0),
      note: `of ${count(status.examples_of ?? 0)} records`,
    });
  }
  facts.push({ label: "preemptions", value: count(status.preemptions ?? 0) });
  const tone = failures > 0 ? "warning" : "";
  facts.push({ label: "worker failures", value: count(failures), tone });
  if (training) {
    facts.push({ label: "gradients rejected", value: count(rejected) });
    facts.push({
      label: "mean staleness",
      value: rate(staleness),
      note: "updates",
    });
  }
  const servers = status.servers ?? [];
  if (servers.length > 0) {
    const serving = servers.filter((server) => server.state === "serving").length;
    const restarts = Math.max(...servers.map((server) => number(server.restarts) || 0));
    const waits = servers.find((server) => server.pending)?.pending.split(":")[0];
    const waiting = waits ? `, waits: ${waits}` : "";
    facts.push({
      label: "parameter servers",
      value: count(servers.length),
      note: `${serving} serving, restarted ${plural(restarts, "time")}${waiting}`,
      tone: restarts > 0 ? "warning" : "",
    });
  }
  fillFacts(byId("ledger"), facts);
  setText(byId("ledger-note"), ledgerNote(status));
}

function ledgerNote(status) {
  const p = status.progress ?? {};
  const training = status.type === "TRAIN";
  if (status.state === "SUCCEEDED" && (status.dead_letters ?? []).length === 0) {
    const made = training ? status.records_trained : p.records_done;
    if (made !== p.records_total) return `${count(made)} of ${count(p.records_total)} records.`;
    const epochs = plural(p.num_epochs || 1, "epoch");
    if (p.is_stream) return `Every record that arrived was trained exactly once: ${count(made)}.`;
    return training
      ? `Every record was trained exactly once in each of ${epochs}: ${count(made)} in all.`
      : `All ${count(made)} records are done, each exactly once.`;
  }
  return training
    ? "A record counts when its gradient is applied, once per epoch; " +
        "a gradient that is computed again after a loss is not applied again."
    : "A record counts when its task is done; a task that is repeated counts once.";
}

export function showJob(status) {
  const facts = [
    { label: "started", value: moment(status.started_at) },
    { label: "ended", value: status.finished_at ? moment(status.finished_at) : "" },
    { label: "output", value: status.output },
    { label: "master", value: status.incarnation },
  ].filter((fact) => fact.value);
  fillFacts(byId("job"), facts);
}

/** What the job was asked for, and what it runs with; an earlier release says neither. */
export function showSettings(status) {
  const parts = ["settings", "worker-environment", "environment"].map((part) => {
    const facts = Object.entries(status[part.replace("-", "_")] ?? {})
      .map(([label, value]) => ({ label, value }))
      .sort((a, b) => a.label.localeCompare(b.label));
    fillFacts(byId(part), facts);
    show(byId(`${part}-part`), facts.length > 0);
    return facts.length > 0;
  });
  show(byId("setup"), parts.includes(true));
}

export function showDeadLetters(status) {
  const letters = (status.dead_letters ?? []).slice(0, MAX_LETTERS);
  show(byId("dead"), letters.length > 0);
  mirror(byId("dead-letters"), letters, (letter) => `${letter.task}|${letter.records}`, letterItem);
}

function letterItem(letter) {
  const error = letter.error ?? {};
  const head = element(
    "p",
    "letter-head",
    sign("bad", "bad", letter.task),
    element("span", "mono", letter.records),
  );
  const trained = number(letter.records_trained);
  if (trained > 0) head.append(element("span", "", `${count(trained)} of them in the model`));
  const item = element("li", "letter", head, element("p", "letter-what", error.what || ""));
  item.append(errorFacts(error));
  if (error.detail) item.append(traceback(error.detail, false));
  return item;
}

/** An icon and a word in one tone. */
export function sign(tone, iconName, text) {
  const node = element("span", "sign", icon(iconName), element("span", "", text));
  node.dataset.tone = tone;
  return node;
}

/** A table row whose cells know their column's name, for the stacked form on small screens. */
function row(columns, numbers) {
  const node = element("tr", "");
  node.setAttribute("role", "row");
  columns.forEach((column, index) => {
    const cell = element(index === 0 ? "th" : "td", numbers.has(column) ? "number" : "");
    cell.setAttribute("role", index === 0 ? "rowheader" : "cell");
    if (index === 0) cell.scope = "row";
    cell.dataset.column = column;
    node.append(cell);
  });
  return node;
}
