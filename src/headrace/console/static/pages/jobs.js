import { html, api, count, enc, link, time, useState } from "/lib.js";
import { Actions, Problem, Table, Waiting, useDocument } from "/parts.js";

const COLUMNS = [
  { id: "consumer", title: "Consumer", show: (row) => html`<a href=${link`jobs/${row.channel}/${row.consumer}`}>${row.consumer}</a>` },
  { id: "channel", title: "Channel", show: (row) => html`<a title="Find jobs" href=${link`jobs/${row.channel}`}>${row.channel}</a>` }, { id: "type", title: "Kind" },
  ...["QUEUED", "INFLIGHT", "DELIVERED", "DEAD"].map((state) => ({ id: state, title: state.toLowerCase(), number: true, value: (row) => row.jobs[state], show: (row) => html`<span class=${state === "DEAD" && row.jobs[state] ? "bad" : ""}>${count(row.jobs[state])}</span>` })),
  { id: "state", title: "State", value: (row) => row.disabled_reason || "", show: (row) => row.disabled_reason ? html`<span class="tag bad">${row.disabled_reason}</span>` : row.paused ? html`<span class="tag warn">paused</span>` : row.left_configuration ? html`<span class="tag warn">not in the configuration any more</span>` : "" },
];
const EVENTS = [{ id: "at", title: "Time", show: (row) => time(row.at) }, { id: "kind", title: "Event" }, { id: "channel", title: "Channel" }, { id: "consumer", title: "Consumer" }, { id: "detail", title: "Detail", wrap: true }];

export function Jobs({ session }) {
  const [seen, error] = useDocument(session.jobs ? "/jobs" : null);
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
  return html`<h2>Jobs</h2><${Table} name="queues" columns=${COLUMNS} rows=${rows} empty="There are no consumers of jobs yet." />
    <h3>Find a message</h3>
    <form class="bar" onSubmit=${search}><input aria-label="Channel" placeholder="channel" value=${channel} onInput=${(event) => setChannel(event.target.value)} /><input aria-label="Message id" placeholder="message id" value=${message} onInput=${(event) => setMessage(event.target.value)} /><button>Find</button></form>
    <${Problem} error=${found.problem} />
    ${found.document && html`<div class="panel"><dl><dt>Message</dt><dd>${found.document.ID}</dd><dt>Status</dt><dd>${found.document.Status}</dd><dt>Received</dt><dd>${time(found.document.ReceivedAt)}</dd><dt>Content type</dt><dd>${found.document.ContentType}</dd></dl>
      <pre tabindex="0">${found.document.Payload}</pre>
      <${Table} name="jobs of the message" filter=${false} empty="No jobs." columns=${[{ id: "ListenerName", title: "Consumer" }, { id: "Status", title: "Status" }, { id: "StatusChangedAt", title: "Since", show: (row) => time(row.StatusChangedAt) }]} rows=${found.document.Jobs.map((row) => ({ ...row, key: row.ListenerName }))} /></div>`}
    <h3>Events</h3><${Table} name="events" columns=${EVENTS} rows=${seen.events.map((row, index) => ({ ...row, key: index }))} sort=${{ id: "at", down: true }} empty="Nothing has happened." />`;
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
  return html`<div class="bar"><h2><a href="#/jobs">${channel}</a> / ${consumer}</h2><span class="grow"></span><${Actions} readOnly=${session.read_only} actions=${seen.jobs.length ? actions : []} /></div>
    <h3>Dead letters</h3><${Table} name="dead jobs" columns=${columns} rows=${seen.jobs.map((row) => ({ ...row, key: row.job }))} sort=${{ id: "StatusChangedAt", down: true }} empty="No job is dead." />
    <p class="bar">${["previous", "next"].map((name) => seen.pages[name] && html`<button key=${name} onClick=${() => setCursor(`?${name}=${seen.pages[name]}`)}>${name}</button>`)}</p>`;
}

const requeueOne = (path, job, reload) => ({ title: "Requeue", text: `Sends job ${job} back, with all its retries.`, run: () => api(`${path}/job/${enc(job)}/requeue`, { method: "POST", body: {} }).then(() => { reload(); }) });

export function Job({ channel, consumer, job, session }) {
  const path = `/jobs/${enc(channel)}/${enc(consumer)}`;
  const [seen, error, reload] = useDocument(`${path}/job/${enc(job)}`);
  if (!seen) return html`<h2>Job ${job}</h2><${Waiting} error=${error} />`;
  const { attempts, ...rest } = seen;
  return html`<div class="bar"><h2><a href=${link`jobs/${channel}/${consumer}`}>${consumer}</a> / ${job}</h2><span class="tag">${seen.state}</span><span class="grow"></span>${seen.state === "DEAD" && html`<${Actions} readOnly=${session.read_only} actions=${[requeueOne(path, job, reload)]} />`}</div>
    <div class="panel"><dl>${Object.entries(rest).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value === null ? "–" : String(value)}</dd>`)}</dl></div>
    <h3>Attempts</h3><${Table} name="attempts" filter=${false} empty="None yet." columns=${attempts.length ? Object.keys(attempts[0]).map((id) => ({ id, title: id.replaceAll("_", " "), wrap: true, show: (row) => row[id] === null ? "–" : String(row[id]) })) : [{ id: "at", title: "at" }]} rows=${attempts.map((row, index) => ({ ...row, key: index }))} />`;
}
