// The messages of a stream. Only the lines in view are in the page; more are fetched as one scrolls, both ways.
import { html, api, asked, bytes, count, enc, link, plural, time, useCallback, useEffect, useLayoutEffect, useRef, useState } from "/lib.js";
import { useAddress } from "/address.js";
import { Actions, Dialog, Payload, Problem, Waiting, toast, useDocument } from "/parts.js";
import { Search } from "/pages/search.js";

const LINE = 28;        // pixels
const KEPT = 3000;      // lines in memory; those furthest from the view go first
const AHEAD = 40;       // lines fetched before they are reached

export function Messages({ stream, session }) {
  const path = `/streams/${enc(stream)}`;
  const [filter, setFilter] = useAddress("subject");
  const [subject, setSubject] = useState(filter);
  const [start, setStart] = useAddress("from");
  const [typed, setTyped] = useState(start);
  const [markers, setMarkers] = useAddress("markers");
  const [view, setView] = useAddress("view");
  const [open, setOpen] = useState(null);
  const [following, searching] = [view === "follow", view === "search"];
  const place = placeOf(start);
  const go = (where) => { setView(""); setTyped(where); setStart(where); };
  const submit = (event) => {
    event.preventDefault();
    setFilter(subject.trim());
    go(typed.trim());
  };
  return html`<div class="bar"><h2><a href=${link`streams/${stream}`}>${stream}</a> / messages</h2><span class="grow"></span>
      <${Actions} readOnly=${session.read_only} actions=${[publishing(path)]} /></div>
    <form class="bar" onSubmit=${submit}>
      <input data-filter aria-label="Subject or pattern" placeholder="subject, such as orders.*" value=${subject} onInput=${(event) => setSubject(event.target.value)} />
      <input name="place" aria-label="From a sequence or a time" placeholder="sequence, or 2026-01-31 12:00" size="24" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      <button class="primary">Show</button>
      <button type="button" onClick=${() => go("1")}>First</button>
      <button type="button" onClick=${() => go("")}>Newest</button>
      <label><input type="checkbox" name="markers" checked=${!!markers} onChange=${(event) => setMarkers(event.target.checked ? "1" : "")} /> markers of Spark's sinks</label>
      <button type="button" aria-pressed=${following} class=${following ? "primary" : ""} onClick=${() => setView(following ? "" : "follow")}>${following ? "Following" : "Follow"}</button>
      <button type="button" aria-pressed=${searching} class=${searching ? "primary" : ""} onClick=${() => setView(searching ? "" : "search")}>Search</button>
    </form>
    ${searching ? html`<${Search} path=${path} subject=${subject} line=${Line} head=${HEAD} onOpen=${setOpen} />` : following
      ? html`<${Follow} key=${`follow ${filter} ${markers}`} path=${path} filter=${filter} markers=${markers} onOpen=${setOpen} />`
      : html`<${Pages} key=${JSON.stringify([place, filter, markers])} path=${path} filter=${filter} markers=${markers} place=${place} onOpen=${setOpen} />`}
    ${open !== null && html`<${Message} path=${path} sequence=${open} readOnly=${session.read_only} onOpen=${setOpen} onClose=${() => setOpen(null)} />`}`;
}

/** Where the list begins: at the newest, a sequence, or a time. */
function placeOf(text) {
  if (text === "") return { newest: true };
  if (/^\d+$/.test(text)) return { from: text };
  const moment = new Date(text);
  return { time: Number.isNaN(moment.getTime()) ? text : moment.toISOString() };
}

/** The action that publishes into the stream, as `seen` was if there is one. */
function publishing(path, seen) {
  const binary = seen && seen.payload.kind === "binary";
  const fields = [
    { id: "subject", title: "Subject", start: seen ? seen.subject : "" },
    { id: "payload", title: "Payload", long: true, keepEmpty: true, start: seen && !binary ? seen.payload.text : "" },
    { id: "payload_base64", title: "or a file", file: true },
    { id: "headers", title: "Headers, a line Name: value for each", long: true, start: seen ? seen.headers.filter(([name]) => !name.startsWith("Nats-")).map(([name, value]) => `${name}: ${value}`).join("\n") : "" },
  ];
  const text = seen ? "Stores a copy as a new message." + (binary || seen.payload.cut ? " Its payload is not shown whole: give it as a file." : "") : "";
  return { title: seen ? "Publish again" : "Publish", button: "Publish", text, fields,
    run: (body) => api(`${path}/messages`, { method: "POST", body }).then((done) => `Stored with sequence ${done.seq}`) };
}

function Line({ row, top, onOpen }) {
  return html`<button class="line" style=${{ top: `${top}px` }} data-seq=${row.seq} onClick=${() => onOpen(row.seq)}>
    <span class="number">${row.seq}</span><span class="wide">${time(row.time)}</span><span>${row.subject}</span><span class="number wide">${bytes(row.bytes)}</span><span class="soft">${row.preview}</span></button>`;
}

const HEAD = html`<div class="line head" aria-hidden="true"><span class="number">Sequence</span><span class="wide">Time</span><span>Subject</span><span class="number wide">Size</span><span>Payload</span></div>`;

/** Which lines are in view, and where the list is scrolled to. */
function useWindow(room, length) {
  const [view, setView] = useState({ first: 0, last: 40 });
  const measure = useCallback(() => {
    const { scrollTop, clientHeight } = room.current;
    const first = Math.max(0, Math.floor(scrollTop / LINE) - 10);
    const last = Math.ceil((scrollTop + clientHeight) / LINE) + 10;
    setView((old) => old.first === first && old.last === last ? old : { first, last });
  }, []);
  useEffect(() => { if (room.current) measure(); }, [length]);
  return [view, measure];
}

function Pages({ path, filter, markers, place, onOpen }) {
  const room = useRef(null);
  const rows = useRef([]);
  const shift = useRef(0);
  const ends = useRef({ first: false, last: false, busy: false, gone: false });
  const [state, setState] = useState({ loaded: false, error: null, total: 0, first: 0, last: 0, version: 0 });
  const [view, measure] = useWindow(room, state.version);
  const ask = (query) => api(`${path}/messages?subject=${enc(filter)}${markers ? "&markers=1" : ""}&${query}`);

  const fetchMore = async (forward) => {
    const edge = ends.current;
    if (edge.busy || edge.gone || (forward ? edge.last : edge.first)) return;
    edge.busy = true;
    try {
      const all = rows.current;
      const query = forward ? `from=${all.length ? all[all.length - 1].seq + 1 : 1}` : `before=${all.length ? all[0].seq : 1}`;
      const page = await ask(`${query}&count=500`);
      if (edge.gone) return;
      const found = page.messages;
      if (forward) {
        if (found.length === 0) edge.last = true;
        rows.current = [...all, ...found];
        const surplus = rows.current.length - KEPT;
        if (surplus > 0) {
          rows.current = rows.current.slice(surplus);
          edge.first = false;
          shift.current -= surplus * LINE;
        }
      } else {
        if (found.length === 0) edge.first = true;
        rows.current = [...found, ...all].slice(0, KEPT);
        if (found.length + all.length > KEPT) edge.last = false;
      }
      if (!forward) shift.current += found.length * LINE;
      setState((old) => ({ ...old, error: null, total: page.total, first: page.first_seq, last: page.last_seq, version: old.version + 1 }));
    } catch (error) {
      if (!edge.gone) setState((old) => ({ ...old, error }));
    } finally {
      edge.busy = false;
    }
  };

  useEffect(() => {
    const edge = ends.current;
    const query = place.newest ? "newest=1" : place.time ? `time=${enc(place.time)}` : `from=${place.from}`;
    ask(`${query}&count=200`).then((page) => {
      if (edge.gone) return;
      rows.current = page.messages;
      edge.first = page.messages.length === 0 ? false : page.messages[0].seq <= page.first_seq;
      setState({ loaded: true, error: null, total: page.total, first: page.first_seq, last: page.last_seq, version: 1 });
      shift.current = place.newest ? page.messages.length * LINE : 0;
    }, (error) => { if (!edge.gone) setState((old) => ({ ...old, loaded: true, error })); });
    return () => { edge.gone = true; };
  }, []);

  const check = () => {
    if (!room.current) return;
    measure();
    const { scrollTop, clientHeight } = room.current;
    const [top, bottom] = [scrollTop / LINE, (scrollTop + clientHeight) / LINE];
    if (bottom > rows.current.length - AHEAD) fetchMore(true);
    if (top < AHEAD) fetchMore(false);
  };
  // What one looks at stays where it is when lines come or go above it; and there may be more to fetch at once.
  useLayoutEffect(() => {
    if (room.current && shift.current) room.current.scrollTop += shift.current;
    shift.current = 0;
    check();
  }, [state.version]);

  if (!state.loaded) return html`<${Waiting} />`;
  const all = rows.current;
  return html`<${Problem} error=${state.error} />
    ${state.version > 0 && html`<p class="soft">${plural(state.total, "message")}, sequences ${count(state.first)} to ${count(state.last)}${filter ? `; shown are those of ${filter}` : ""}.</p>`}
    ${HEAD}
    <div class="list" ref=${room} onScroll=${check} role="region" tabindex="0" aria-label="Messages"><div class="room" style=${{ height: `${all.length * LINE}px` }}>
      ${all.slice(view.first, view.last).map((row, index) => html`<${Line} key=${row.seq} row=${row} top=${(view.first + index) * LINE} onOpen=${onOpen} />`)}
      ${all.length === 0 && state.version > 0 && html`<p class="waiting">No messages here.</p>`}
    </div></div>`;
}

function Follow({ path, filter, markers, onOpen }) {
  const room = useRef(null);
  const rows = useRef([]);
  const [state, setState] = useState({ version: 0, skipped: 0, open: false, error: null });
  const [view, measure] = useWindow(room, state.version);
  useEffect(() => {
    const source = new EventSource(asked(`${path}/follow?subject=${enc(filter)}${markers ? "&markers=1" : ""}`));
    let due = 0, why = "";
    const draw = () => {
      due = 0;
      setState((old) => ({ ...old, version: old.version + 1 }));
      requestAnimationFrame(() => { if (room.current) room.current.scrollTop = 0; });
    };
    source.addEventListener("begin", () => { why = ""; setState((old) => ({ ...old, open: true, error: null })); });
    source.addEventListener("end", (event) => { why = JSON.parse(event.data).error; });
    source.addEventListener("message", (event) => {
      rows.current.unshift(JSON.parse(event.data));
      if (rows.current.length > 1000) rows.current.length = 1000;
      if (!due) due = requestAnimationFrame(draw);
    });
    source.addEventListener("skipped", (event) => setState((old) => ({ ...old, skipped: old.skipped + JSON.parse(event.data).count })));
    source.onerror = () => setState((old) => ({ ...old, open: false, error: new Error(`${why || "the console does not answer"}; trying again`) }));
    return () => { source.close(); cancelAnimationFrame(due); };
  }, []);
  const all = rows.current;
  return html`<${Problem} error=${state.error} />
    <p class="soft" role="status">${state.open ? "New messages appear here, the newest first." : "Waiting for the stream …"}${state.skipped ? ` ${count(state.skipped)} came too quickly to be shown.` : ""}</p>
    ${HEAD}
    <div class="list" ref=${room} onScroll=${measure} role="region" tabindex="0" aria-label="New messages"><div class="room" style=${{ height: `${all.length * LINE}px` }}>
      ${all.slice(view.first, view.last).map((row, index) => html`<${Line} key=${row.seq} row=${row} top=${(view.first + index) * LINE} onOpen=${onOpen} />`)}</div></div>`;
}

/** A message, and the way to the ones beside it. The buttons stand still while one steps along: a click that begins before a message
 *  is there and ends after it would meet no button otherwise. So they are above what differs, and the message before stays until then. */
function Message({ path, sequence, readOnly, onOpen, onClose }) {
  const [found, error] = useDocument(`${path}/messages/${sequence}`, { live: false });
  const last = useRef(null);
  if (found) last.current = { number: sequence, seen: found };
  if (error) last.current = null;
  const { number, seen } = last.current || { number: sequence, seen: null };
  const beside = async (forward) => {
    const page = await api(`${path}/messages?count=1&markers=1&${forward ? `from=${sequence + 1}` : `before=${sequence}`}`).catch((problem) => toast(problem.message, true));
    if (page && page.messages.length) onOpen(page.messages[0].seq);
    else if (page) toast(forward ? "This is the newest message" : "This is the oldest message");
  };
  const copy = () => navigator.clipboard.writeText(seen.payload.text || seen.payload.hex).then(() => toast("Payload copied"), () => toast("The browser lets nobody copy here", true));
  const remove = { title: "Delete", danger: true, name: String(number), text: "Deletes this message, and overwrites its bytes.",
    run: (body) => api(`${path}/messages/${number}`, { method: "DELETE", body }).then(() => { onClose(); return `Message ${number} deleted`; }) };
  return html`<${Dialog} title=${`Message ${number}`} still=${true} onClose=${onClose}>
    <p class="bar"><button onClick=${onClose}>Close</button><button onClick=${() => beside(false)}>Previous</button><button onClick=${() => beside(true)}>Next</button>
      ${seen && html`<button onClick=${copy}>Copy</button><a class="button" download href=${asked(`${path}/messages/${number}/payload`)}>Download</a>`}<span class="grow"></span>
      ${seen && html`<${Actions} readOnly=${readOnly} actions=${[publishing(path, seen), remove]} />`}</p>
    ${seen ? html`<dl><dt>Subject</dt><dd>${seen.subject}</dd><dt>Stored</dt><dd>${time(seen.time)}</dd></dl>
      ${seen.headers.length > 0 && html`<h3>Headers</h3><dl>${seen.headers.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`}
      <h3>Payload</h3><${Payload} payload=${seen.payload} />` : html`<${Waiting} error=${error} />`}</${Dialog}>`;
}
