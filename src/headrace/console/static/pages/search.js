// Search in the messages of a stream: a bounded part for each answer, and a button that goes on.
import { html, api, count, enc, useState } from "/lib.js";
import { Problem } from "/parts.js";

const LINE = 28;

const moment = (text) => {
  const found = new Date(text);
  return Number.isNaN(found.getTime()) ? text : found.toISOString();
};

export function Search({ path, subject, line, head, onOpen }) {
  const [asked, setAsked] = useState(null);
  const [state, setState] = useState({ rows: [], looked: 0, next: 0, busy: false, error: null });
  const look = async (query, from, before) => {
    setState({ ...before, busy: true, error: null });
    try {
      const found = await api(`${path}/search?${query}${from ? `&from=${from}` : ""}`);
      setState({ rows: [...before.rows, ...found.messages], looked: before.looked + found.looked, next: found.next, busy: false, error: null });
    } catch (error) {
      setState({ ...before, busy: false, error });
    }
  };
  const submit = (event) => {
    event.preventDefault();
    const fields = event.target.elements;
    const parts = [["subject", subject.trim()], ["text", fields.text.value], ["path", fields.path.value.trim()], ["header", fields.header.value.trim()]];
    for (const name of ["time", "until"]) if (fields[name].value.trim()) parts.push([name, moment(fields[name].value.trim())]);
    const query = parts.filter(([, value]) => value).map(([name, value]) => `${name}=${enc(value)}`).join("&");
    setAsked(query);
    look(query, 0, { rows: [], looked: 0, next: 0 });
  };
  const { rows, looked, next, busy, error } = state;
  return html`<form class="bar" onSubmit=${submit}>
      <input name="text" aria-label="Text in the payload" placeholder="text in the payload" />
      <input name="path" aria-label="Path of JSON" placeholder="JSON path, such as customer.name" size="26" />
      <input name="header" aria-label="Header" placeholder="header, or Name: value" />
      <input name="time" aria-label="From this time" placeholder="from 2026-01-31 12:00" size="18" />
      <input name="until" aria-label="Until this time" placeholder="until 2026-01-31 13:00" size="18" />
      <button class="primary" disabled=${busy}>Find</button></form>
    <${Problem} error=${error} />
    ${asked !== null && html`<p class="soft" role="status">${busy ? "Looking …" : `${count(rows.length)} found in ${count(looked)} messages${next ? "" : "; that is all"}.`}
      ${!busy && next > 0 && html` <button onClick=${() => look(asked, next, state)}>Go on from ${count(next)}</button>`}</p>
    ${head}<div class="list" tabindex="0" aria-label="Found messages"><div class="room" style=${{ height: `${rows.length * LINE}px` }}>
      ${rows.map((row, index) => html`<${line} key=${row.seq} row=${row} top=${index * LINE} onOpen=${onOpen} />`)}</div></div>`}`;
}
