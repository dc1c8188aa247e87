import { html, api, asked, ago, bytes, count, enc, link, plural, page, seconds, time, upload, useState } from "/lib.js";
import { useAddress } from "/address.js";
import { Actions, Part, Payload, Table, Waiting, useDocument } from "/parts.js";

const columns = (kind) => [
  { id: "bucket", title: "Bucket", show: (row) => html`<a href=${kind === "objects" ? link`objects/${row.bucket}` : link`buckets/${row.bucket}`}>${row.bucket}</a>` },
  { id: "messages", title: kind === "objects" ? "Chunks" : "Values", number: true, show: (row) => count(row.messages) },
  { id: "bytes", title: "Size", number: true, show: (row) => bytes(row.bytes) },
  { id: "last_time", title: "Changed", show: (row) => ago(row.last_time) },
  { id: "description", title: "Description", wrap: true },
];
const KV = columns("kv"), OBJECTS = columns("objects");

export function Buckets() {
  const [kv, error] = useDocument("/buckets");
  const [objects] = useDocument("/objects");
  if (!kv || !objects) return html`<h2>Buckets</h2><${Waiting} error=${error} />`;
  return html`<h2>Buckets</h2><h3>Key-value</h3>
    <${Table} name="key-value buckets" columns=${KV} rows=${kv.buckets.map((row) => ({ ...row, key: row.name }))} empty="There are no key-value buckets yet. One is made with: headrace kv add NAME" />
    <h3>Objects</h3><${Table} name="object buckets" columns=${OBJECTS} rows=${objects.buckets.map((row) => ({ ...row, key: row.name }))} empty="There are no object buckets yet. One is made with: headrace object add NAME" />`;
}

export function Bucket({ name, session }) {
  const [asked, setAsked] = useAddress("keys");
  const [filter, setFilter] = useState(asked);
  const [offset, setOffset] = useState(0);
  const [seen, error, reload] = useDocument(`/buckets/${enc(name)}/keys?filter=${enc(asked)}&offset=${offset}`, { live: false });
  const actions = [
    { title: "Put a key", fields: [{ id: "key", title: "Key" }, { id: "value", title: "Value", long: true, keepEmpty: true }],
      run: ({ key, value }) => api(`/buckets/${enc(name)}/keys/${enc(key || "")}`, { method: "PUT", body: { value } }).then((done) => { reload(); return `${key}: revision ${done.revision}`; }) },
    { title: "Delete the bucket", danger: true, name, text: "Deletes the bucket with all its keys, for good.", run: (body) => api(`/buckets/${enc(name)}`, { method: "DELETE", body }).then(() => { location.hash = page("buckets"); }) },
  ];
  return html`<div class="bar"><h2>${name}</h2><span class="grow"></span><${Actions} readOnly=${session.read_only} actions=${actions} /></div>
    <form class="bar" onSubmit=${(event) => { event.preventDefault(); setOffset(0); setAsked(filter); reload(); }}><input data-filter aria-label="Pattern of keys" placeholder="pattern, such as user.>" value=${filter} onInput=${(event) => setFilter(event.target.value)} /><button>Show</button></form>
    ${seen ? html`<p class="soft">${plural(seen.matching ?? seen.total, "key")}; history ${seen.history}${seen.ttl_s ? `, kept for ${seconds(seen.ttl_s)}` : ""}.</p>
      <${Table} name="keys" columns=${[{ id: "key", title: "Key", wrap: true, show: (row) => html`<a href=${link`buckets/${name}/${row.key}`}>${row.key}</a>` }, { id: "revisions", title: "Revisions", number: true, show: (row) => count(row.revisions) }]} rows=${seen.keys} empty="No keys here." />
      <${Part} seen=${seen} shown=${seen.keys.length} what="keys" go=${setOffset} />`
      : html`<${Waiting} error=${error} />`}`;
}

export function Key({ bucket, name, session }) {
  const path = `/buckets/${enc(bucket)}/keys/${enc(name)}`;
  const [seen, error, reload] = useDocument(path);
  if (!seen) return html`<h2>${name}</h2><${Waiting} error=${error} />`;
  const newest = seen.revisions[0];
  const actions = [
    { title: "Change", text: `Only if revision ${newest.revision} is still the newest.`, fields: [{ id: "value", title: "Value", long: true, keepEmpty: true, start: newest.payload.text }],
      run: (body) => api(path, { method: "PUT", body: { ...body, revision: newest.revision } }).then((done) => { reload(); return `revision ${done.revision}`; }) },
    { title: "Delete", danger: true, name, text: "Marks the key as deleted; its history stays.", run: (body) => api(path, { method: "DELETE", body }).then(() => { reload(); }) },
  ];
  return html`<div class="bar"><h2><a href=${link`buckets/${bucket}`}>${bucket}</a> / ${name}</h2><span class="grow"></span><${Actions} readOnly=${session.read_only} actions=${actions} /></div>
    ${seen.revisions.map((each) => html`<section key=${each.revision}><h3>Revision ${each.revision} <span class="tag">${each.operation}</span> <span class="soft">${time(each.time)}</span></h3><${Payload} payload=${each.payload} /></section>`)}`;
}

export function ObjectBucket({ name, session }) {
  const [seen, error, reload] = useDocument(`/objects/${enc(name)}`);
  if (!seen) return html`<h2>${name}</h2><${Waiting} error=${error} />`;
  const path = (object) => `/objects/${enc(name)}/${enc(object)}`;
  const columns = [
    { id: "name", title: "Object", wrap: true, show: (row) => row.link ? row.name : html`<a href=${asked(path(row.name))} download>${row.name}</a>` },
    { id: "bytes", title: "Size", number: true, show: (row) => bytes(row.bytes) }, { id: "time", title: "Changed", show: (row) => time(row.time) },
    { id: "description", title: "Description", wrap: true }, { id: "link", title: "Link", wrap: true },
    { id: "actions", title: "Actions", plain: true, value: () => "", show: (row) => html`<${Actions} readOnly=${session.read_only} actions=${[{ title: "Delete", danger: true, name: row.name, run: (body) => api(path(row.name), { method: "DELETE", body }).then(() => { reload(); }) }]} />` },
  ];
  const put = async ({ file, name: wanted, replace }, told) => {
    if (!file) throw new Error("choose a file");
    const done = await upload(`${path(wanted || file.name)}${replace ? "?replace=1" : ""}`, file, told);
    reload();
    return `${done.name} stored: ${bytes(done.bytes)}`;
  };
  const actions = [{ title: "Upload", text: "Stores a file as an object. One that is there stays, unless it may be replaced.", fields: [{ id: "file", title: "File", blob: true }, { id: "name", title: "Name, if not the file's" }, { id: "replace", title: "Replace one of this name", choices: ["no", "yes"], start: "no" }], run: (said, told) => put({ ...said, replace: said.replace === "yes" }, told) },
    { title: "Delete the bucket", danger: true, name, text: "Deletes the bucket with all its objects, for good.", run: (body) => api(`/objects/${enc(name)}`, { method: "DELETE", body }).then(() => { location.hash = page("buckets"); }) }];
  return html`<div class="bar"><h2>${name}</h2><span class="grow"></span><${Actions} readOnly=${session.read_only} actions=${actions} /></div>
    <${Table} name="objects" columns=${columns} rows=${seen.objects.map((row) => ({ ...row, key: row.name }))} empty="No objects here." />`;
}
