// Search in the messages of a stream: a bounded part for each answer, and a button that goes on.
import { html, api, count, enc, plural, useEffect, useState } from "/lib.js";
import { read, write } from "/address.js";
import { Problem } from "/parts.js";

const LINE = 28;

const FIELDS = ["text", "path", "header", "time", "until"];

const moment = (text) => {
  if (!text) return "";
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
  const find = (said) => {
    const parts = { subject: subject.trim(), ...said, time: moment(said.time), until: moment(said.until) };
    const query = Object.entries(parts).filter(([, value]) => value).map(([name, value]) => `${name}=${enc(value)}`).join("&");
    setAsked(query);
    look(query, 0, { rows: [], looked: 0, next: 0 });
  };
  const submit = (event) => {
    event.preventDefault();
    const fields = event.target.elements;
    const said = Object.fromEntries(FIELDS.map((name) => [name, name === "text" ? fields.text.value : fields[name].value.trim()]));
    write(said);
    find(said);
  };
  useEffect(() => {
    const said = Object.fromEntries(FIELDS.map((name) => [name, read(name)]));
    if (Object.values(said).some(Boolean)) find(said);  // the address of what somebody has found
  }, []);
  const { rows, looked, next, busy, error } = state;
  return html`<form class="bar" onSubmit=${submit}>
      <input name="text" defaultValue=${read("text")} aria-label="Text in the payload" placeholder="text in the payload" />
      <input name="path" defaultValue=${read("path")} aria-label="Path of JSON" placeholder="JSON path, such as customer.name" size="26" />
      <input name="header" defaultValue=${read("header")} aria-label="Header" placeholder="header, or Name: value" />
      <input name="time" defaultValue=${read("time")} aria-label="From this time" placeholder="from 2026-01-31 12:00" size="18" />
      <input name="until" defaultValue=${read("until")} aria-label="Until this time" placeholder="until 2026-01-31 13:00" size="18" />
      <button class="primary" disabled=${busy}>Find</button></form>
    <${Problem} error=${error} />
    ${asked !== null && html`<p class="soft" role="status">${busy ? "Looking …" : `${count(rows.length)} found in ${plural(looked, "message")}${next ? "" : "; that is all"}.`}
      ${!busy && next > 0 && html` <button onClick=${() => look(asked, next, state)}>Go on from ${count(next)}</button>`}</p>
    ${head}<div class="list" role="region" tabindex="0" aria-label="Found messages"><div class="room" style=${{ height: `${rows.length * LINE}px` }}>
      ${rows.map((row, index) => html`<${line} key=${row.seq} row=${row} top=${index * LINE} onOpen=${onOpen} />`)}</div></div>`}`;
}
