// The service's API, read from openapi.json: what each request takes and answers, to try here and to copy for a shell.
const ROOT = new URL(".", location.href);
const BODY_SHOWN = 200_000;
const SECRET = /^(authorization|.*-token)$/i;
const tokenField = document.querySelector("#token");

/** An element with attributes (functions are listeners) and children, which are elements or text. */
function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const resolved = (schema, all) => schema && schema.$ref ? all[schema.$ref.split("/").at(-1)] : schema;

/** A document as a schema wants it, with what it has as defaults. */
function exampleOf(schema, all, depth = 0) {
  schema = resolved(schema, all) || {};
  if (schema.default !== undefined && !(Array.isArray(schema.default) && schema.items)) return schema.default;
  const either = (schema.anyOf || schema.oneOf || []).find((each) => each.type !== "null");
  if (either) return exampleOf(either, all, depth);
  if (schema.enum) return schema.enum[0];
  const type = Array.isArray(schema.type) ? schema.type.find((each) => each !== "null") : schema.type;
  if (type === "object") return depth > 5 ? {} : Object.fromEntries(Object.entries(schema.properties || {}).map(([name, each]) => [name, exampleOf(each, all, depth + 1)]));
  if (type === "array") return depth > 5 || !schema.items || schema.items === true ? [] : [exampleOf(schema.items, all, depth + 1)];
  return { string: "", integer: 0, number: 0, boolean: false }[type] ?? null;
}

/** A field with its name, and what reads it: undefined if nothing was typed. */
function fieldOf(name, text, { long, start = "", needed } = {}) {
  const input = long ? make("textarea", { rows: Math.min(16, start.split("\n").length + 1), spellcheck: "false" }) : make("input", { autocomplete: "off", spellcheck: "false" });
  input.value = start;
  if (needed) input.required = true;
  if (SECRET.test(name)) input.type = "password";
  const label = make("label", { class: "field" }, make("span", {}, `${name}${needed ? " (needed)" : ""}${text ? `: ${text}` : ""}`), input);
  return { label, name, needed, value: () => input.value };
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const variable = (name) => name.toLowerCase() === "authorization" ? "Bearer $HEADRACE_JOBS_ADMIN_TOKEN" : `$${name.replace(/^X-Broker-/i, "").replaceAll("-", "_").toUpperCase()}`;

/** The same request for a shell; tokens are named, not shown. */
function curlOf({ method, url, headers, body }) {
  const parts = ["curl", ...(method === "GET" ? [] : ["-X", method]), quoted(url)];
  for (const [name, value] of Object.entries(headers)) parts.push("-H", SECRET.test(name) ? `"${name}: ${variable(name)}"` : quoted(`${name}: ${value}`));
  if (body !== undefined) parts.push("--data-binary", quoted(body));
  return parts.join(" ");
}

/** What was typed, as a request. Throws an Error that says what is missing. */
function requestOf({ path, method, fields, kind, body, form }) {
  const missing = fields.find((each) => each.needed && !each.value());
  if (missing) throw new Error(`${missing.name} is needed`);
  let target = path.slice(1);
  const query = new URLSearchParams();
  const headers = tokenField.value ? { Authorization: `Bearer ${tokenField.value}` } : {};
  for (const field of fields.filter((each) => each.value())) {
    if (field.where === "path") target = target.replace(`{${field.name}}`, encodeURIComponent(field.value()));
    else if (field.where === "query") query.append(field.name, field.value());
    else headers[field.name] = field.value();
  }
  const url = new URL(target, ROOT);
  url.search = query.toString();
  const said = { method: method.toUpperCase(), url: url.href, headers };
  if (body) {
    if (kind === "application/json") JSON.parse(body.value());
    said.body = body.value();
  }
  if (form.length) said.body = new URLSearchParams(form.filter((each) => each.value()).map((each) => [each.name, each.value()])).toString();
  if (said.body !== undefined) headers["Content-Type"] ??= kind;
  return said;
}

async function send(wanted, room, button) {
  room.replaceChildren();
  let said;
  try {
    said = requestOf(wanted);
  } catch (problem) {
    room.append(make("p", { class: "bad", role: "alert" }, problem.message));
    return;
  }
  const { url, ...options } = said;
  button.disabled = true;
  const begun = performance.now();
  try {
    const answer = await fetch(url, { ...options, redirect: "error" });
    const text = await answer.text();
    const took = Math.round(performance.now() - begun);
    room.append(make("p", { role: "status", class: answer.ok ? "" : "bad" }, `${answer.status} ${answer.statusText} in ${took} ms`));
    const shown = ["content-type", "etag", "last-modified", "location", "retry-after", "x-request-id"].filter((name) => answer.headers.has(name));
    room.append(make("pre", { tabindex: "0", "aria-label": "Headers of the answer" }, shown.map((name) => `${name}: ${answer.headers.get(name)}`).join("\n")));
    if (text) room.append(make("pre", { tabindex: "0", "aria-label": "The answer" }, readable(text)));
  } catch (problem) {
    room.append(make("p", { class: "bad", role: "alert" }, `the service did not answer: ${problem.message}`));
  } finally {
    button.disabled = false;
  }
  room.append(make("h3", {}, "For a shell"), make("pre", { tabindex: "0", "aria-label": "The request for a shell" }, curlOf(said)));
}

function readable(text) {
  let shown = text;
  try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* it is text */ }
  return shown.length > BODY_SHOWN ? `${shown.slice(0, BODY_SHOWN)}\n… ${shown.length - BODY_SHOWN} more` : shown;
}

/** What an operation takes and answers, and a button to try it. */
function contentOf(path, method, operation, all) {
  const fields = operation.parameters.map((each) => ({ ...fieldOf(each.name, each.description, { needed: each.in === "path" }), where: each.in }));
  const [[kind, content] = []] = Object.entries(operation.requestBody?.content || {});
  const form = kind === "application/x-www-form-urlencoded" ? Object.entries(content.schema.properties).map(([name, each]) => fieldOf(name, each.description)) : [];
  const body = kind === "application/json" ? fieldOf("Body", "JSON", { long: true, start: JSON.stringify(exampleOf(content.schema, all), null, 2) })
    : kind === undefined && method !== "get" && method !== "delete" ? fieldOf("Body", "as it is", { long: true }) : null;
  const room = make("div");
  const wanted = { path, method, fields, form, kind: kind || "application/octet-stream", body: body && (kind || body.value()) ? body : null };
  const ask = (event) => { event.preventDefault(); send({ ...wanted, body: body && (kind || body.value()) ? body : null }, room, button); };
  const button = make("button", {}, method === "get" ? "Send" : "Send (changes what is there)");
  const rows = Object.entries(operation.responses).map(([status, each]) => make("tr", {}, make("th", { scope: "row" }, status), make("td", {}, each.description)));
  const shape = Object.entries(operation.responses).find(([status]) => status.startsWith("2"))?.[1].content?.["application/json"];
  return [make("form", { submit: ask, novalidate: "" }, ...[...fields, ...form].map((each) => each.label), ...(body ? [body.label] : []), button), room,
    make("h3", {}, "Answers"), make("table", { "aria-label": "Answers" }, make("tbody", {}, ...rows)),
    ...(shape ? [make("p", {}, "Such as"), make("pre", { tabindex: "0", "aria-label": "An example of the answer" }, JSON.stringify(exampleOf(shape.schema, all), null, 2))] : [])];
}

function show(document_) {
  const all = document_.components.schemas;
  const main = document.querySelector("#operations");
  const tags = new Map();
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const [tag] = operation.tags;
      if (!tags.has(tag)) tags.set(tag, make("section", { "aria-label": tag }, make("h2", {}, tag)));
      const details = make("details", { "data-find": `${method} ${path} ${operation.summary}`.toLowerCase() }, make("summary", {}, make("b", {}, method.toUpperCase()), make("code", {}, path), make("span", {}, operation.summary)));
      details.addEventListener("toggle", () => { if (details.open && details.childElementCount === 1) details.append(...contentOf(path, method, operation, all)); });
      tags.get(tag).append(details);
    }
  }
  main.replaceChildren(...tags.values());
  document.querySelector("#about").textContent = `Version ${document_.info.version}. What is sent from here is carried out. Tokens stay in this page.`;
  document.querySelector("#find").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/);
    for (const section of tags.values()) {
      const entries = [...section.querySelectorAll("details")];
      for (const each of entries) each.hidden = !words.every((word) => each.dataset.find.includes(word));
      section.hidden = entries.every((each) => each.hidden);
    }
  });
}

try {
  const answer = await fetch(new URL("openapi.json", ROOT));
  if (!answer.ok) throw new Error(`openapi.json: status ${answer.status}`);
  show(await answer.json());
} catch (problem) {
  const about = document.querySelector("#about");
  about.textContent = `The API cannot be read: ${problem.message}`;
  about.className = "bad";
}
