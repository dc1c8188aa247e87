// What a view shows stands in its address, after the page: #/streams?buckets=1. Whoever opens it sees the same.
import { page, useEffect, useState } from "/lib.js";

/** The server that the address names ("" for the first), and the parts of the page's path, decoded. */
export function where() {
  const parts = path();
  return parts.length && parts[0].startsWith("@") ? { server: parts[0].slice(1), parts: parts.slice(1) } : { server: "", parts };
}

const path = () => location.hash.split("?", 1)[0].replace(/^#\/?/, "").split("/").filter(Boolean).map((part) => {
  try { return decodeURIComponent(part); } catch { return part; }
});

const query = () => new URLSearchParams(location.hash.slice(1).split("?").slice(1).join("?"));

/** One value of the address; "" without it. */
export const read = (name) => query().get(name) || "";

/** Put values into the address; empty ones go. No entry in the history: Back leads to the page before. */
export function write(values) {
  const all = query();
  for (const [name, value] of Object.entries(values)) {
    if (value) all.set(name, value);
    else all.delete(name);
  }
  const said = all.toString();
  history.replaceState(null, "", (location.hash.split("?", 1)[0] || page("overview")) + (said ? `?${said}` : ""));
}

/** A text that the address keeps, as useState does. */
export function useAddress(name) {
  const [value, set] = useState(() => read(name));
  useEffect(() => {
    const moved = () => set(read(name));
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, [name]);
  return [value, (next) => { set(next); write({ [name]: next }); }];
}
