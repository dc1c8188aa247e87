// What a job channel publishes again and again: a table on the channel's page, and a page for each.
import { html, api, enc, link, time } from "/lib.js";
import { Actions, Table, Waiting, useDocument } from "/parts.js";

const MISSED = ["once", "all", "skip"];
const FIELDS = (seen) => [
  { id: "cron", title: "Cron: minute hour day month weekday, or @daily", start: seen ? seen.cron : "" },
  { id: "time_zone", title: "Time zone", start: seen ? seen.time_zone : "UTC" },
  { id: "missed", title: "Times at which no service ran: one message for all, each, none", choices: MISSED, start: seen ? seen.missed : "once" },
  ...(seen && seen.message.encoding === "base64" ? [] : [{ id: "payload", title: "Payload", long: true, keepEmpty: true, start: seen ? seen.message.payload : "" }]),
  { id: "content_type", title: "Content type", start: seen ? seen.message.content_type : "", keepEmpty: true },
  { id: "subject", title: "Subject of the messages", start: (seen && seen.message.subject) || "", keepEmpty: true },
  { id: "ordering_key", title: "Ordering key", start: (seen && seen.message.ordering_key) || "", keepEmpty: true }];

export function Schedules({ channel, session }) {
  const path = `/job-schedules/${enc(channel)}`;
  const [seen, error] = useDocument(path);
  const add = { title: "Add a schedule", button: "Add", fields: [{ id: "name", title: "Name" }, ...FIELDS(null)],
    run: ({ name, ...said }) => {
      if (!name) throw new Error("give the schedule a name");
      return api(`${path}/${enc(name)}`, { method: "PUT", body: { ...said, new: true } }).then((made) => { location.hash = link`jobs/${channel}/schedule/${name}`; return `${name} comes at ${made.upcoming[0] || "no time"}`; });
    } };
  const columns = [
    { id: "id", title: "Schedule", wrap: "narrow", show: (row) => html`<a href=${link`jobs/${channel}/schedule/${row.id}`}>${row.id}</a>` },
    { id: "cron", title: "Cron" }, { id: "time_zone", title: "Time zone" }, { id: "missed", title: "Missed times" },
    { id: "next_at", title: "Next", value: (row) => row.next_at || "", show: (row) => row.paused ? html`<span class="tag warn">paused</span>` : time(row.next_at) },
    { id: "last_at", title: "Last", value: (row) => row.last_at || "", show: (row) => time(row.last_at) }];
  return html`<div class="bar"><h3>Schedules</h3><span class="grow"></span>${!session.read_only && html`<${Actions} readOnly=${false} actions=${[add]} />`}</div>
    ${seen ? html`<${Table} name="schedules" stack filter=${false} columns=${columns} rows=${seen.schedules.map((row) => ({ ...row, key: row.id }))} empty="Nothing is published again and again." />` : html`<${Waiting} error=${error} />`}`;
}

export function Schedule({ channel, name, session }) {
  const path = `/job-schedules/${enc(channel)}/${enc(name)}`;
  const [seen, error, reload] = useDocument(path);
  if (!seen) return html`<h2>Schedule ${name}</h2><${Waiting} error=${error} />`;
  const put = (body) => api(path, { method: "PUT", body }).then(() => { reload(); });
  const { message } = seen;
  const actions = [
    { title: "Change", fields: FIELDS(seen), run: put },
    seen.paused ? { title: "Resume", text: "Publishes again, from the next time on.", run: () => put({ paused: false }) }
      : { title: "Pause", text: "Publishes nothing until it is resumed.", run: () => put({ paused: true }) },
    { title: "Delete", danger: true, name, text: "Deletes the schedule; what it has published stays.", run: (body) => api(path, { method: "DELETE", body }).then(() => { location.hash = link`jobs/${channel}`; return `${name} deleted`; }) }];
  const rows = [["Cron", seen.cron], ["Time zone", seen.time_zone], ["Times at which no service ran", seen.missed], ["Last", time(seen.last_at)], ["Content type", message.content_type], ["Subject", message.subject || "–"], ["Ordering key", message.ordering_key || "–"]];
  return html`<div class="bar"><h2><a href=${link`jobs/${channel}`}>${channel}</a> / ${name}</h2>${seen.paused && html`<span class="tag warn">paused</span>`}<span class="grow"></span><${Actions} readOnly=${session.read_only} actions=${actions} /></div>
    <div class="panel"><dl>${rows.map(([title, value]) => html`<dt key=${title}>${title}</dt><dd>${value}</dd>`)}</dl></div>
    <h3>Next times</h3><ul>${seen.upcoming.map((each) => html`<li key=${each}>${time(each)}</li>`)}</ul>
    <h3>Message</h3><pre tabindex="0">${message.payload}</pre>${message.encoding === "base64" && html`<p class="soft">Bytes, in Base64.</p>`}`;
}
