// What all pages share: markup, requests, numbers as people read them.
import { asked, page } from "/place.js";
export { asked, page } from "/place.js";
export { html, render, useState, useEffect, useMemo, useRef, useCallback, useLayoutEffect } from "/vendor/htm-preact.js";

/** A request to the console. Resolves with the document; rejects with an Error that has `code` and `status`. */
export async function api(path, { method = "GET", body, signal } = {}) {
  const headers = method === "GET" ? {} : { "x-headrace-console": "1", "content-type": "application/json" };
  let response;
  try {
    response = await fetch(asked(path), {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw Object.assign(new Error("the console does not answer; is it still running?"), { code: "unreachable", status: 0 });
  }
  if (response.ok) return response.json();
  const said = await response.json().catch(() => ({}));  // an error of whoever is between us may be no JSON
  if (response.status === 401) dispatchEvent(new Event("password-needed"));
  throw Object.assign(new Error(said.message || `status ${response.status}`), { code: said.code, status: response.status });
}

/** Sends a file as it is; `told` hears which part of it is sent, from 0 to 1. Resolves and rejects as `api`. */
export function upload(path, file, told) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const fail = (said, status) => reject(Object.assign(new Error(said.message || `status ${status}`), { code: said.code, status }));
    request.open("PUT", asked(path));
    request.setRequestHeader("x-headrace-console", "1");
    request.setRequestHeader("content-type", "application/octet-stream");
    request.responseType = "json";
    request.upload.onprogress = (event) => { if (event.lengthComputable && event.total) told(event.loaded / event.total); };
    request.onload = () => {
      if (request.status === 401) dispatchEvent(new Event("password-needed"));
      if (request.status < 300) resolve(request.response);
      else fail(request.response || {}, request.status);
    };
    request.onerror = () => fail({ message: "the console does not answer, or has cut the upload", code: "unreachable" }, 0);
    request.send(file);
  });
}

const SPANS = { s: 1, m: 60, h: 3600, d: 86400 };

/** Seconds of 90, 90s, 15m, 2h, 1d. Throws an Error that says what is accepted. */
export function spanOf(text) {
  const found = /^(\d{1,9})([smhd]?)$/.exec(text.trim());
  if (!found) throw new Error(`${text.trim() ? `${text.trim()} is no duration` : "a duration is needed"}: a number with s, m, h or d, such as 90m`);
  return Number(found[1]) * SPANS[found[2] || "s"];
}

/** The patterns of each name, of lines such as X-Kind=paid*. Throws an Error for a line without both. */
export function patternsOf(lines) {
  const wanted = {};
  for (const line of lines.filter((each) => each.trim())) {
    const [name, ...pattern] = line.split("=");
    if (!name.trim() || pattern.length === 0) throw new Error(`${line} has no pattern: NAME=PATTERN is accepted`);
    (wanted[name.trim()] ||= []).push(pattern.join("=").trim());
  }
  return wanted;
}

export const enc = encodeURIComponent;

/** A path of the page, with names put into it safely: link`streams/${name}`. */
export function link(parts, ...names) {
  return page(parts.reduce((path, part, index) => path + enc(names[index - 1]) + part));
}

export const count = (value) => value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en");

/** A number with its noun: "1 key", "2 keys". */
export const plural = (value, one) => `${count(value)} ${value === 1 ? one : `${one}s`}`;

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export const rate = (value) => value >= 100 || value === 0 ? `${count(value)}/s` : `${value.toFixed(1)}/s`;

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} days`;
}

const DURATIONS = ["max_age", "duplicate_window", "subject_delete_marker_ttl", "ack_wait", "backoff", "max_expires", "idle_heartbeat", "inactive_threshold", "priority_timeout", "active"];
const SIZES = ["max_bytes", "max_msg_size"];
const SPAN_UNITS = [["d", 86400e9], ["h", 3600e9], ["m", 60e9], ["s", 1e9], ["ms", 1e6], ["µs", 1e3]];

/** Nanoseconds as a span without loss: 120000000000 is 2m, 1500000000 is 1s 500ms. */
function exactSpan(value) {
  const parts = [];
  for (const [unit, size] of SPAN_UNITS) {
    const many = Math.floor(value / size);
    if (many) parts.push(`${many}${unit}`);
    value -= many * size;
  }
  if (value) parts.push(`${value}ns`);
  return parts.join(" ") || "0s";
}

/** A value of a configuration as people read it. */
export function setting(name, value) {
  if (Array.isArray(value) && DURATIONS.includes(name)) return value.map(exactSpan).join(", ");
  if (typeof value === "object" && value !== null) return JSON.stringify(value);
  if (value === -1 || (value === 0 && name === "max_age")) return "no limit";
  if (typeof value === "number" && DURATIONS.includes(name)) return exactSpan(value);
  if (typeof value === "number" && SIZES.includes(name)) return bytes(value);
  return typeof value === "number" ? value.toLocaleString("en") : String(value);
}

/** An RFC 3339 time in the reader's own zone, to the millisecond. */
export function time(text) {
  if (!text || text.startsWith("0001-")) return "–";
  const moment = new Date(text);
  if (Number.isNaN(moment.getTime())) return text;
  const two = (value, width = 2) => String(value).padStart(width, "0");
  return `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())} ` +
    `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}.${two(moment.getMilliseconds(), 3)}`;
}

export function ago(text) {
  if (!text || text.startsWith("0001-")) return "–";
  return `${seconds(Math.max(0, (Date.now() - new Date(text).getTime()) / 1000))} ago`;
}
