import { html, api, ago, bytes, count, enc, link, plural, page, rate, time, useState } from "/lib.js";
import { useAddress } from "/address.js";
import { Edit } from "/editing.js";
import { Actions, Config, Curves, Part, Table, Waiting, useDocument } from "/parts.js";
import { CONSUMERS, newConsumer } from "/pages/consumers.js";

const COLUMNS = [
  { id: "name", title: "Name", wrap: true, show: (row) => html`<a href=${link`streams/${row.name}`}>${row.name}</a>` },
  { id: "kind", title: "Kind" },
  { id: "messages", title: "Messages", number: true, show: (row) => count(row.messages) },
  { id: "bytes", title: "Size", number: true, show: (row) => bytes(row.bytes) },
  { id: "in_per_s", title: "In", number: true, show: (row) => rate(row.in_per_s) },
  { id: "consumers", title: "Consumers", number: true },
  { id: "last_time", title: "Last message", show: (row) => ago(row.last_time) },
  { id: "retention", title: "Retention" },
  { id: "subjects", title: "Subjects", wrap: true, show: (row) => row.subjects.join(", ") },
];

const NEW = { title: "Create a stream", button: "Create",
  text: "What is not said has its default; everything else is changed later, or given to headrace stream create.",
  fields: [{ id: "name", title: "Name" }, { id: "subjects", title: "Subjects, separated by spaces", list: true },
    { id: "storage", title: "Storage", choices: ["file", "memory"], start: "file" },
    { id: "retention", title: "Messages stay until", choices: ["limits", "workqueue", "interest"], start: "limits" },
    { id: "allow_direct", title: "Direct get: many messages read at once", choices: ["no", "yes"], start: "no" }, { id: "max_msgs", title: "Most messages it may hold", number: true }, { id: "max_bytes", title: "Most bytes it may hold", number: true }],
  run: ({ allow_direct, ...config }) => api("/streams", { method: "POST", body: { config: { ...config, allow_direct: allow_direct === "yes" } } }).then((made) => { location.hash = link`streams/${made.name}`; return `${made.name} created`; }) };

export function Streams({ session }) {
  const [found, error] = useDocument("/streams");
  const [buckets, setBuckets] = useAddress("buckets");
  if (!found) return html`<h2>Streams</h2><${Waiting} error=${error} />`;
  const rows = found.streams.filter((row) => buckets || (row.kind !== "bucket" && row.kind !== "objects"));
  return html`<h2>Streams</h2>
    <div class="bar"><label><input type="checkbox" checked=${buckets} onChange=${(event) => setBuckets(event.target.checked ? "1" : "")} /> streams of buckets, too</label><span class="grow"></span><${Actions} readOnly=${session.read_only} actions=${[NEW]} /></div>
    <${Table} name="streams" columns=${COLUMNS} rows=${rows} empty="There are no streams yet. One is made with: headrace stream create NAME --subjects 'name.>'" />`;
}

export function Stream({ name, session }) {
  const path = `/streams/${enc(name)}`;
  const [seen, error, reload] = useDocument(path);
  const [editing, setEditing] = useState(false);
  if (!seen) return html`<h2>${name}</h2><${Waiting} error=${error} />`;
  const { row } = seen;
  const actions = [
    { title: "Purge", danger: true, name, text: "Removes messages for good. Without a field filled in: all of them.",
      fields: [{ id: "subject", title: "Only this subject or pattern" }, { id: "below", title: "Only below this sequence", number: true }, { id: "keep", title: "Keep this many of the newest", number: true }],
      run: (body) => api(`${path}/purge`, { method: "POST", body }).then((done) => { reload(); return `${plural(done.purged, "message")} removed`; }) },
    { title: "Delete", danger: true, name, text: "Deletes the stream with its messages and consumers, for good.",
      run: (body) => api(path, { method: "DELETE", body }).then(() => { location.hash = page("streams"); return `${name} deleted`; }) },
  ];
  return html`<div class="bar"><h2>${name}</h2><span class="grow"></span>
      <a href=${link`streams/${name}/messages`}><button class="primary">Messages</button></a><a class="button" href=${link`streams/${name}/dead`}>Dead letters</a>${!session.read_only && html`<button onClick=${() => setEditing(true)}>Edit …</button>`}<${Actions} readOnly=${session.read_only} actions=${actions} /></div>
    ${editing && html`<${Edit} path=${path} name=${name} config=${seen.config} onClose=${() => setEditing(false)} onDone=${reload} />`}
    ${row.lost && html`<p class="note bad" role="alert">Messages of this stream were lost to damage: ${JSON.stringify(seen.lost)}</p>`}
    <div class="tiles">${[["Messages", count(row.messages)], ["Size", bytes(row.bytes)], ["In", rate(row.in_per_s)], ["Subjects", count(row.subject_count)], ["Sequences", `${count(row.first_seq)} – ${count(row.last_seq)}`], ["Deleted within", count(row.deleted)], ["Last message", ago(row.last_time)]]
      .map(([title, value]) => html`<div class="tile" key=${title}><b>${value}</b><span>${title}</span></div>`)}</div>
    <div class="plots">
      <${Curves} of=${`stream/${name}`} title="In per second" series=${[{ name: "in_per_s", title: "in", color: "#0b8fb3" }]} />
      <${Curves} of=${`stream/${name}`} title="Stored bytes" format=${bytes} series=${[{ name: "bytes", title: "bytes", color: "#6b5bd2" }]} />
    </div>
    <div class="bar"><h3>Consumers</h3><span class="grow"></span>${!session.read_only && html`<${Actions} readOnly=${false} actions=${[newConsumer(name)]} />`}</div>
    <${Table} name="consumers" columns=${CONSUMERS} rows=${seen.consumers.map((each) => ({ ...each, key: each.name }))} empty="No consumers." />
    <${Subjects} path=${path} />
    ${(seen.mirror || seen.sources.length > 0) && html`<h3>Copies from</h3>${[seen.mirror, ...seen.sources].filter(Boolean).map((each) => html`<${Config} config=${each} key=${each.name} />`)}`}
    <h3>Configuration</h3><p class="soft">Created ${time(seen.created)}</p><${Config} config=${seen.config} />`;
}

function Subjects({ path }) {
  const [asked, setAsked] = useAddress("subjects");
  const [filter, setFilter] = useState(asked);
  const [offset, setOffset] = useState(0);
  const [found, error] = useDocument(asked === "" ? null : `${path}/subjects?filter=${enc(asked)}&offset=${offset}`, { live: false });
  return html`<h3>Subjects</h3>
    <form class="bar" onSubmit=${(event) => { event.preventDefault(); setOffset(0); setAsked(filter.trim() || ">"); }}>
      <input aria-label="Pattern of subjects" placeholder="pattern, such as orders.*" value=${filter} onInput=${(event) => setFilter(event.target.value)} /><button>Show</button></form>
    ${asked !== "" && (found ? html`<p class="soft">${found.matching === null ? count(found.total) : `${count(found.matching)} of ${count(found.total)}`}</p>
      <${Table} name="subjects" columns=${[{ id: "subject", title: "Subject", wrap: true }, { id: "messages", title: "Messages", number: true, show: (row) => count(row.messages) }]} rows=${found.subjects.map((row) => ({ ...row, key: row.subject }))} sort=${{ id: "messages", down: true }} empty="None." />
      <${Part} seen=${found} shown=${found.subjects.length} what="subjects" go=${setOffset} />`
      : html`<${Waiting} error=${error} />`)}`;
}
