// A job channel that lives in a stream: where each of its consumers is in it, and what it waits for.
import { html, api, count, enc, link, page, plural, spanOf, time } from "/lib.js";
import { Actions, Problem, Table, Waiting, useDocument } from "/parts.js";

const again = (row) => row.replay_sequence !== null ? `from sequence ${count(row.replay_sequence)} on` : `what came since ${time(row.replay_since)}`;
const WAITS = {
  enable: (row) => `somebody to enable it: ${row.disabled_reason}`,
  resume: () => "somebody to resume it",
  broker: (row) => `the broker: ${row.problem}`,
  pusher: () => "a process that pushes: none is there",
  replay: (row) => `its calls to end; then it delivers again, ${again(row)}`,
  endpoint: (row) => `its endpoint: every call has failed since ${time(row.failing_since)}`,
  answers: () => "answers of its endpoint",
  fetch: () => "what is to come, which is about to be fetched",
  messages: () => "new messages",
};
/** What a consumer waits for, in words; that of a later service as it says it. */
const waits = (row) => Object.hasOwn(WAITS, row.waits_for) ? WAITS[row.waits_for](row) : row.waits_for;
const later = (row) => row.waits_for !== "replay" && (row.replay_sequence !== null || row.replay_since !== null);

function State({ row }) {
  if (row.disabled_reason) return html`<span class="tag bad">disabled</span>`;
  if (row.paused) return html`<span class="tag warn">paused</span>`;
  return row.failing_since ? html`<span class="tag warn">failing</span>` : html`<span class="tag good">delivers</span>`;
}

const retries = (row) => row.jobs.QUEUED + row.jobs.INFLIGHT;
const jobsOf = (channel, row, value, state, title) => value ? html`<a class=${state === "DEAD" ? "bad" : ""} title=${title} href=${`${link`jobs/${channel}`}?consumer=${enc(row.consumer)}&state=${state}`}>${count(value)}</a>` : "0";

function actionsOf(channel, row, reload) {
  const post = (verb) => (body) => api(`/job-streams/${enc(channel)}/${enc(row.consumer)}/${verb}`, { method: "POST", body: body || {} }).then(() => { reload(); });
  const replay = { title: "Replay", name: row.consumer, text: `Calls the endpoint of ${row.consumer} again with what the stream still has, from a sequence on or of the last time, when the calls under way have ended. What it has not delivered yet follows.`,
    fields: [{ id: "sequence", title: "From this sequence on", number: true }, { id: "back", title: "Or: what came in the last, such as 90m, 2h or 1d" }],
    run: ({ back, ...said }) => {
      if ((back === undefined) === (said.sequence === undefined)) throw new Error("give a sequence, or how far back, and not both");
      return post("replay")({ ...said, ...(back === undefined ? {} : { since: new Date(Date.now() - spanOf(back) * 1000).toISOString() }) }).then(() => `${row.consumer} delivers again`);
    } };
  const first = row.disabled_reason ? [{ title: "Enable", text: `Calls the endpoint of ${row.consumer} again.`, run: post("enable") }] : [];
  return [...first, row.paused ? { title: "Resume", text: `${row.consumer} goes on where it is.`, run: post("resume") }
    : { title: "Pause", text: `The endpoint of ${row.consumer} is not called until it is resumed. Messages wait in the stream, which has to keep them for as long.`, run: post("pause") }, replay];
}

export function JobStream({ channel, session }) {
  const [seen, error, reload] = useDocument(`/job-streams/${enc(channel)}`);
  const heading = html`<h2><a href=${page("jobs")}>Jobs</a> / <a href=${link`jobs/${channel}`}>${channel}</a> / stream</h2>`;
  if (!seen) return html`${heading}<${Waiting} error=${error} />`;
  if (!seen.stream) return html`${heading}<${Problem} error=${error} /><p class="note">This channel lives in the database, and in no stream. A new channel is made to live in one with: headrace jobs channel NAME --stream STREAM</p>`;
  const { name, subject, filter } = seen.stream;
  const numbered = (value) => seen.here && value ? html`<a title="That message" href=${`${link`streams/${name}/messages`}?from=${value}`}>${count(value)}</a>` : count(value);
  const columns = [
    { id: "consumer", title: "Consumer", wrap: true, show: (row) => html`<a href=${link`jobs/${channel}/${row.consumer}`}>${row.consumer}</a>` },
    { id: "state", title: "State", value: (row) => row.disabled_reason ? "disabled" : row.paused ? "paused" : row.failing_since ? "failing" : "delivers", show: (row) => html`<${State} row=${row} />` },
    { id: "acknowledged", title: "Done up to", number: true, show: (row) => numbered(row.acknowledged) },
    { id: "under_way", title: "Under way", number: true, show: (row) => count(row.under_way) },
    { id: "lag", title: "Lag", number: true, show: (row) => count(row.lag) },
    { id: "waits_for", title: "Waits for", wrap: true, value: waits, show: (row) => html`${waits(row)}${later(row) && html`<br /><span class="soft">It will deliver again, ${again(row)}.</span>`}` },
    { id: "retrying", title: "Retries", number: true, value: retries, show: (row) => jobsOf(channel, row, retries(row), row.jobs.QUEUED ? "QUEUED" : "INFLIGHT", "Messages whose calls failed, to be tried again") },
    { id: "dead", title: "Dead", number: true, value: (row) => row.jobs.DEAD, show: (row) => jobsOf(channel, row, row.jobs.DEAD, "DEAD", "Messages that were given up") },
    { id: "actions", title: "Actions", plain: true, value: () => "", show: (row) => html`<${Actions} readOnly=${session.read_only} actions=${actionsOf(channel, row, reload)} />` },
  ];
  const sequences = seen.last_sequence === null ? "–" : seen.last_sequence < seen.first_sequence ? "empty" : `${count(seen.first_sequence)} – ${count(seen.last_sequence)}`;
  const rows = [["Stream", seen.here ? html`<a href=${link`streams/${name}`}>${name}</a>` : html`${name} <span class="soft">at the job service's broker, which is not the server of this page</span>`],
    ["Its subjects", seen.subjects.join(", ") || "–"], ["Sequences", sequences], ["Published over HTTP to", subject || "the subject that each message names"], ["Consumers get", filter.join(", ") || "all of its subjects"]];
  return html`${heading}<${Problem} error=${error} />
    ${seen.problem && html`<p class="note bad" role="alert">Where the consumers are is not known: ${seen.problem}</p>`}
    <div class="panel"><dl>${rows.map(([title, value]) => html`<dt key=${title}>${title}</dt><dd>${value}</dd>`)}</dl></div>
    <h3>Consumers</h3><p class="soft">What is delivered leaves nothing in the database. A message whose call fails becomes a job: it is tried again, and given up in the end.</p>
    ${seen.left_out > 0 && html`<p class="note">${plural(seen.left_out, "more consumer")} of the channel are not shown; headrace jobs stream ${channel} NAME tells where one is.</p>`}
    <${Table} name="places in the stream" stack columns=${columns} rows=${seen.consumers.map((row) => ({ ...row, key: row.consumer }))} sort=${{ id: "lag", down: true }} empty=${`The channel has no consumers yet. One is made with: headrace jobs consumer ${channel} NAME --callback-url URL`} />`;
}

/** The way from a channel's jobs to its stream, if it lives in one. */
export function ToStream({ channel }) {
  const [seen] = useDocument(`/job-channels/${enc(channel)}`, { live: false });
  return seen && seen.stream && html`<a class="button" href=${link`jobs/${channel}/stream/${seen.stream}`}>Its stream</a>`;
}
