// The page of all jobs: fetched every two seconds. What it shows are texts of strangers (names of
// jobs), which only ever become text nodes.

const EVERY_MS = 2000;
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);
const body = byId("jobs").tBodies[0];
const columns = [...byId("jobs").tHead.rows[0].cells].map((cell) => cell.textContent);
let jobs = [];

function show() {
  const running = jobs.filter((job) => !job.over && !job.error);
  const wanted = byId("running").checked ? running : jobs;
  const rate = running.reduce((sum, job) => sum + job.records_per_s, 0);
  const failed = jobs.filter((job) => ["FAILED", "LOST"].includes(job.state)).length;
  const unreadable = jobs.filter((job) => job.error).length;
  const parts = [`${jobs.length} in all`, `${running.length} not over`, `${failed} failed`];
  if (unreadable > 0) parts.push(`${unreadable} unreadable`);
  if (rate > 0) parts.push(`${number(rate)} records/s`);
  setText(byId("summary"), parts.join(" · "));
  byId("jobs").hidden = wanted.length === 0;
  byId("none").hidden = jobs.length > 0;
  const rows = new Map([...body.rows].map((row) => [row.dataset.job, row]));
  wanted.forEach((job, index) => {
    const row = rows.get(job.job) ?? newRow(job);
    rows.delete(job.job);
    fill(row, job);
    if (body.rows[index] !== row) body.insertBefore(row, body.rows[index] ?? null);
  });
  for (const row of rows.values()) row.remove();
}

function newRow(job) {
  const row = document.createElement("tr");
  row.dataset.job = job.job;
  columns.forEach((column, index) => {
    const cell = document.createElement(index === 0 ? "th" : "td");
    if (index === 0) cell.scope = "row";
    cell.dataset.column = column;
    row.append(cell);
  });
  const link = document.createElement("a");
  link.target = "_blank";
  link.textContent = job.job;
  const verb = document.createElement("span");
  verb.className = "verb";
  const error = document.createElement("span");
  error.className = "error";
  row.cells[0].append(link, verb, error);
  const done = document.createElement("progress");
  row.cells[2].append(document.createElement("span"), done);
  done.setAttribute("aria-hidden", "true"); // the percentage says it
  const line = document.createElementNS(SVG, "svg");
  line.setAttribute("viewBox", "0 0 100 28");
  line.setAttribute("preserveAspectRatio", "none");
  line.setAttribute("role", "img");
  line.append(document.createElementNS(SVG, "polyline"));
  row.cells[5].append(line);
  return row;
}

function fill(row, job) {
  const [name, state, done, left, rate, line, loss, workers, deaths, time] = row.cells;
  const [link, verb, error] = name.children;
  if (job.error) link.removeAttribute("href"); // an unreadable job has no page
  else if (!link.hasAttribute("href")) link.href = `job/${encodeURIComponent(job.job)}`;
  setText(verb, job.verb);
  setText(error, job.error ? [job.error.what, job.error.where, job.error.remedy].filter(Boolean).join("\n") : "");
  setText(state, job.state.toLowerCase().replace("_", " "));
  state.dataset.state = job.state;
  setText(done.firstElementChild, job.done === null ? "–" : `${Math.floor(job.done * 100)} %`);
  done.lastElementChild.value = job.done ?? 0;
  setText(left, job.eta_s === null ? "–" : duration(job.eta_s));
  const idle = job.over || job.error;
  setText(rate, idle ? "–" : number(job.records_per_s));
  draw(line.firstElementChild, job.rates);
  setText(loss, job.loss === null ? "–" : job.loss.toPrecision(4));
  setText(workers, idle ? "–" : String(job.workers));
  setText(deaths, job.error ? "–" : String(job.restarts));
  setText(time, job.seconds > 0 ? duration(job.seconds) : "–");
  time.title = job.started_at ? `started ${new Date(job.started_at).toLocaleString()}` : "";
}

/** A line from 0 to the highest rate; the newest one is at the right. */
function draw(picture, rates) {
  const highest = Math.max(...rates, 1e-9);
  const step = 100 / Math.max(1, rates.length - 1);
  const points = rates.map((rate, n) => `${(n * step).toFixed(1)},${(26 - (rate / highest) * 24).toFixed(1)}`);
  picture.firstElementChild.setAttribute("points", points.length > 1 ? points.join(" ") : "");
  const said = points.length > 1 ? `records per second: ${number(rates[0])} to ${number(rates.at(-1))}` : "no rates";
  picture.setAttribute("aria-label", said);
}

const number = (value) => value.toLocaleString("en", { maximumFractionDigits: value >= 100 ? 0 : 1 });

function duration(seconds) {
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  const minutes = Math.round(s / 60);
  return minutes < 1440
    ? `${Math.floor(minutes / 60)} h ${minutes % 60} min`
    : `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** What is shown is no longer true, and why. */
function showLost(why) {
  document.body.classList.add("is-lost");
  setText(byId("link"), why);
}

async function follow() {
  for (;;) {
    try {
      const answer = await fetch("api/jobs", { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) {
        showLost(await answer.text());
        continue;
      }
      jobs = await answer.json();
      document.body.classList.remove("is-lost");
      setText(byId("link"), `as of ${new Date().toLocaleTimeString()}`);
      show();
    } catch {
      showLost("edl dashboard --all has ended, or does not answer");
    } finally {
      await new Promise((done) => setTimeout(done, EVERY_MS));
    }
  }
}

byId("running").addEventListener("change", show);
follow();
