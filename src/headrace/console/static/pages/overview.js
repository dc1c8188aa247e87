import { html, bytes, count, link, rate } from "/lib.js";
import { Curves, Table, Waiting, useDocument } from "/parts.js";

const STREAMS = [
  { id: "name", title: "Stream", show: (row) => html`<a href=${link`streams/${row.name}`}>${row.name}</a>` },
  { id: "in_per_s", title: "In", number: true, show: (row) => rate(row.in_per_s) },
  { id: "messages", title: "Messages", number: true, show: (row) => count(row.messages) },
  { id: "bytes", title: "Size", number: true, show: (row) => bytes(row.bytes) },
];
const SLOW = [
  { id: "name", title: "Consumer", show: (row) => html`<a href=${link`streams/${row.stream}/consumers/${row.name}`}>${row.name}</a>` },
  { id: "stream", title: "Stream" },
  { id: "lag", title: "Lag", number: true, show: (row) => count(row.lag) },
  { id: "acked_per_s", title: "Handled", number: true, show: (row) => rate(row.acked_per_s) },
  { id: "stuck", title: "State", show: (row) => row.stuck ? html`<span class="tag bad">nobody asks</span>` : row.paused ? html`<span class="tag warn">paused</span>` : "" },
];

export function Overview() {
  const [seen, error] = useDocument("/overview");
  if (!seen) return html`<h2>Overview</h2><${Waiting} error=${error} />`;
  const tiles = [["Streams", count(seen.streams)], ["Consumers", count(seen.consumers)], ["Messages", count(seen.messages)], ["Stored", bytes(seen.bytes)],
    ["In", rate(seen.in_per_s)], ["Handled", rate(seen.acked_per_s)], ["Waiting", count(seen.pending)], ["Unacknowledged", count(seen.ack_pending)]];
  return html`<h2>Overview</h2>
    ${seen.lost.length > 0 && html`<p class="note bad" role="alert">Messages were lost to damage in: ${seen.lost.join(", ")}</p>`}
    ${seen.unseen > 0 && html`<p class="note">${count(seen.unseen)} consumers are too many to look at and are not counted in waiting and handled.</p>`}
    <div class="tiles">${tiles.map(([title, value]) => html`<div class="tile" key=${title}><b>${value}</b><span>${title}</span></div>`)}</div>
    <div class="plots">
      <${Curves} of="overview" title="Messages per second" series=${[{ name: "in_per_s", title: "in", color: "#0b8fb3" }, { name: "acked_per_s", title: "handled", color: "#2e9e62" }]} />
      <${Curves} of="overview" title="Waiting" series=${[{ name: "pending", title: "waiting", color: "#c27c0e" }, { name: "ack_pending", title: "unacknowledged", color: "#b3261e" }]} />
    </div>
    <h3>Furthest behind</h3>
    <${Table} name="slow consumers" columns=${SLOW} rows=${seen.slow.map((row) => ({ ...row, key: `${row.stream}/${row.name}` }))} sort=${{ id: "lag", down: true }} filter=${false} empty="No consumer is behind." />
    <h3>Busiest streams</h3>
    <${Table} name="busiest streams" columns=${STREAMS} rows=${seen.busiest} sort=${{ id: "in_per_s", down: true }} filter=${false} empty="There are no streams yet. One is made with: headrace stream create NAME --subjects 'name.>'" />`;
}
