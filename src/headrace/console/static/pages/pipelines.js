import { html, count, seconds, time } from "/lib.js";
import { Curves, Table, Waiting, useDocument } from "/parts.js";

const BAD = new Set(["failed", "silent", "not run"]);
const at = (moment) => moment ? time(new Date(moment * 1000).toISOString()) : "–";

const COLUMNS = [
  { id: "name", title: "Query" },
  { id: "state", title: "State", show: (row) => html`<span class=${BAD.has(row.state) ? "bad" : row.state === "running" || row.state === "done" ? "good" : ""}>${row.state || "stands by"}</span>` },
  { id: "since", title: "Since", show: (row) => at(row.since) },
  { id: "behind", title: "Lag", number: true, show: (row) => count(row.behind) },
  { id: "rows_per_s", title: "Rows/s", number: true, show: (row) => count(row.rows_per_s) },
  { id: "batch_s", title: "Batch", number: true, show: (row) => seconds(row.batch_s) },
  { id: "last_batch", title: "Last batch", show: (row) => at(row.last_batch) },
  { id: "rows", title: "Rows", number: true, show: (row) => count(row.rows) },
  { id: "late", title: "Late", number: true, show: (row) => count(row.late) },
  { id: "lost", title: "Lost", number: true, show: (row) => count(row.lost) },
  { id: "restarts", title: "Restarts", number: true, show: (row) => count(row.restarts) },
];

const PLOTTED = 4;  // queries of a pipeline with curves; those furthest behind

function Pipeline({ seen }) {
  const behind = [...seen.queries].sort((a, b) => (b.behind || 0) - (a.behind || 0)).slice(0, PLOTTED);
  const told = seen.queries.filter((row) => row.error || row.why);
  return html`<section><h3>${seen.name} <span class="soft">on ${seen.host}, process ${seen.process}${seen.ended ? `, ended ${at(seen.ended)}` : ""}</span></h3>
    ${seen.silent_s > 35 && html`<p class="note bad">It has said nothing for ${seconds(seen.silent_s)}: it was killed, or cannot reach this server.</p>`}
    <${Table} name=${`queries of ${seen.key}`} columns=${COLUMNS} rows=${seen.queries.map((row) => ({ ...row, key: row.name }))} empty="It has no queries." />
    ${seen.left_out > 0 && html`<p class="soft">${count(seen.left_out)} more queries are not told.</p>`}
    ${told.map((row) => html`<p class=${`note ${row.error ? "bad" : ""}`} key=${row.name}>${row.name}: ${row.error ? `${row.error} (${at(row.error_at)}${row.failures > 1 ? `, ${count(row.failures)} times in a row` : ""})` : `waits ${row.why}`}</p>`)}
    <pre aria-label=${`graph of ${seen.key}`}>${seen.graph.join("\n")}</pre>
    ${behind.map((row) => html`<div class="plots" key=${row.name}>
      <${Curves} of=${`pipeline/${seen.key}/${row.name}`} title=${`${row.name}: lag in messages`} series=${[{ name: "behind", title: "lag", color: "#c27c0e" }]} />
      <${Curves} of=${`pipeline/${seen.key}/${row.name}`} title=${`${row.name}: rows/s`} series=${[{ name: "rows_per_s", title: "rows/s", color: "#1a7f5a" }]} /></div>`)}</section>`;
}

export function Pipelines() {
  const [seen, error] = useDocument("/pipelines");
  if (!seen) return html`<h2>Pipelines</h2><${Waiting} error=${error} />`;
  return html`<h2>Pipelines</h2>
    ${seen.problem && html`<p class="note bad" role="alert">${seen.problem}</p>`}
    ${seen.pipelines.length === 0 && html`<p class="note">No pipeline has told this server how it is. A pipeline does so with servers in its table [metrics].</p>`}
    ${seen.pipelines.map((each) => html`<${Pipeline} key=${each.key} seen=${each} />`)}`;
}
