import { html, api, count, enc, link, rate, seconds, time } from "/lib.js";
import { Actions, Curves, Table, Waiting, useDocument } from "/parts.js";

const COLUMNS = [
  { id: "group", title: "Group", show: (row) => html`<a href=${link`groups/${row.kind}/${row.stream}/${row.group}`}>${row.group}</a>` },
  { id: "stream", title: "Stream" }, { id: "kind", title: "Kind" }, { id: "layout", title: "Layout" },
  { id: "partitions", title: "Partitions", number: true },
  { id: "lag", title: "Lag", number: true, show: (row) => count(row.lag) },
  { id: "members", title: "Members", wrap: true, show: (row) => row.members.join(", ") },
];
const instance = (row) => row.instance ? html`<span class="good">●</span> ${row.instance}` : html`<span class="soft">nobody</span>`;
const PARTITIONS = [
  { id: "partition", title: "Partition", number: true },
  { id: "member", title: "Member", show: (row) => row.member || html`<span class="bad">nobody</span>` },
  { id: "instance", title: "Instance", show: instance },
  { id: "waiting", title: "Lag", number: true, show: (row) => count(row.waiting) },
  { id: "oldest_s", title: "Oldest", number: true, show: (row) => seconds(row.oldest_s) },
];
const MEMBERS = [
  { id: "member", title: "Member", show: (row) => html`${row.member} ${!row.listed && html`<span class="tag warn">left</span>`}` },
  { id: "partitions", title: "Partitions", wrap: true, show: (row) => row.partitions.join(", ") },
  { id: "instance", title: "Active instance", show: instance },
  { id: "since", title: "Since", show: (row) => time(row.since) },
  { id: "instances", title: "Instances", number: true },
  { id: "lag", title: "Lag", number: true, show: (row) => count(row.lag) },
  { id: "unacknowledged", title: "Unacknowledged", number: true, show: (row) => count(row.unacknowledged) },
];

export function Groups() {
  const [found, error] = useDocument("/groups");
  if (!found) return html`<h2>Groups</h2><${Waiting} error=${error} />`;
  return html`<h2>Partitioned consumer groups</h2>
    ${found.problem && html`<p class="note bad" role="alert">${found.problem}</p>`}
    <${Table} name="groups" columns=${COLUMNS} rows=${found.groups.map((row) => ({ ...row, key: `${row.kind}/${row.stream}/${row.group}` }))} empty="There are no groups yet. One is made with: headrace group create elastic STREAM GROUP" />`;
}

export function Group({ kind, stream, group, session }) {
  const path = `/groups/${kind}/${enc(stream)}/${enc(group)}`;
  const [seen, error, reload] = useDocument(path);
  if (!seen) return html`<h2>${group}</h2><${Waiting} error=${error} />`;
  const actions = seen.members.filter((each) => each.instance).map((each) => ({
    title: `Step down ${each.member}`, text: "The active instance hands over to one that waits.",
    run: () => api(`${path}/step-down`, { method: "POST", body: { member: each.member } }).then(() => { reload(); }),
  }));
  return html`<div class="bar"><h2><a href=${link`streams/${stream}`}>${stream}</a> / ${group}</h2><span class="tag">${kind}</span><span class="tag">${seen.layout}</span><span class="grow"></span><${Actions} readOnly=${session.read_only} actions=${actions} /></div>
    <div class="tiles">${[["Lag", count(seen.lag)], ["At the source", count(seen.source_lag)], ["Oldest", seconds(seen.oldest_s)], ["Members", count(seen.members.filter((each) => each.listed).length)], ["Partitions", count(seen.partitions.length)]]
      .map(([title, value]) => html`<div class="tile" key=${title}><b>${value}</b><span>${title}</span></div>`)}</div>
    <div class="plots">
      <${Curves} of=${`group/${kind}/${stream}/${group}`} title="Lag" series=${[{ name: "lag", title: "lag", color: "#c27c0e" }, { name: "source_lag", title: "at the source", color: "#6b5bd2" }]} />
      <${Curves} of=${`group/${kind}/${stream}/${group}`} title="Messages per second" format=${rate} series=${[{ name: "arrived_per_s", title: "arrived", color: "#0b8fb3" }, { name: "handled_per_s", title: "handled", color: "#2e9e62" }]} />
      <${Curves} of=${`group/${kind}/${stream}/${group}`} title="Oldest message" format=${seconds} series=${[{ name: "oldest_s", title: "waits for", color: "#b3261e" }]} />
    </div>
    <h3>Members</h3><${Table} name="members" filter=${false} columns=${MEMBERS} rows=${seen.members.map((row) => ({ ...row, key: row.member }))} empty="No members yet." />
    <h3>Partitions</h3><${Table} name="partitions" columns=${PARTITIONS} rows=${seen.partitions.map((row) => ({ ...row, key: row.partition }))} empty="No partitions." />`;
}
