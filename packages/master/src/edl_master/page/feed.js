// What the master says, fetched again and again until the job is over; or what was saved of it.

import { saved } from "./saved.js";

const EVERY_MS = 1000;
const EVERY_MS_UNSEEN = 5000; // while the tab is in the background
const LONGEST_PAUSE_MS = 10_000;
const ANSWER_WITHIN_MS = 5000;
const TIMELINE_EVERY_S = [5, 60]; // at least and at most: its steps become longer with the job
const TIMELINE_WITHIN_MS = 60_000; // after the end it is read from up to 64 MiB
const FAILURES_UNTIL_LOST = 2; // one lost answer is not worth a message
const FULL_BATCH = 50; // a batch of this size may not be the last

const OVER = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);

export const isOver = (status) => OVER.has(status?.state);

/**
 * Follows a job. `on` receives:
 * - `status(status)`: a JobStatus;
 * - `events(events)`: Events not seen before, oldest first; `forget()`: clear the list;
 * - `timeline(times)`: where the time of its workers went;
 * - `live()`: the master answered; `lost({since, reason, retryAt})`: it does not;
 * - `over()`: the job has ended, its last events and times are here; nothing is fetched any more.
 */
export async function follow(on) {
  if (saved !== null) {
    on.status(saved.status);
    on.events(saved.events);
    if (saved.timeline) on.timeline(saved.timeline); // an earlier release saved none
    on.over();
    return;
  }
  let seen = "0";
  let incarnation = null;
  let failures = 0;
  let endSeen = false;
  let answeredAt = new Date();
  let timelineDue = 0; // the status does not wait for it
  let timelineFetched = Promise.resolve();

  async function fetchNews() {
    const status = await fetchJson("api/status");
    // The events of a restarted master are fetched from the first one on.
    const restarted = incarnation !== null && status.incarnation !== incarnation;
    let last = restarted ? "0" : seen;
    const events = [];
    let batch;
    do {
      const answer = await fetchJson(`api/events?after=${encodeURIComponent(last)}`);
      batch = answer.filter((event) => BigInt(event.number) > BigInt(last));
      events.push(...batch);
      last = batch.at(-1)?.number ?? last;
    } while (batch.length >= FULL_BATCH);
    incarnation = status.incarnation;
    seen = last;
    return { status, events, restarted };
  }

  async function fetchTimeline() {
    let [pause, longest] = TIMELINE_EVERY_S;
    timelineDue = Infinity;
    try {
      const times = await fetchJson("api/timeline", TIMELINE_WITHIN_MS);
      on.timeline(times);
      pause = Math.min(longest, Math.max(pause, times.width_s / 4));
    } catch {
      // What was there stays; the status says whether the master can be reached.
    }
    timelineDue = Date.now() + pause * 1000;
  }

  for (;;) {
    let pause = document.hidden ? EVERY_MS_UNSEEN : EVERY_MS;
    let news = null;
    try {
      news = await fetchNews();
    } catch (error) {
      if (endSeen) break; // the end is known; the master may have left by now
      failures += 1;
      pause = Math.min(EVERY_MS * 2 ** (failures - 1), LONGEST_PAUSE_MS);
      if (failures >= FAILURES_UNTIL_LOST) {
        on.lost({ since: answeredAt, reason: error.message, retryAt: Date.now() + pause });
      }
    }
    if (news) {
      failures = 0;
      answeredAt = new Date();
      if (news.restarted) on.forget();
      on.status(news.status);
      if (news.events.length > 0) on.events(news.events);
      on.live();
      const ended = isOver(news.status);
      if (Date.now() >= timelineDue || (ended && !endSeen)) timelineFetched = fetchTimeline();
      // One more round after the end: its last events may have followed the status.
      if (ended) {
        if (endSeen) break;
        endSeen = true;
      }
    }
    await rest(pause);
  }
  await timelineFetched;
  on.over();
}

async function fetchJson(url, withinMs = ANSWER_WITHIN_MS) {
  let answer;
  try {
    answer = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(withinMs) });
  } catch (error) {
    throw new Error(error.name === "TimeoutError" ? "no answer in time" : "no connection");
  }
  if (answer.status === 403) {
    throw new Error("this browser's session is over; edl dashboard prints a new link");
  }
  if (!answer.ok) throw new Error(`the master answered HTTP ${answer.status}`);
  return answer.json().catch(() => {
    throw new Error("the answer is not valid JSON");
  });
}

/** Waits, but not longer than until the reader looks at the tab again or the network is back. */
function rest(pause) {
  return new Promise((done) => {
    const stop = new AbortController();
    const end = () => {
      clearTimeout(timer);
      stop.abort();
      done();
    };
    const timer = setTimeout(end, pause);
    const wake = () => document.hidden || end();
    document.addEventListener("visibilitychange", wake, { signal: stop.signal });
    window.addEventListener("online", end, { signal: stop.signal });
  });
}
