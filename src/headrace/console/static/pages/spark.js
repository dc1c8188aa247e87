import { html, count, link, seconds, time } from "/lib.js";
import { Curves, Table, Waiting, useDocument } from "/parts.js";

const COLUMNS = [
  { id: "name", title: "Query", show: (row) => row.consumer ? html`<a href=${link`streams/${row.stream}/consumers/${row.consumer}`}>${row.name}</a>` : row.name },
  { id: "stream", title: "Stream" },
  { id: "messages_behind", title: "Lag", number: true, show: (row) => count(row.messages_behind) },
  { id: "seconds_behind", title: "Lag in seconds", number: true, show: (row) => seconds(row.seconds_behind) },
  { id: "at", title: "Told", show: (row) => time(row.at) },
];

const PLOTTED = 6;  // queries with curves; those furthest behind

export function Spark() {
  const [seen, error] = useDocument("/spark");
  if (!seen) return html`<h2>Spark queries</h2><${Waiting} error=${error} />`;
  return html`<h2>Spark queries</h2><${Table} name="queries" columns=${COLUMNS} rows=${seen.queries.map((row) => ({ ...row, key: `${row.stream}/${row.name}` }))} sort=${{ id: "messages_behind", down: true }}
    empty="No Spark query has told its progress yet. A query does so with the option durable." />
    ${seen.queries.length > PLOTTED && html`<p class="soft">Curves of the ${PLOTTED} that are furthest behind:</p>`}
    ${seen.queries.slice(0, PLOTTED).map((row) => html`<div class="plots" key=${`${row.stream}/${row.name}`}>
      <${Curves} of=${`spark/${row.stream}/${row.name}`} title=${`${row.name}: lag in messages`} series=${[{ name: "messages_behind", title: "lag", color: "#c27c0e" }]} />
      <${Curves} of=${`spark/${row.stream}/${row.name}`} title=${`${row.name}: lag in seconds`} format=${seconds} series=${[{ name: "seconds_behind", title: "lag", color: "#b3261e" }]} /></div>`)}`;
}
