// One connection for what moves. Pages ask again after each look; a lost connection is said, and tried again.
import { useEffect, useState } from "/lib.js";

const listeners = new Set();
let source = null;
export const state = { overview: null, connected: false, number: 0 };

function tell() { for (const listener of listeners) listener(); }

export function start() {
  if (source) return;
  source = new EventSource("/api/live");
  source.addEventListener("look", (event) => {
    state.overview = JSON.parse(event.data);
    state.number += 1;
    state.connected = true;
    tell();
  });
  source.onerror = () => {
    state.connected = false;
    tell();
    if (source.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(() => { if (!source) start(); }, 3000);
    }
  };
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
