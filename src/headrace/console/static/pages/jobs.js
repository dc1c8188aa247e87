import { html, api, count, enc, link, page, patternsOf, plural, seconds, setting, spanOf, time, useState } from "/lib.js";
import { Actions, Plot, Problem, Table, Waiting, useDocument } from "/parts.js";

const COLUMNS = [
  { id: "consumer", title: "Consumer", wrap: true, show: (row) => html`<a href=${link`jobs/${row.channel}/${row.consumer}`}>${row.consumer}</a>` },
  { id: "channel", title: "Channel", wrap: true, show: (row) => html`<a title="Find jobs" href=${link`jobs/${row.channel}`}>${row.channel}</a>` }, { id: "type", title: "Kind" },
  ...["QUEUED", "INFLIGHT", "DELIVERED", "DEAD"].map((state) => ({ id: state, title: state.toLowerCase(), number: true, value: (row) => row.jobs[state], show: (row) => state === "INFLIGHT" && row.jobs[state] ? html`<a title="Jobs that run" href=${`${link`jobs/${row.channel}`}?consumer=${enc(row.consumer)}&state=INFLIGHT`}>${count(row.jobs[state])}</a>` : html`<span class=${state === "DEAD" && row.jobs[state] ? "bad" : ""}>${count(row.jobs[state])}</span>` })),
  { id: "state", title: "State", value: (row) => row.disabled_reason || "", show: (row) => row.disabled_reason ? html`<span class="tag bad">${row.disabled_reason}</span>` : row.paused ? html`<span class="tag warn">paused</span>` : row.left_configuration ? html`<span class="tag warn">not in the configuration any more</span>` : "" },
];
const FEED_STATES = { feeding: "good", backlog: "warn" };
const goesBack = (row) => row.again_sequence !== null ? `goes back to sequence ${count(row.again_sequence)}` : row.again_since !== null ? `goes back to ${time(row.again_since)}` : row.again_until !== null ? `makes jobs again up to sequence ${count(row.again_until)}` : "";
const whyOf = (row) => row.state === "backlog" ? `${count(row.unfinished)} unfinished, of at most ${count(row.unfinished_max)}` : row.problem || "";
const again = (row, reload) => ({ title: "Make again", name: row.feed, text: `Makes jobs of ${row.channel} again of what ${row.stream} still has, from a sequence on or of the last time, for all consumers: finished ones are handed out again.`,
  fields: [{ id: "sequence", title: "From this sequence on", number: true }, { id: "back", title: "Or: what came in the last, such as 90m, 2h or 1d" }],
  run: ({ back, ...said }) => {
    if ((back === undefined) === (said.sequence === undefined)) throw new Error("give a sequence, or how far back, and not both");
    const body = { ...said, ...(back === undefined ? {} : { since: new Date(Date.now() - spanOf(back) * 1000).toISOString() }) };
    return api(`/job-feeds/${enc(row.channel)}/${enc(row.feed)}/again`, { method: "POST", body }).then(() => { reload(); return `${row.feed} goes back`; });
  } });
const feedColumns = (session, reload) => [
  { id: "feed", title: "Feed", wrap: true }, { id: "channel", title: "Channel", wrap: true, show: (row) => html`<a href=${link`jobs/${row.channel}`}>${row.channel}</a>` }, { id: "stream", title: "Stream", wrap: true },
  { id: "sequence", title: "Made up to", number: true, show: (row) => count(row.sequence) }, { id: "lag", title: "Lag", number: true, show: (row) => count(row.lag) },
  { id: "state", title: "State", wrap: true, show: (row) => html`<span class=${`tag ${FEED_STATES[row.state] || "bad"}`}>${row.state}</span> ${whyOf(row)}${goesBack(row) && html`<br /><span class="soft">It ${goesBack(row)}.</span>`}` },
  { id: "actions", title: "Actions", plain: true, value: () => "", show: (row) => html`<${Actions} readOnly=${session.read_only} actions=${[again(row, reload)]} />` },
];
const EVENTS = [{ id: "at", title: "Time", wrap: "when", show: (row) => time(row.at) }, { id: "kind", title: "Event" }, { id: "channel", title: "Channel", wrap: "narrow" }, { id: "consumer", title: "Consumer", wrap: "narrow" }, { id: "detail", title: "Detail", wrap: true }];

export function Jobs({ session }) {
  const [seen, error, reload] = useDocument(session.jobs ? "/jobs" : null);
  const [channel, setChannel] = useState("");
  const [message, setMessage] = useState("");
  const [found, setFound] = useState({});
  if (!session.jobs) return html`<h2>Jobs</h2><p class="note">No job service is shown here. Start the console with its address: headrace console --jobs http://127.0.0.1:8080</p>`;
  if (!seen) return html`<h2>Jobs</h2><${Waiting} error=${error} />`;
  const rows = seen.status.consumers.map((row) => ({ ...row, channel: row.channel, key: `${row.channel}/${row.consumer}` }));
  const search = (event) => {
    event.preventDefault();
    api(`/jobs/${enc(channel)}/find?message=${enc(message)}`).then((document) => setFound({ document }), (problem) => setFound({ problem }));
  };
  return html`<div class="bar"><h2>Jobs</h2><span class="grow"></span><a class="button" href=${page("job-keys")}>API keys</a><a class="button" href=${page("job-audit")}>Audit log</a></div><${Table} name="queues" stack columns=${COLUMNS} rows=${rows} empty="There are no consumers of jobs yet." />
    ${seen.feeds.length > 0 && html`<h3>Feeds</h3><${Table} name="feeds" stack columns=${feedColumns(session, reload)} rows=${seen.feeds.map((row) => ({ ...row, key: `${row.channel}/${row.feed}` }))} sort=${{ id: "lag", down: true }} />`}
    <h3>Find a message</h3>
    <form class="bar" onSubmit=${search}><input aria-label="Channel" placeholder="channel" value=${channel} onInput=${(event) => setChannel(event.target.value)} /><input aria-label="Message id" placeholder="message id" value=${message} onInput=${(event) => setMessage(event.target.value)} /><button>Find</button></form>
    <${Problem} error=${found.problem} />
    ${found.document && html`<div class="panel"><dl><dt>Message</dt><dd>${found.document.ID}</dd><dt>Status</dt><dd>${found.document.Status}</dd><dt>Received</dt><dd>${time(found.document.ReceivedAt)}</dd><dt>Content type</dt><dd>${found.document.ContentType}</dd></dl>
      <pre tabindex="0">${found.document.Payload}</pre>
      <${Table} name="jobs of the message" filter=${false} empty="No jobs." columns=${[{ id: "ListenerName", title: "Consumer" }, { id: "Status", title: "Status" }, { id: "StatusChangedAt", title: "Since", show: (row) => time(row.StatusChangedAt) }]} rows=${found.document.Jobs.map((row) => ({ ...row, key: row.ListenerName }))} /></div>`}
    <h3>Events</h3><${Table} name="events" stack columns=${EVENTS} rows=${seen.events.map((row, index) => ({ ...row, key: index }))} sort=${{ id: "at", down: true }} empty="Nothing has happened." />`;
}

export function Dead({ channel, consumer, session }) {
  const [cursor, setCursor] = useState("");
  const path = `/jobs/${enc(channel)}/${enc(consumer)}`;
  const [seen, error, reload] = useDocument(`${path}/dead${cursor}`);
  if (!seen) return html`<h2>${consumer}</h2><${Waiting} error=${error} />`;
  const columns = [
    { id: "job", title: "Job", show: (row) => html`<a href=${link`jobs/${channel}/${consumer}/job/${row.job}`}>${row.job}</a>` },
    { id: "StatusChangedAt", title: "Dead since", show: (row) => time(row.StatusChangedAt) },
    { id: "RetryAttemptCount", title: "Attempts", number: true }, { id: "LastError", title: "Last error", wrap: true },
    { id: "actions", title: "Actions", plain: true, value: () => "", show: (row) => html`<${Actions} readOnly=${session.read_only} actions=${[requeueOne(path, row.job, reload)]} />` },
  ];
  const actions = [{ title: "Requeue all", name: consumer, text: "Sends all dead jobs of this consumer back, with all their retries.", run: (body) => api(`${path}/requeue`, { method: "POST", body }).then(() => { reload(); }) }];
  return html`<div class="bar"><h2><a href=${page("jobs")}>${channel}</a> / ${consumer}</h2><span class="grow"></span><${Actions} readOnly=${session.read_only} actions=${seen.jobs.length ? actions : []} /></div>
    <h3>Dead letters</h3><${Table} name="dead jobs" stack columns=${columns} rows=${seen.jobs.map((row) => ({ ...row, key: row.job }))} sort=${{ id: "StatusChangedAt", down: true }} empty="No job is dead." />
    <p class="bar">${["previous", "next"].map((name) => seen.pages[name] && html`<button key=${name} onClick=${() => setCursor(`?${name}=${seen.pages[name]}`)}>${name}</button>`)}</p>
    <${Settings} channel=${channel} consumer=${consumer} session=${session} />`;
}

const requeueOne = (path, job, reload) => ({ title: "Requeue", text: `Sends job ${job} back, with all its retries.`, run: () => api(`${path}/job/${enc(job)}/requeue`, { method: "POST", body: {} }).then(() => { reload(); }) });

const ATTEMPTS = [
  { id: "number", title: "Attempt", number: true }, { id: "started_at", title: "Began", show: (row) => time(row.started_at) },
  { id: "duration_seconds", title: "Took", number: true, show: (row) => seconds(row.duration_seconds) }, { id: "kind", title: "Kind" },
  { id: "status", title: "Answer", number: true, show: (row) => row.status || "–" }, { id: "error", title: "Error", wrap: true, show: (row) => row.error || "" },
  { id: "excerpt", title: "What it answered (the beginning)", wrap: true, show: (row) => row.excerpt || "" }];

export function Job({ channel, consumer, job, session }) {
  const path = `/jobs/${enc(channel)}/${enc(consumer)}`;
  const [seen, error, reload] = useDocument(`${path}/job/${enc(job)}`);
  const [message] = useDocument(seen ? `/jobs/${enc(channel)}/find?message=${enc(seen.message)}` : null, { live: false });
  if (!seen) return html`<h2>Job ${job}</h2><${Waiting} error=${error} />`;
  const { attempts, blocked_by, progress, ...rest } = seen;
  const replay = { title: "Replay", text: `Hands job ${job} out again, with all its retries.`, run: () => api(`/jobs/${enc(channel)}/replay`, { method: "POST", body: { consumer, messages: [seen.message] } }).then(() => { reload(); }) };
  const cancel = { title: "Cancel", text: `Cancels job ${job}. If it runs, it is told at its next heartbeat.`, run: () => api(`/jobs/${enc(channel)}/cancel`, { method: "POST", body: { job } }).then(() => { reload(); }) };
  const actions = { DEAD: [requeueOne(path, job, reload)], DELIVERED: [replay], QUEUED: [cancel], INFLIGHT: [cancel] }[seen.state] || [];
  return html`<div class="bar"><h2><a href=${link`jobs/${channel}/${consumer}`}>${consumer}</a> / ${job}</h2><span class="tag">${seen.state}</span><span class="grow"></span><${Actions} readOnly=${session.read_only} actions=${actions} /></div>
    <div class="panel"><dl>${Object.entries(rest).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value === null ? "–" : /_at$/.test(name) ? time(value) : String(value)}</dd>`)}
      ${blocked_by && html`<dt>blocked_by</dt><dd><a href=${link`jobs/${channel}/${consumer}/job/${blocked_by.id}`}>${blocked_by.id}</a> ${blocked_by.state}${blocked_by.last_error ? `: ${blocked_by.last_error}` : ""}</dd>`}
      ${progress && html`<dt>progress</dt><dd><${Progress} told=${progress} /> <span class="soft">${time(progress.at)}</span></dd>`}</dl></div>
    <h3>Attempts</h3><${Table} name="attempts" stack filter=${false} empty="None yet." columns=${ATTEMPTS} rows=${attempts.map((row, index) => ({ ...row, key: index }))} />
    <h3>What is handed out</h3>${message ? html`<p class="soft">${message.ContentType}</p><pre tabindex="0">${message.Payload}</pre>` : html`<p class="soft">The message is read …</p>`}`;
}

/** How far a job is, in the words of its worker. */
export const Progress = ({ told }) => html`<span>${told.done !== null && html`<progress aria-label="How far it is" max="1" value=${told.done}></progress> ${Math.round(told.done * 100)} % `}${told.note}</span>`;

const CALLS = [{ name: "calls", title: "Calls", color: "#2a8fb0" }, { name: "failed", title: "Failed", color: "#c2410c" }];
const TOOK = [{ name: "p50_seconds", title: "Half within", color: "#2a8fb0" }, { name: "p95_seconds", title: "95 % within", color: "#c2410c" }];

/** How the endpoint of a push consumer answered in the last day. */
function Calls({ channel, consumer }) {
  const path = `/job-consumers/${enc(channel)}/${enc(consumer)}/calls`;
  const [seen, error] = useDocument(path);
  if (!seen) return html`<h3>Calls</h3><${Waiting} error=${error} />`;
  const sum = (name) => seen[name].reduce((all, each) => all + each, 0);
  if (sum("calls") === 0) return html`<h3>Calls</h3><p class="note">Nothing was called in the last day.</p>`;
  return html`<h3>Calls</h3><p class="soft">${plural(sum("calls"), "call")} in the last day, ${count(sum("failed"))} failed (${(100 * sum("failed") / sum("calls")).toFixed(1)} %); a point is five minutes.</p>
    <div class="plots"><${Plot} of=${path} columns=${seen} title="Calls and failures" series=${CALLS} /><${Plot} of=${path} columns=${seen} title="How long they took" series=${TOOK} format=${seconds} dots /></div>`;
}

const linesOf = (patterns) => Object.entries(patterns).flatMap(([name, each]) => each.map((pattern) => `${name}=${pattern}`));

/** Which messages of the channel a consumer gets, and what it is told to do. */
function Settings({ channel, consumer, session }) {
  const path = `/job-consumers/${enc(channel)}/${enc(consumer)}`;
  const [seen, error, reload] = useDocument(path);
  if (!seen) return html`<${Waiting} error=${error} />`;
  const { filter, ...others } = seen.settings;
  const headers = linesOf(filter.headers);
  const values = linesOf(filter.payload || {});
  const change = { title: "Change the filter", text: "Messages that come from now on. One of the subjects has to fit, and each header and each value of the payload that is named. Without any, every message.",
    fields: [{ id: "subjects", title: "Subjects, separated by spaces, such as orders.eu.>", list: true, start: filter.subjects.join(" ") }, { id: "headers", title: "Headers, one a line: Name=pattern", long: true, start: headers.join("\n") },
      { id: "payload", title: "Values of the payload, one a line: $.order.id=pattern", long: true, start: values.join("\n") }],
    run: ({ subjects = [], headers: lines = "", payload = "" }) => api(`${path}/filter`, { method: "PUT", body: { subjects, headers: patternsOf(lines.split("\n")), payload: patternsOf(payload.split("\n")) } }).then(() => { reload(); }) };
  const rows = [["Gets", filter.subjects.length || headers.length || values.length ? [...(filter.subjects.length ? [`subject ${filter.subjects.join(" or ")}`] : []), ...headers, ...values].join(", and ") : "every message of the channel"], ["Kind", seen.type], ...(seen.callback_url ? [["Endpoint", seen.callback_url]] : []), ["Retries", seen.max_retries], ...Object.entries(others)];
  return html`${seen.type === "push" && html`<${Calls} channel=${channel} consumer=${consumer} />`}<div class="bar"><h3>Settings</h3><span class="grow"></span>${!session.read_only && html`<${Actions} readOnly=${false} actions=${[change]} />`}</div>
    <div class="panel"><dl>${rows.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${setting(name, value)}</dd>`)}</dl></div>`;
}
