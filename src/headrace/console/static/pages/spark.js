import { html, count, link, seconds, time } from "/lib.js";
import { Table, Waiting, useDocument } from "/parts.js";

const COLUMNS = [
  { id: "name", title: "Query", show: (row) => row.consumer ? html`<a href=${link`streams/${row.stream}/consumers/${row.consumer}`}>${row.name}</a>` : row.name },
  { id: "stream", title: "Stream" },
  { id: "messages_behind", title: "Behind", number: true, show: (row) => count(row.messages_behind) },
  { id: "seconds_behind", title: "Seconds behind", number: true, show: (row) => seconds(row.seconds_behind) },
  { id: "at", title: "Told", show: (row) => time(row.at) },
];

export function Spark() {
  const [seen, error] = useDocument("/spark");
  if (!seen) return html`<h2>Spark queries</h2><${Waiting} error=${error} />`;
  return html`<h2>Spark queries</h2><${Table} name="queries" columns=${COLUMNS} rows=${seen.queries.map((row) => ({ ...row, key: `${row.stream}/${row.name}` }))} sort=${{ id: "messages_behind", down: true }}
    empty="No Spark query has told its progress yet. A query does so with the option durable." />`;
}
