import { html, bytes, count, useState } from "/lib.js";
import { Table, Waiting, useDocument } from "/parts.js";

const COLUMNS = [
  { id: "cid", title: "Id", number: true }, { id: "name", title: "Name", wrap: true, show: (row) => row.name || html`<span class="soft">–</span>` },
  { id: "account", title: "Account", show: (row) => row.account || "" }, { id: "authorized_user", title: "User", show: (row) => row.authorized_user || "" },
  { id: "ip", title: "Address", show: (row) => `${row.ip}:${row.port}` }, { id: "lang", title: "Client", show: (row) => `${row.lang || ""} ${row.version || ""}` },
  { id: "in_msgs", title: "Messages in", number: true, show: (row) => count(row.in_msgs) }, { id: "out_msgs", title: "Messages out", number: true, show: (row) => count(row.out_msgs) },
  { id: "pending_bytes", title: "Unsent", number: true, show: (row) => html`<span class=${row.pending_bytes > 1e6 ? "bad" : ""}>${bytes(row.pending_bytes)}</span>` },
  { id: "subscriptions", title: "Subscriptions", number: true, show: (row) => count(row.subscriptions) }, { id: "uptime", title: "Up" },
];

export function Connections() {
  const [offset, setOffset] = useState(0);
  const [seen, error] = useDocument(`/connections?offset=${offset}`);
  const [server] = useDocument("/server");
  return html`<h2>Connections</h2>
    ${server && html`<div class="tiles">${[["Server", server.version], ["Uptime", server.uptime], ["Connections", count(server.connections)], ["Memory", server.mem === undefined ? null : bytes(server.mem)], ["Processor", server.cpu === undefined ? null : `${server.cpu} %`], ["Slow consumers", count(server.slow_consumers)]]
      .filter(([, value]) => value !== null)
      .map(([title, value]) => html`<div class="tile" key=${title}><b>${value}</b><span>${title}</span></div>`)}</div>`}
    ${seen ? html`<${Table} name="connections" columns=${COLUMNS} rows=${seen.connections.map((row) => ({ ...row, key: row.cid }))} sort=${{ id: "pending_bytes", down: true }} empty="No connections." />
        <p class="bar"><span class="soft">${count(seen.offset + 1)} to ${count(seen.offset + seen.connections.length)} of ${count(seen.total)}</span>
        ${offset > 0 && html`<button onClick=${() => setOffset(Math.max(0, offset - seen.limit))}>Back</button>`}
        ${seen.offset + seen.connections.length < seen.total && html`<button onClick=${() => setOffset(offset + seen.limit)}>More</button>`}</p>`
      : error && error.status === 503 ? html`<p class="note">${error.message}</p>` : html`<${Waiting} error=${error} />`}`;
}
