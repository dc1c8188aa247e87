import { html, api, count, enc, link, rate, spanOf, time, useState } from "/lib.js";
import { Edit } from "/editing.js";
import { Actions, Config, Curves, Table, Waiting, useDocument } from "/parts.js";

const state = (row) => html`${row.stuck && html`<span class="tag bad">nobody asks</span>`}${row.paused && html`<span class="tag warn">paused</span>`}${row.push && html`<span class="tag">push</span>`}${row.policy !== "none" && html`<span class="tag">${row.policy}</span>`}${row.pins.some((pin) => pin.client) && html`<span class="tag good">pinned</span>`}`;

export const CONSUMERS = [
  { id: "name", title: "Name", wrap: true, show: (row) => html`<a href=${link`streams/${row.stream}/consumers/${row.name}`}>${row.name}</a>` },
  { id: "pending", title: "Waiting", number: true, show: (row) => count(row.pending) },
  { id: "ack_pending", title: "Unacknowledged", number: true, show: (row) => count(row.ack_pending) },
  { id: "redelivered", title: "Redelivered", number: true, show: (row) => count(row.redelivered) },
  { id: "waiting", title: "Pulls", number: true, show: (row) => count(row.waiting) },
  { id: "acked_per_s", title: "Handled", number: true, show: (row) => rate(row.acked_per_s) },
  { id: "filters", title: "Filter", wrap: true, show: (row) => row.filters.join(", ") },
  { id: "state", title: "State", value: (row) => `${row.stuck ? "nobody asks" : ""}${row.paused ? "paused" : ""}${row.policy}`, wrap: true, show: state },
];
const ALL = [CONSUMERS[0], { id: "stream", title: "Stream", wrap: true, show: (row) => html`<a href=${link`streams/${row.stream}`}>${row.stream}</a>` }, ...CONSUMERS.slice(1)];

/** The action that makes a consumer of a stream. */
export const newConsumer = (stream) => ({ title: "Create a consumer", button: "Create",
  text: "What is not said has its default; everything else is changed later, or given to headrace consumer create.",
  fields: [{ id: "name", title: "Name" }, { id: "filter_subjects", title: "Only these subjects, separated by spaces", list: true },
    { id: "deliver_policy", title: "Begin with", choices: ["all", "new", "last", "last_per_subject"], start: "all" },
    { id: "ack_wait", title: "Deliver again, if not acknowledged within (30s, 5m)", start: "30s" },
    { id: "max_deliver", title: "Most deliveries of a message", number: true }, { id: "max_ack_pending", title: "Most unacknowledged messages", number: true },
    { id: "description", title: "Description" }],
  run: ({ name, ack_wait, ...config }) => api(`/streams/${enc(stream)}/consumers`, { method: "POST", body: { config: { ...config, durable_name: name || "", ack_policy: "explicit", ...(ack_wait ? { ack_wait: spanOf(ack_wait) * 1e9 } : {}) } } })
    .then((made) => { location.hash = link`streams/${stream}/consumers/${made.name}`; return `${made.name} created`; }) });

export function Consumers() {
  const [found, error] = useDocument("/consumers");
  if (!found) return html`<h2>Consumers</h2><${Waiting} error=${error} />`;
  return html`<h2>Consumers</h2>
    ${found.unseen > 0 && html`<p class="note">${count(found.unseen)} more are too many to look at; see their streams.</p>`}
    <${Table} name="consumers" columns=${ALL} rows=${found.consumers.map((row) => ({ ...row, key: `${row.stream}/${row.name}` }))} sort=${{ id: "pending", down: true }} empty="There are no consumers yet. One is made with: headrace consumer create STREAM NAME" />`;
}

export function Consumer({ stream, name, session }) {
  const path = `/streams/${enc(stream)}/consumers/${enc(name)}`;
  const [seen, error, reload] = useDocument(path);
  const [editing, setEditing] = useState(false);
  if (!seen) return html`<h2>${name}</h2><${Waiting} error=${error} />`;
  const { row } = seen;
  const post = (verb) => (body) => api(`${path}/${verb}`, { method: "POST", body }).then(() => { reload(); });
  const actions = [
    row.paused
      ? { title: "Resume", text: "Messages are delivered again.", run: post("resume") }
      : { title: "Pause", text: "Nothing is delivered for that long; it can be resumed earlier.", fields: [{ id: "span", title: "For how long: 30s, 5m, 2h or 1d", start: "5m" }], run: ({ span }) => post("pause")({ seconds: spanOf(span || "") }) },
    ...row.pins.filter((pin) => pin.client).map((pin) => ({ title: `Unpin ${pin.group}`, text: `${pin.client} loses the pin of ${pin.group}; another client that waits is pinned.`, run: () => post("unpin")({ group: pin.group }) })),
    { title: "Reset", danger: true, name, text: "Delivers again from a sequence on; without one, from the last acknowledged message. What is unacknowledged is forgotten.", fields: [{ id: "sequence", title: "Sequence", number: true }], run: post("reset") },
    { title: "Delete", danger: true, name, text: "Deletes the consumer and what it knows; messages stay in the stream.", run: (body) => api(path, { method: "DELETE", body }).then(() => { location.hash = link`streams/${stream}`; }) },
  ];
  return html`<div class="bar"><h2><a href=${link`streams/${stream}`}>${stream}</a> / ${name}</h2><span class="grow"></span>${!session.read_only && html`<button onClick=${() => setEditing(true)}>Edit …</button>`}<${Actions} readOnly=${session.read_only} actions=${actions} /></div>
    ${editing && html`<${Edit} path=${path} name=${name} config=${seen.config} onClose=${() => setEditing(false)} onDone=${reload} />`}
    <p>${state(row)}</p>
    ${row.stuck && html`<p class="note bad">Messages wait, and no client asks for them: is the program that handles them running?</p>`}
    <div class="tiles">${[["Waiting", count(row.pending)], ["Unacknowledged", count(row.ack_pending)], ["Redelivered", count(row.redelivered)], ["Pulls", count(row.waiting)], ["Handled", rate(row.acked_per_s)], ["Delivered up to", count(seen.delivered.stream_seq || 0)], ["Acknowledged up to", count(seen.ack_floor.stream_seq || 0)]]
      .map(([title, value]) => html`<div class="tile" key=${title}><b>${value}</b><span>${title}</span></div>`)}</div>
    <div class="plots"><${Curves} of=${`consumer/${stream}/${name}`} title="Lag" series=${[{ name: "lag", title: "lag", color: "#c27c0e" }, { name: "ack_pending", title: "unacknowledged", color: "#b3261e" }]} />
      <${Curves} of=${`consumer/${stream}/${name}`} title="Handled per second" series=${[{ name: "acked_per_s", title: "handled", color: "#2e9e62" }]} /></div>
    ${row.pins.length > 0 && html`<h3>Priority groups</h3><${Table} name="priority groups" filter=${false} empty="" columns=${[{ id: "group", title: "Group" }, { id: "client", title: "Pinned client", show: (pin) => pin.client || html`<span class="soft">nobody</span>` }, { id: "since", title: "Since", show: (pin) => time(pin.since) }]} rows=${row.pins.map((pin) => ({ ...pin, key: pin.group }))} />`}
    <h3>Configuration</h3><p class="soft">Created ${time(seen.created)}</p><${Config} config=${seen.config} />`;
}
