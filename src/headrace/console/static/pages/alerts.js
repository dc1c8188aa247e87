// What is wrong at the server, in the words of headrace doctor, with the command that mends it.
import { html, count, link, page, time } from "/lib.js";
import { Table, Waiting, useDocument } from "/parts.js";

/** Where in the console it is: `stream A`, `consumer A > c`. */
function placeOf(what) {
  const [kind, ...rest] = what.split(" ");
  const names = rest.join(" ").split(" > ");
  if (kind === "stream" && names.length === 1) return link`streams/${names[0]}`;
  if (kind === "consumer" && names.length === 2) return link`streams/${names[0]}/consumers/${names[1]}`;
  return kind === "group" ? page("groups") : kind === "pipeline" || kind === "query" ? page("pipelines") : null;
}

const COLUMNS = [
  { id: "grade", title: "Grade", value: (row) => row.grade === "problem" ? 0 : 1, show: (row) => html`<span class=${`tag ${row.grade === "problem" ? "bad" : "warn"}`}>${row.grade}</span>` },
  { id: "what", title: "What", wrap: true, show: (row) => placeOf(row.what) ? html`<a href=${placeOf(row.what)}>${row.what}</a>` : row.what },
  { id: "text", title: "Is the case", wrap: true },
  { id: "since", title: "Since", value: (row) => row.since, wrap: "when", show: (row) => time(row.since) },
  { id: "mend", title: "What mends it", wrap: true, show: (row) => row.mend && html`<code>${row.mend}</code>` },
];

export function Alerts() {
  const [seen, error] = useDocument("/alerts");
  if (!seen) return html`<h2>Alerts</h2><${Waiting} error=${error} />`;
  const [shown, all] = [seen.alerts.length, seen.problems + seen.notes];
  return html`<h2>Alerts</h2>
    <p class="soft" role="status">${count(seen.problems)} ${seen.problems === 1 ? "problem" : "problems"}, ${count(seen.notes)} worth knowing${shown < all ? `; the first ${count(shown)} are shown` : ""}. headrace doctor looks at the server and its machine, too.</p>
    ${seen.unseen > 0 && html`<p class="note">${count(seen.unseen)} consumers are too many to look at; headrace doctor does.</p>`}
    <${Table} name="alerts" columns=${COLUMNS} rows=${seen.alerts.map((row, index) => ({ ...row, key: index }))} empty="Nothing is wrong in streams, consumers, groups and pipelines." />`;
}
