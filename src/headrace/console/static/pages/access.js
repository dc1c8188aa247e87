// Who may do what with the job service: API keys, and who has changed what.
import { html, api, enc, page, spanOf, time, useState } from "/lib.js";
import { read, write } from "/address.js";
import { Actions, Table, Waiting, useDocument } from "/parts.js";

const SCOPES = "publish, consume, operate, admin";
const isOver = (row) => row.revoked_at ? "revoked" : row.expires_at && new Date(row.expires_at) <= new Date() ? "expired" : "";

/** Buttons to the pages before and after this one. */
export const Turn = ({ pages, go }) => html`<p class="bar">${["previous", "next"].map((name) => pages[name] && html`<button key=${name} onClick=${() => go(`${name}=${pages[name]}`)}>${name}</button>`)}</p>`;

export function Keys({ session }) {
  const [cursor, go] = useState("");
  const [seen, error, reload] = useDocument(`/job-keys?${cursor}`);
  const [made, setMade] = useState(null);
  const add = { title: "Make a key", button: "Make", text: `A key stands for the tokens of channels, producers and consumers, within its scopes (${SCOPES}) and channels. It is shown once.`,
    fields: [{ id: "name", title: "Name: who has it, and for what" }, { id: "scopes", title: `Scopes, separated by spaces: ${SCOPES}`, list: true },
      { id: "channels", title: "Channels, separated by spaces; * is any text", list: true, start: "*" }, { id: "valid", title: "Valid for, such as 90d; without it, until it is revoked" }],
    run: ({ valid, ...said }) => api("/job-keys", { method: "POST", body: { ...said, ...(valid === undefined ? {} : { expires_in_seconds: spanOf(valid) }) } })
      .then((key) => { setMade(key); reload(); return `${key.name} made`; }) };
  const revoke = (row) => ({ title: "Revoke", danger: true, name: row.id, text: `Whoever has the key ${row.name} may do nothing with it any more.`,
    run: (body) => api(`/job-keys/${enc(row.id)}`, { method: "DELETE", body }).then(() => { reload(); return `${row.name} revoked`; }) });
  const columns = [
    { id: "name", title: "Name", wrap: true }, { id: "id", title: "Id", wrap: "narrow", show: (row) => html`<a title="What it did" href=${`${page("job-audit")}?key=${enc(row.id)}`}>${row.id}</a>` },
    { id: "scopes", title: "Scopes", wrap: "narrow", value: (row) => row.scopes.join(" "), show: (row) => row.scopes.join(" ") },
    { id: "channels", title: "Channels", wrap: true, value: (row) => row.channels.join(" "), show: (row) => row.channels.join(" ") },
    { id: "created_at", title: "Made", wrap: "when", value: (row) => Date.parse(row.created_at), show: (row) => time(row.created_at) },
    { id: "last_used_at", title: "Last used", wrap: "when", value: (row) => row.last_used_at || "", show: (row) => time(row.last_used_at) },
    { id: "expires_at", title: "Valid until", wrap: "when", value: (row) => row.expires_at || "", show: (row) => isOver(row) ? html`<span class="tag warn">${isOver(row)}</span>` : row.expires_at ? time(row.expires_at) : "it is revoked" },
    { id: "actions", title: "Actions", plain: true, value: () => "", show: (row) => !isOver(row) && html`<${Actions} readOnly=${session.read_only} actions=${[revoke(row)]} />` }];
  return html`<div class="bar"><h2><a href=${page("jobs")}>Jobs</a> / API keys</h2><span class="grow"></span>${!session.read_only && seen && html`<${Actions} readOnly=${false} actions=${[add]} />`}<a class="button" href=${page("job-audit")}>Audit log</a></div>
    ${made && html`<div class="panel" role="status"><p>The key <b>${made.name}</b>. It is shown now, and never again:</p><pre tabindex="0" aria-label="The key">${made.key}</pre><p class="bar"><button onClick=${() => setMade(null)}>I have it</button></p></div>`}
    ${seen ? html`<${Table} name="keys" stack filter=${false} columns=${columns} rows=${seen.keys.map((row) => ({ ...row, key: row.id }))} sort=${{ id: "created_at", down: true }} empty="There are no API keys." /><${Turn} pages=${seen.pages} go=${go} />` : html`<${Waiting} error=${error} />`}`;
}

const AUDIT = [
  { id: "at", title: "Time", wrap: "when", value: (row) => Date.parse(row.at), show: (row) => time(row.at) }, { id: "who", title: "Who", wrap: "narrow", show: (row) => row.by ? html`${row.who} <span class="soft">${row.by}</span>` : row.who },
  { id: "action", title: "Action", wrap: true }, { id: "object", title: "Of what", wrap: true },
  { id: "result", title: "Result", wrap: "narrow", show: (row) => html`<span class=${row.result === "done" ? "" : "bad"}>${row.result}</span>` },
  { id: "address", title: "From", wrap: "when" }, { id: "detail", title: "Detail", wrap: true, value: (row) => row.detail || "", show: (row) => row.detail || "" }];

export function Audit() {
  const [typed, setTyped] = useState(() => ({ key: read("key"), channel: read("channel") }));
  const [wanted, setWanted] = useState(typed);
  const [cursor, go] = useState("");
  const query = Object.entries(wanted).filter(([, value]) => value).map(([name, value]) => `${name}=${enc(value)}`);
  const [seen, error] = useDocument(`/job-audit?${[...query, cursor].filter((each) => each).join("&")}`);
  const search = (event) => { event.preventDefault(); setWanted(typed); go(""); write(typed); };
  const field = (id, title) => html`<input aria-label=${title} placeholder=${title.toLowerCase()} value=${typed[id]} onInput=${(event) => setTyped({ ...typed, [id]: event.target.value })} />`;
  return html`<div class="bar"><h2><a href=${page("jobs")}>Jobs</a> / audit log</h2><span class="grow"></span><a class="button" href=${page("job-keys")}>API keys</a></div>
    <form class="bar" onSubmit=${search}>${field("key", "Id of a key")}${field("channel", "Channel")}<button>Find</button></form>
    ${seen ? html`<${Table} name="audit" stack filter=${false} columns=${AUDIT} rows=${seen.entries.map((row, index) => ({ ...row, by: row.key, key: index }))} sort=${{ id: "at", down: true }} empty="Nothing was changed." /><${Turn} pages=${seen.pages} go=${go} />` : html`<${Waiting} error=${error} />`}`;
}
