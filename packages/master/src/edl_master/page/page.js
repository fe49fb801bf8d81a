// The status page of one job: brings the feed and the parts of the page together.

import { CurvePanel } from "./curves.js";
import { byId, setText, show } from "./dom.js";
import { EventList } from "./events.js";
import { follow, isOver } from "./feed.js";
import { clock, duration, moment, words } from "./format.js";
import { MarkedEvents } from "./marks.js";
import { saved } from "./saved.js";
import { showMasthead, showProgress, showStats, showVerdict } from "./summary.js";
import { showDeadLetters, showJob, showLedger, showSettings, showTasks, showWorkers } from "./tables.js";
import { offerColours } from "./theme.js";
import { TimelinePanel } from "./timeline.js";

const events = new EventList();
const marks = new MarkedEvents();
const curves = new CurvePanel();
const timeline = new TimelinePanel();
let status = null;
let lost = null;

function showStatus() {
  showMasthead(status, lost === null);
  showVerdict(status);
  showProgress(status);
  showStats(status);
  curves.show(status);
  showWorkers(status);
  showTasks(status);
  showLedger(status);
  showJob(status);
  showSettings(status);
  showDeadLetters(status);
  show(byId("main"), true);
}

function showLink(text, kind) {
  setText(byId("link"), text);
  byId("link").dataset.kind = kind;
}

function showLost() {
  document.body.classList.toggle("is-lost", lost !== null);
  show(byId("lost"), lost !== null);
  if (lost === null) return;
  const said =
    status === null
      ? `The master cannot be reached (${lost.reason}).`
      : `The master has not been reachable since ${moment(lost.since)} (${lost.reason}). ` +
        "What you see is the last known state.";
  setText(byId("lost-text"), said);
  const wait = Math.max(0, Math.ceil((lost.retryAt - Date.now()) / 1000));
  setText(byId("lost-next"), wait > 0 ? `Next try in ${wait} s.` : "Trying again …");
}

offerColours(() => curves.recolour());
show(byId("sources"), saved === null);
setInterval(() => lost && showLost(), 1000);

follow({
  status(news) {
    lost = null;
    status = news;
    showStatus();
  },
  events(news) {
    const marked = marks.add(news);
    events.add(news);
    curves.add(marked);
    timeline.add(news, marked);
  },
  forget() {
    marks.forget();
    events.forget();
    curves.forget();
    timeline.forget();
  },
  timeline(times) {
    timeline.show(times);
  },
  live() {
    showLost();
    showLink(`live, as of ${clock(new Date())}`, "live");
  },
  lost(news) {
    lost = news;
    showLost();
    showLink(status === null ? "no answer" : `last answer ${clock(news.since)}`, "lost");
    if (status !== null) showMasthead(status, false);
  },
  over() {
    showLost();
    const final = `final: the job is over (${words(status.state)})`;
    showLink(isOver(status) ? final : `state after ${duration(status.seconds)}`, "over");
  },
});
