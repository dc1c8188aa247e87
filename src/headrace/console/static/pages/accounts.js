import { html, bytes, count } from "/lib.js";
import { Problem, Table, useDocument } from "/parts.js";

const COLUMNS = [
  { id: "name", title: "Account", wrap: true },
  { id: "connections", title: "Connections", number: true, show: (row) => count(row.connections) },
  { id: "subscriptions", title: "Subscriptions", number: true, show: (row) => count(row.subscriptions) },
  { id: "in_msgs", title: "Messages in", number: true, show: (row) => count(row.in_msgs) },
  { id: "in_bytes", title: "Bytes in", number: true, show: (row) => bytes(row.in_bytes) },
  { id: "out_msgs", title: "Messages out", number: true, show: (row) => count(row.out_msgs) },
  { id: "out_bytes", title: "Bytes out", number: true, show: (row) => bytes(row.out_bytes) },
  { id: "slow_consumers", title: "Slow", number: true, show: (row) => count(row.slow_consumers) },
  { id: "streams", title: "Streams", number: true, show: (row) => row.jetstream ? count(row.streams) : "–" },
  { id: "bytes", title: "Stored", number: true, show: (row) => row.jetstream ? bytes(row.bytes) : "–" },
];

export function Accounts() {
  const [seen, error] = useDocument("/accounts");
  const [own, ownError] = useDocument("/account");
  return html`<h2>Accounts</h2>
    ${seen ? html`<${Table} name="accounts" columns=${COLUMNS} rows=${seen.accounts.map((row) => ({ ...row, key: row.name }))} sort=${{ id: "connections", down: true }} empty="No accounts." />
        ${seen.total > seen.accounts.length && html`<p class="soft">${count(seen.total)} accounts, those with most connections are shown.</p>`}`
      : error && (error.status === 503 ? html`<p class="note">${error.message}</p>` : html`<${Problem} error=${error} />`)}
    <h3>This account</h3>
    ${own ? html`<div class="panel"><dl>
        ${[["account", own.account], ["user", own.user]].filter(([, value]) => value).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}
        ${["memory", "storage", "streams", "consumers"].map((name) => html`<dt key=${name}>${name}</dt><dd>${shown(name, own[name] || 0)}${own.limits && limit(own.limits, name)}</dd>`)}</dl></div>`
      : html`<${Problem} error=${ownError} />`}`;
}

const shown = (name, value) => name === "memory" || name === "storage" ? bytes(value) : count(value);

function limit(limits, name) {
  const value = limits[`max_${name}`];
  return value === undefined || value < 0 ? ", unlimited" : ` of ${shown(name, value)}`;
}
