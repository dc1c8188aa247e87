// Tables, dialogs, curves and messages that several pages use.
import { html, api, count, setting, useEffect, useMemo, useRef, useState } from "/lib.js";
import { useAddress } from "/address.js";
import { useLive } from "/live.js";
import { called } from "/place.js";
import uPlot from "/vendor/uplot.js";

/** Loads a document, again after each look. Returns [document, error, reload]; the old one stays while loading. */
export function useDocument(path, { live = true } = {}) {
  const { number } = useLive();
  const [found, set] = useState({ path: null, document: null, error: null });
  const [again, reload] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    const control = new AbortController();
    api(path, { signal: control.signal }).then(
      (document) => { if (!control.signal.aborted) set({ path, document, error: null }); },
      (error) => { if (error.name !== "AbortError") set((old) => ({ path, document: old.path === path ? old.document : null, error })); },
    );
    return () => control.abort();
  }, [path, live ? number : 0, again]);
  const current = found.path === path ? found : { document: null, error: null };
  return [current.document, current.error, () => reload((value) => value + 1)];
}

export function Problem({ error }) {
  if (!error) return null;
  return html`<p class="note bad" role="alert">${error.message}</p>`;
}

export function Waiting({ error }) {
  return error ? html`<${Problem} error=${error} />` : html`<p class="waiting">Loading …</p>`;
}

/** A table that sorts by a click on a heading, and filters. columns: {id, title, value(row), show(row), number, wrap (or "narrow", or "when" for times), plain (no order)}
 *  With `stack`, each row is a list of its columns where the window is narrow; the roles keep it a table for who hears it. */
export function Table({ name, columns, rows, sort: initial, empty, filter = true, limit = 500, stack = false }) {
  const [order, setOrder] = useAddress(`sort ${name}`);
  const [text, setText] = useAddress(`filter ${name}`);
  const sort = order ? { id: order.replace(/^-/, ""), down: order.startsWith("-") } : initial || { id: columns[0].id, down: false };
  const setSort = ({ id, down }) => setOrder((down ? "-" : "") + id);
  const [all, setAll] = useState(false);
  const column = columns.find((each) => each.id === sort.id) || columns[0];
  const shown = useMemo(() => {
    const value = column.value || ((row) => row[column.id]);
    const needle = text.toLowerCase();
    const found = needle
      ? rows.filter((row) => columns.some((each) => String((each.value || ((r) => r[each.id]))(row)).toLowerCase().includes(needle)))
      : rows.slice();
    found.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x ?? "").localeCompare(String(y ?? ""), "en", { numeric: true });
      return sort.down ? -order : order;
    });
    return found;
  }, [rows, sort.id, sort.down, text, columns]);
  const visible = all ? shown : shown.slice(0, limit);
  const role = (name) => stack ? name : undefined;
  return html`
    ${filter && rows.length > 3 && html`<div class="bar"><input type="search" data-filter aria-label=${`Filter ${name}`} placeholder="Filter (/)" value=${text} onInput=${(event) => setText(event.target.value)} />
      <span class="soft">${shown.length === rows.length ? `${rows.length}` : `${shown.length} of ${rows.length}`}</span></div>`}
    ${rows.length === 0 ? html`<p class="note">${empty}</p>` : html`
    <div class="scroll"><table aria-label=${name} class=${stack ? "stack" : undefined} role=${role("table")}>
      <thead role=${role("rowgroup")}><tr role=${role("row")}>${columns.map((each) => html`<th scope="col" role=${role("columnheader")} class=${each.number ? "number" : ""} aria-sort=${each.id === sort.id ? (sort.down ? "descending" : "ascending") : undefined}>
        ${each.plain ? each.title : html`<button onClick=${() => setSort({ id: each.id, down: each.id === sort.id ? !sort.down : !!each.number })}>${each.title}${each.id === sort.id ? (sort.down ? " ▾" : " ▴") : ""}</button>`}</th>`)}</tr></thead>
      <tbody role=${role("rowgroup")}>${visible.map((row) => html`<tr key=${row.key || row.name} role=${role("row")}>${columns.map((each) => html`<td role=${role("cell")} data-title=${stack ? each.title : undefined} class=${(each.number ? "number " : "") + (each.wrap ? "wrap " : "") + (each.wrap === true ? "" : each.wrap || "")}>${(each.show || ((r) => r[each.id]))(row)}</td>`)}</tr>`)}</tbody>
    </table></div>
    ${visible.length < shown.length && html`<p class="bar"><button onClick=${() => setAll(true)}>Show all ${shown.length}</button></p>`}`}`;
}

/** Which part of a long list is shown, and the way to the others. seen: {offset, page, matching, more} */
export function Part({ seen, shown, what, go }) {
  if (!seen.more && seen.offset === 0) return null;
  if (seen.matching === null) {
    return html`<p class="note">${shown > 0 ? `The first ${shown} are shown, in the order they were stored` : "They are too many to list"}; give a pattern to see other ${what}.</p>`;
  }
  return html`<p class="bar"><span class="soft">${count(seen.offset + 1)} to ${count(seen.offset + shown)} of ${count(seen.matching)}; a pattern shows fewer</span>
    ${seen.offset > 0 && html`<button onClick=${() => go(Math.max(0, seen.offset - seen.page))}>Back</button>`}
    ${seen.more && html`<button onClick=${() => go(seen.offset + shown)}>More</button>`}</p>`;
}

/** Curves over time. series: [{name, title, color}], of the history of `of`. */
export function Curves({ of, ...shown }) {
  const [history] = useDocument(`/history?of=${encodeURIComponent(of)}`);
  return html`<${Plot} of=${of} columns=${history} ...${shown} />`;
}

/** Curves of `columns`: {time, and each name of the series}, with `dots` where points stand alone. Another `of` begins anew. */
export function Plot({ of, columns, title, series, format, dots = false }) {
  const room = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    if (!room.current) return undefined;
    const style = getComputedStyle(document.documentElement);
    const soft = style.getPropertyValue("--soft").trim(), line = style.getPropertyValue("--line").trim();
    const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
    const made = new uPlot({
      width: room.current.clientWidth || 320, height: 170, cursor: { y: false },
      scales: { y: { range: (_, low, high) => [Math.min(0, low || 0), (high || 0) > 0 ? high * 1.05 : 1] } },
      axes: [{ ...axis, space: 60 }, { ...axis, size: 64, values: (_, values) => values.map((value) => format ? format(value) : value.toLocaleString("en")) }],
      series: [{}, ...series.map((each) => ({ label: each.title, stroke: each.color, width: 2, points: { show: dots, size: 4 }, value: (_, value) => value === null ? "–" : format ? format(value) : Math.round(value).toLocaleString("en") }))],
    }, [[], ...series.map(() => [])], room.current);
    plot.current = made;
    const watcher = new ResizeObserver(() => made.setSize({ width: room.current ? room.current.clientWidth : 320, height: 170 }));
    watcher.observe(room.current);
    return () => { watcher.disconnect(); made.destroy(); plot.current = null; };
  }, [of]);
  useEffect(() => {
    if (plot.current && columns) plot.current.setData([columns.time, ...series.map((each) => columns[each.name] || columns.time.map(() => null))]);
  }, [columns, of]);
  return html`<div class="panel plot"><h3>${title}</h3><div ref=${room} role="img" aria-label=${`${title} over time`}></div></div>`;
}

/** A modal dialog that closes with Escape, a click outside, or its button. One that stands `still` has its upper edge and its width whatever is in it. */
export function Dialog({ title, still = false, onClose, children }) {
  const element = useRef(null);
  useEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return html`<dialog ref=${element} class=${still ? "still" : undefined} aria-label=${title} onCancel=${(event) => { event.preventDefault(); onClose(); }} onClick=${(event) => { if (event.target === element.current) onClose(); }}>
    <h3>${title}</h3>${called() && html`<p class="soft">At ${called()}</p>`}${children}</dialog>`;
}

/** An action with fields. What destroys has `name`: it must be typed to confirm. `run(said, told)` may tell which part is done. */
export function Action({ title, text, name, fields = [], button, danger, run, onClose }) {
  const [values, setValues] = useState(Object.fromEntries(fields.map((field) => [field.id, field.start ?? ""])));
  const [typed, setTyped] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [part, setPart] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const said = {};
      for (const field of fields) {
        const value = field.file ? await base64Of(values[field.id]) : values[field.id];
        if (field.blob) { said[field.id] = value; continue; }
        if (value === "" && !field.keepEmpty) continue;
        if (field.list) { said[field.id] = value.split(/[\s,]+/).filter(Boolean); continue; }
        if (field.number && !/^\d+$/.test(value)) throw new Error(`${field.title}: a whole number is needed`);
        said[field.id] = field.number ? Number(value) : value;
      }
      const done = await run(name === undefined ? said : { ...said, confirm: typed }, setPart);
      toast(done || `${title}: done`);
      onClose();
    } catch (problem) {
      setError(problem);
      setPart(null);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}><form onSubmit=${submit}>
    ${text && html`<p>${text}</p>`}
    ${fields.map((field) => html`<label class="field" key=${field.id}><span>${field.title}</span>${field.blob || field.file
      ? html`<input type="file" name=${field.id} onChange=${(event) => setValues({ ...values, [field.id]: event.target.files[0] || "" })} />`
      : field.choices
      ? html`<select name=${field.id} value=${values[field.id]} onChange=${(event) => setValues({ ...values, [field.id]: event.target.value })}>${field.choices.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select>`
      : field.long
      ? html`<textarea rows="6" name=${field.id} value=${values[field.id]} onInput=${(event) => setValues({ ...values, [field.id]: event.target.value })}></textarea>`
      : html`<input name=${field.id} value=${values[field.id]} inputmode=${field.number ? "numeric" : "text"} onInput=${(event) => setValues({ ...values, [field.id]: event.target.value })} />`}</label>`)}
    ${name !== undefined && html`<label class="field"><span>Type the name to confirm: <b>${name}</b></span>
      <input name="confirm" autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>`}
    <${Problem} error=${error} />
    ${part !== null && html`<progress aria-label="Sent" value=${part}></progress>`}
    <div class="bar"><button class=${danger ? "danger" : "primary"} disabled=${busy || (name !== undefined && typed !== name)}>${button || title}</button>
      <button type="button" onClick=${onClose}>Cancel</button></div></form></${Dialog}>`;
}

/** The bytes of a chosen file in Base64; "" for none. */
async function base64Of(file) {
  if (!file) return "";
  const text = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
  return text.slice(text.indexOf(",") + 1);
}

/** Buttons, each of which opens its action. actions: as Action, without onClose. */
export function Actions({ readOnly, actions }) {
  const [open, setOpen] = useState(null);
  if (readOnly) return html`<span class="tag">read-only</span>`;
  return html`${actions.map((each) => html`<button key=${each.title} class=${each.danger ? "danger" : ""} onClick=${() => setOpen(each)}>${each.title} …</button>`)}
    ${open && html`<${Action} ...${open} onClose=${() => setOpen(null)} />`}`;
}

export function toast(text, bad = false) { dispatchEvent(new CustomEvent("toast", { detail: { text, bad } })); }

/** A configuration as people read it: with units, and "no limit" where there is none. */
export function Config({ config }) {
  return html`<div class="panel"><dl>${Object.entries(config).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${setting(name, value)}</dd>`)}</dl></div>`;
}

/** A payload as JSON, text or hexadecimal; always text, whatever is in it. */
export function Payload({ payload }) {
  const kinds = payload.kind === "json" ? ["JSON", "Text", "Hex"] : payload.kind === "binary" ? ["Hex"] : ["Text", "Hex"];
  const [kind, setKind] = useState(kinds[0]);
  const chosen = kinds.includes(kind) ? kind : kinds[0];
  if (payload.kind === "empty") return html`<p class="soft">No payload.</p>`;
  return html`<div class="bar" role="tablist">${kinds.map((each) => html`<button role="tab" aria-selected=${each === chosen} class=${each === chosen ? "primary" : ""} onClick=${() => setKind(each)}>${each}</button>`)}
      <span class="soft">${payload.bytes.toLocaleString("en")} bytes${payload.cut ? ", the beginning is shown" : ""}</span></div>
    <pre class=${chosen === "Hex" ? "hex" : ""} tabindex="0">${chosen === "Hex" ? payload.hex : chosen === "JSON" ? payload.pretty : payload.text}</pre>`;
}
