// The dead letters of a stream: listed and counted, looked at, and sent again.
import { html, api, bytes, count, enc, link, plural, time, useState } from "/lib.js";
import { read, useAddress, write } from "/address.js";
import { Actions, Dialog, Payload, Table, Waiting, useDocument } from "/parts.js";

const COUNTS = [{ id: "from", title: "From" }, { id: "error", title: "Error", wrap: true }, { id: "letters", title: "Letters", number: true, show: (row) => count(row.letters) }];
const TO = { id: "to", title: "To another subject than whence they come" };
const told = (done) => `published ${count(done.resent)} ${done.resent === 1 ? "message" : "messages"} again${done.to.length ? ` to ${done.to.join(", ")}` : ""}`;

/** Sends one letter again. */
const resendOne = (path, letter, then) => ({ title: `Send letter ${letter.seq} again`, button: "Send again", fields: [{ ...TO, title: "To another subject than whence it comes" }],
  text: `Publishes its message again to ${letter.subject || "a subject of yours"}, and removes the letter. Every consumer of that subject gets it.`,
  run: (body) => api(`${path}/resend`, { method: "POST", body: { ...body, seq: letter.seq } }).then((done) => { then(); return told(done); }) });

/** Sends all that match again, a part for each request, up to the last that there is now. */
async function resendAll(path, body, setPart) {
  const sum = { resent: 0, to: [], next: 1, until: 0 };
  try {
    while (sum.next) {
      const done = await api(`${path}/resend`, { method: "POST", body: { ...body, from: sum.next, until: sum.until } });
      sum.resent += done.resent;
      if (!sum.to.length) sum.to = done.to;
      if (done.until) setPart(done.next ? done.next / done.until : 1);
      [sum.next, sum.until] = [done.next, done.until];
    }
  } catch (error) {
    throw Object.assign(error, { message: sum.resent ? `${error.message} (and ${count(sum.resent)} before these)` : error.message });
  }
  return sum;
}

export function DeadLetters({ stream, session }) {
  const path = `/streams/${enc(stream)}/dead`;
  const [typed, setTyped] = useState({ subject: read("subject"), consumer: read("consumer") });
  const [wanted, setWanted] = useState(typed);
  const [from, setFrom] = useAddress("from");
  const [open, setOpen] = useState(null);
  const query = Object.entries(wanted).filter(([, value]) => value).map(([name, value]) => `${name}=${enc(value)}`).join("&");
  const [seen, error, reload] = useDocument(`${path}?${query}${from ? `&from=${enc(from)}` : ""}`, { live: false });
  const [counts, , recount] = useDocument(`${path}/count?${query}`, { live: false });
  const changed = () => { setOpen(null); reload(); recount(); };
  const show = (event) => {
    event.preventDefault();
    const said = { subject: typed.subject.trim(), consumer: typed.consumer.trim() };
    write(said);
    setFrom("");
    setWanted(said);
    reload();
    recount();
  };
  const field = (id, title) => html`<input aria-label=${title} placeholder=${title.toLowerCase()} value=${typed[id]} onInput=${(event) => setTyped({ ...typed, [id]: event.target.value })} />`;
  const columns = [
    { id: "seq", title: "Seq", number: true, show: (row) => html`<button aria-label=${`Look at letter ${row.seq}`} onClick=${() => setOpen(row.seq)}>${row.seq}</button>` },
    { id: "time", title: "Time", show: (row) => time(row.time) },
    { id: "from", title: "From" }, { id: "subject", title: "Subject", wrap: true },
    { id: "attempts", title: "Attempts", number: true, show: (row) => row.attempts || "" }, { id: "reason", title: "Reason", wrap: true },
  ];
  const many = { title: "Send all again", name: stream, fields: [TO],
    text: `Publishes the dead letters of stream ${stream}${query ? ` that match ${[wanted.subject && `subject ${wanted.subject}`, wanted.consumer && `consumer ${wanted.consumer}`].filter(Boolean).join(" and ")}` : ""} again to the subjects they come from, and removes them. Every consumer of these subjects gets them.`,
    run: (body, setPart) => resendAll(path, { ...wanted, ...body }, setPart).then((sum) => { changed(); return told(sum); }, (problem) => { changed(); throw problem; }) };
  return html`<div class="bar"><h2><a href=${link`streams/${stream}`}>${stream}</a> / dead letters</h2><span class="grow"></span>
      <${Actions} readOnly=${session.read_only} actions=${[many]} /></div>
    <form class="bar" onSubmit=${show}>${field("subject", "Subject or pattern of the letters")}${field("consumer", "Consumer or group")}<button class="primary">Show</button></form>
    ${counts && counts.letters > 0 && html`<${Table} name="counts of dead letters" filter=${false} columns=${COUNTS} rows=${counts.counts.map((row) => ({ ...row, key: `${row.from} ${row.error}` }))} sort=${{ id: "letters", down: true }} empty="" />
      ${counts.next > 0 && html`<p class="soft">Counted in the first ${count(counts.looked)} messages; headrace dead count ${stream} counts all.</p>`}`}
    ${seen ? html`<p class="soft" role="status">${plural(seen.letters.length, "dead letter")} in ${plural(seen.looked, "message")}${from ? ` from ${from} on` : ""}${seen.next ? "" : "; that is all"}.</p>
      <${Table} name="dead letters" filter=${false} columns=${columns} rows=${seen.letters.map((row) => ({ ...row, key: row.seq }))} empty=${`Stream ${stream} has no such dead letter${from || seen.next ? " here" : ""}.`} />
      <p class="bar">${from && html`<button onClick=${() => setFrom("")}>From the beginning</button>`}${seen.next > 0 && html`<button onClick=${() => setFrom(String(seen.next))}>Go on from ${count(seen.next)}</button>`}</p>` : html`<${Waiting} error=${error} />`}
    ${open !== null && html`<${Letter} path=${path} stream=${stream} sequence=${open} readOnly=${session.read_only} onSent=${changed} onClose=${() => setOpen(null)} />`}`;
}

function Letter({ path, stream, sequence, readOnly, onSent, onClose }) {
  const [seen, error] = useDocument(`${path}/letters/${sequence}`, { live: false });
  const rows = seen && [
    ["From", seen.from || "–"], ["Subject", seen.subject || "–"], ["Sequence there", seen.origin_sequence || "–"],
    ["Attempts", seen.attempts || "–"], ["Reason", seen.reason], ["Dead since", time(seen.time)], ["Size", bytes(seen.bytes)],
  ];
  const remove = seen && { title: "Delete", danger: true, name: String(sequence), text: `Deletes this letter of ${stream}, and overwrites its bytes. Its message is not sent again.`,
    run: (body) => api(`/streams/${enc(stream)}/messages/${sequence}`, { method: "DELETE", body }).then(() => { onSent(); return `Letter ${sequence} deleted`; }) };
  return html`<${Dialog} title=${`Dead letter ${sequence}`} still=${true} onClose=${onClose}>
    <p class="bar"><button onClick=${onClose}>Close</button><span class="grow"></span>
      ${seen && html`<${Actions} readOnly=${readOnly} actions=${[resendOne(path, seen, onSent), remove]} />`}</p>
    ${seen ? html`<dl>${rows.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>
      ${seen.headers.length > 0 && html`<h3>Headers</h3><dl>${seen.headers.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`}
      <h3>Payload</h3><${Payload} payload=${seen.payload} />` : html`<${Waiting} error=${error} />`}</${Dialog}>`;
}
