// One connection for what moves. Pages ask again after each look; a lost connection is said, and tried again.
import { asked, useEffect, useState } from "/lib.js";

const listeners = new Set();
let source = null;
export const state = { overview: null, connected: false, number: 0 };

function tell() { for (const listener of listeners) listener(); }

let timer = 0;
let wanted = false;  // not before the password was given

/** Hear of the looks at the server whose page is shown, and of no other. */
export function start() {
  wanted = true;
  if (source) return;
  clearTimeout(timer);
  const own = source = new EventSource(asked("/live"));
  own.addEventListener("look", (event) => {
    if (own !== source) return;
    state.overview = JSON.parse(event.data);
    state.number += 1;
    state.connected = true;
    tell();
  });
  own.onerror = () => {
    if (own !== source) return;
    state.connected = false;
    tell();
    if (own.readyState === EventSource.CLOSED) {
      source = null;
      timer = setTimeout(start, 3000);
    }
  };
}

/** Another server's page is shown: what was heard of the one before goes. */
export function restart() {
  clearTimeout(timer);
  if (source) source.close();
  source = null;
  Object.assign(state, { overview: null, connected: false, number: 0 });
  if (wanted) start();
}

/** Renders again after each look. */
export function useLive() {
  const [, set] = useState(0);
  useEffect(() => {
    const listener = () => set((value) => value + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return state;
}
