// The jobs of a channel: found by consumer, message, state and age, and cancelled.
import { html, api, count, enc, link, page, patternsOf, spanOf, time, useState } from "/lib.js";
import { read, write } from "/address.js";
import { Actions, Problem, Table, Waiting, useDocument } from "/parts.js";
import { Progress } from "/pages/jobs.js";
import { Schedules } from "/pages/schedules.js";

const STATES = ["QUEUED", "INFLIGHT", "DELIVERED", "DEAD"];
const waits = (row) => row.blocked_by ? ` (blocked by ${row.blocked_by.id}${row.blocked_by.last_error ? `: ${row.blocked_by.last_error}` : ""})` : row.waits_for && row.waits_for !== "READY" ? ` (${row.waits_for.toLowerCase()})` : row.cancelled_at && row.state === "INFLIGHT" ? " (to be cancelled)" : "";
const isOpen = (row) => row.state === "QUEUED" || (row.state === "INFLIGHT" && !row.cancelled_at);
const told = (done) => `${count(done.waiting)} cancelled, ${count(done.running)} that run are told at their next heartbeat`;

const valuesOf = (text) => text.trim().split(/\s+(?=\$)/).filter((each) => each); // "$.a=x y $.b=2": two
const payloadOf = (text) => text ? { payload: patternsOf(valuesOf(text)) } : {};

/** What is asked of the service, of what was typed. */
function wantedOf({ consumer, message, state, older, payload }) {
  const asked = { consumer, message, state, older_than_seconds: older === "" ? 0 : spanOf(older), payload: payload.trim() };
  patternsOf(valuesOf(payload));
  return Object.fromEntries(Object.entries(asked).filter(([, value]) => value));
}

export function FindJobs({ channel, session }) {
  const [typed, setTyped] = useState(() => Object.fromEntries(["consumer", "message", "state", "older", "payload"].map((name) => [name, read(name)])));
  const [wanted, setWanted] = useState(() => { try { return wantedOf(typed); } catch { return {}; } });
  const [cursor, setCursor] = useState("");
  const [problem, setProblem] = useState(null);
  const query = Object.entries(wanted).flatMap(([name, value]) => name === "payload" ? valuesOf(value).map((each) => [name, each]) : [[name, value]]).map(([name, value]) => `${name}=${enc(value)}`).join("&");
  const [seen, error, reload] = useDocument(`/jobs/${enc(channel)}/list?${query}${cursor}`);
  const search = (event) => {
    event.preventDefault();
    try {
      setWanted(wantedOf(typed));
      setProblem(null);
      setCursor("");
      write(typed);
    } catch (problem) {
      setProblem(problem);
    }
  };
  const field = (id, title) => html`<input aria-label=${title} placeholder=${title.toLowerCase()} value=${typed[id]} onInput=${(event) => setTyped({ ...typed, [id]: event.target.value })} />`;
  const cancel = (body) => api(`/jobs/${enc(channel)}/cancel`, { method: "POST", body }).then((done) => { reload(); return told(done); });
  const { state, payload = "", ...named } = wanted;
  const others = { ...named, ...payloadOf(payload) };
  const states = state ? [state] : STATES.slice(0, 2);
  const many = { title: "Cancel all that match", danger: true, name: channel, text: `Cancels the jobs of ${channel} that wait or run${query ? ` and match: ${decodeURIComponent(query.replaceAll("&", ", "))}` : ": all of them"}. Those that run are told at their next heartbeat.`, run: (body) => cancel({ ...others, states, ...body }) };
  const again = { title: "Replay", button: "Replay", name: channel, text: "Hands delivered and dead jobs out again, with all their retries. Name messages, or how far back.",
    fields: [{ id: "consumer", title: "Consumer; without one, of all", start: wanted.consumer || "" }, { id: "messages", title: "Message ids, separated by spaces", list: true }, { id: "back", title: "Or: made in the last, such as 2h" },
      { id: "values", title: "With these values in the payload, such as $.order.id=7", start: payload },
      { id: "state", title: "State", choices: ["DELIVERED and DEAD", "DELIVERED", "DEAD"], start: "DELIVERED and DEAD" }, { id: "rate_per_s", title: "Jobs per second; without a number all at once", number: true }, { id: "only", title: "Only count them", choices: ["no", "yes"], start: "no" }],
    run: ({ back, state, only, values = "", ...said }) => {
      const since = back === undefined ? {} : { since: new Date(Date.now() - spanOf(back) * 1000).toISOString() };
      const body = { ...said, ...since, ...payloadOf(values), states: state.split(" and "), dry_run: only === "yes" };
      return api(`/jobs/${enc(channel)}/replay`, { method: "POST", body }).then((done) => { reload(); return `${count(done.delivered)} delivered and ${count(done.dead)} dead jobs ${done.dry_run ? "would be" : "are"} handed out again`; });
    } };
  const columns = [
    { id: "id", title: "Job", show: (row) => html`<a href=${link`jobs/${channel}/${row.consumer}/job/${row.id}`}>${row.id}</a>` },
    { id: "consumer", title: "Consumer", wrap: "narrow" }, { id: "message", title: "Message", wrap: true },
    { id: "state", title: "State", wrap: "narrow", show: (row) => html`<span class=${row.state === "DEAD" ? "bad" : ""}>${row.state}${waits(row)}</span>${row.progress && html`<br /><${Progress} told=${row.progress} />`}` },
    { id: "created_at", title: "Made", wrap: "when", show: (row) => time(row.created_at) }, { id: "changed_at", title: "Since", wrap: "when", show: (row) => time(row.changed_at) },
    { id: "claims", title: "Claims", number: true }, { id: "last_error", title: "Last error", wrap: true, show: (row) => row.last_error || "" },
    { id: "actions", title: "Actions", plain: true, value: () => "", show: (row) => isOpen(row) && html`<${Actions} readOnly=${session.read_only} actions=${[{ title: "Cancel", text: `Cancels job ${row.id}. If it runs, it is told at its next heartbeat.`, run: () => cancel({ job: row.id }) }]} />` },
  ];
  return html`<div class="bar"><h2><a href=${page("jobs")}>Jobs</a> of ${channel}</h2><span class="grow"></span><${Actions} readOnly=${session.read_only} actions=${STATES.slice(2).includes(state) ? [again] : [again, many]} /></div>
    <form class="bar" onSubmit=${search}>${field("consumer", "Consumer")}${field("message", "Message id")}
      <select aria-label="State" value=${typed.state} onChange=${(event) => setTyped({ ...typed, state: event.target.value })}><option value="">any state</option>${STATES.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select>
      ${field("older", "Older than")}${field("payload", "Payload, such as $.order.id=7")}<button>Find</button></form>
    <${Problem} error=${problem} />
    ${seen ? html`<${Table} name="jobs" stack filter=${false} columns=${columns} rows=${seen.jobs.map((row) => ({ ...row, key: row.id }))} sort=${{ id: "id", down: true }} empty=${seen.pages.next ? "None among those looked through so far." : "No such jobs."} />
    <p class="bar">${["previous", "next"].map((name) => seen.pages[name] && html`<button key=${name} onClick=${() => setCursor(`&${name}=${seen.pages[name]}`)}>${name}</button>`)}</p>` : html`<${Waiting} error=${error} />`}
    <${Schedules} channel=${channel} session=${session} />`;
}
