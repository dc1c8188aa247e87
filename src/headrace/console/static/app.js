// The frame: navigation, the page for the address, the password, theme, keys, messages.
import { html, render, api, page, useEffect, useLayoutEffect, useState } from "/lib.js";
import { where } from "/address.js";
import { call, place, placed } from "/place.js";
import { restart, start, useLive } from "/live.js";
import { Dialog, Problem } from "/parts.js";
import { Overview } from "/pages/overview.js";
import { Alerts } from "/pages/alerts.js";
import { Streams, Stream } from "/pages/streams.js";
import { Messages } from "/pages/messages.js";
import { DeadLetters } from "/pages/dead.js";
import { Consumers, Consumer } from "/pages/consumers.js";
import { Groups, Group } from "/pages/groups.js";
import { Buckets, Bucket, Key, ObjectBucket } from "/pages/buckets.js";
import { Jobs, Dead, Job } from "/pages/jobs.js";
import { Audit, Keys } from "/pages/access.js";
import { FindJobs } from "/pages/findjobs.js";
import { Schedule } from "/pages/schedules.js";
import { Pipelines } from "/pages/pipelines.js";
import { Spark } from "/pages/spark.js";
import { Connections } from "/pages/connections.js";
import { Accounts } from "/pages/accounts.js";

const PAGES = [
  ["overview", "Overview", "o"], ["alerts", "Alerts", "e"], ["streams", "Streams", "s"], ["consumers", "Consumers", "c"], ["groups", "Groups", "g"],
  ["buckets", "Buckets", "b"], ["jobs", "Jobs", "j"], ["pipelines", "Pipelines", "l"], ["spark", "Spark", "p"], ["connections", "Connections", "n"], ["accounts", "Accounts", "a"],
];

/** Which page an address means: [component, props]. */
function pageOf(parts) {
  const [first = "overview", ...rest] = parts;
  if (first === "streams" && rest[1] === "messages") return [Messages, { stream: rest[0] }];
  if (first === "streams" && rest[1] === "dead") return [DeadLetters, { stream: rest[0] }];
  if (first === "streams" && rest[1] === "consumers") return [Consumer, { stream: rest[0], name: rest[2] }];
  if (first === "streams" && rest.length) return [Stream, { name: rest[0] }];
  if (first === "groups" && rest.length === 3) return [Group, { kind: rest[0], stream: rest[1], group: rest[2] }];
  if (first === "buckets" && rest.length === 2) return [Key, { bucket: rest[0], name: rest[1] }];
  if (first === "buckets" && rest.length === 1) return [Bucket, { name: rest[0] }];
  if (first === "objects" && rest.length === 1) return [ObjectBucket, { name: rest[0] }];
  if (first === "jobs" && rest[1] === "schedule" && rest.length === 3) return [Schedule, { channel: rest[0], name: rest[2] }];
  if (first === "jobs" && rest[2] === "job") return [Job, { channel: rest[0], consumer: rest[1], job: rest[3] }];
  if (first === "jobs" && rest.length === 1) return [FindJobs, { channel: rest[0] }];
  if (first === "jobs" && rest.length === 2) return [Dead, { channel: rest[0], consumer: rest[1] }];
  const pages = { overview: Overview, alerts: Alerts, streams: Streams, consumers: Consumers, groups: Groups, buckets: Buckets, jobs: Jobs, "job-keys": Keys, "job-audit": Audit, pipelines: Pipelines, spark: Spark, connections: Connections, accounts: Accounts };
  return [Object.hasOwn(pages, first) && rest.length === 0 ? pages[first] : Nowhere, {}];
}

/** Pages that belong to another one of the menu. */
const WITHIN = { objects: "buckets", "job-keys": "jobs", "job-audit": "jobs" };
const OWN_TITLES = { "job-keys": "API keys", "job-audit": "Audit log" };
const menuOf = (first) => Object.hasOwn(WITHIN, first) ? WITHIN[first] : first;

/** What a tab and a bookmark are called: the page, and what it shows. */
function titleOf([first = "overview", ...rest], server) {
  const [, title] = PAGES.find(([name]) => name === menuOf(first)) || [first, first];
  return [rest.join(" / ") || (Object.hasOwn(OWN_TITLES, first) ? OWN_TITLES[first] : title), ...(server ? [server] : []), "Headrace"].join(" · ");
}

function Nowhere() {
  return html`<h2>No such page</h2><p><a href=${page("overview")}>To the overview</a></p>`;
}

function Toasts() {
  const [shown, set] = useState(null);
  useEffect(() => {
    let timer = 0;
    const listener = (event) => { set(event.detail); clearTimeout(timer); timer = setTimeout(() => set(null), 5000); };
    addEventListener("toast", listener);
    return () => { removeEventListener("toast", listener); clearTimeout(timer); };
  }, []);
  return shown && html`<div class=${"toast" + (shown.bad ? " bad" : "")} role="status">${shown.text}</div>`;
}

function Help({ onClose }) {
  const keys = [["/", "filter the table"], ["?", "this help"], ...PAGES.map(([, title, key]) => [`g ${key}`, title]), ["Escape", "close a dialog"]];
  return html`<${Dialog} title="Keys" onClose=${onClose}><dl>${keys.map(([key, text]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl>
    <p class="bar"><button onClick=${onClose}>Close</button></p></${Dialog}>`;
}

function Login({ onDone }) {
  const [password, setPassword] = useState("");
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try { await api("/session", { method: "POST", body: { password } }); onDone(); } catch (problem) { setError(problem); }
  };
  return html`<form class="panel login" onSubmit=${submit}><h2>Headrace console</h2>
    <label class="field"><span>Password</span><input type="password" name="password" autocomplete="current-password" value=${password} onInput=${(event) => setPassword(event.target.value)} /></label>
    <${Problem} error=${error} /><button class="primary">Open</button></form>`;
}

/** What the address shows; from now on everything is asked of its server. */
function shownNow() {
  const found = where();
  const moved = found.server !== placed();
  place(found.server);
  if (moved) restart();
  return found;
}

/** The server, to see and to choose. Another one shows the same page, without what is only at the one before. */
function Chosen({ servers, server, here }) {
  const known = servers.some((each) => each.name === server) ? servers : [...servers, { name: server, title: server }];
  return html`<label class="server"><span>Server</span><select aria-label="Server" value=${server} onChange=${(event) => { location.hash = page(here, event.target.value); }}>
    ${known.map((each) => html`<option key=${each.name} value=${each.name}>${each.title}</option>`)}</select></label>`;
}

function useTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const [theme, set] = useState(() => { try { return localStorage.getItem("theme") || (dark ? "dark" : "light"); } catch { return dark ? "dark" : "light"; } });
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("theme", theme); } catch { /* a browser that keeps nothing: the theme lasts as long as the page */ }
  }, [theme]);
  return [theme, () => set(theme === "dark" ? "light" : "dark")];
}

function useKeys(openHelp) {
  useEffect(() => {
    let before = "";
    const listener = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
      const wanted = PAGES.find(([, , key]) => before === "g" && key === event.key);
      before = event.key;
      if (wanted) { location.hash = page(wanted[0]); before = ""; }
      else if (event.key === "?") openHelp();
      else if (event.key === "/") {
        const field = document.querySelector("[data-filter]");
        if (field) { event.preventDefault(); field.focus(); }
      }
    };
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
}

function App() {
  const [session, setSession] = useState(null);
  const [error, setError] = useState(null);
  const [{ server, parts }, setShown] = useState(shownNow);
  const [help, setHelp] = useState(false);
  const [theme, toggle] = useTheme();
  const live = useLive();
  const enter = () => api("/session").then((found) => { setError(null); call(found.servers); setSession(found); if (!found.needs_password) start(); }, setError);
  useEffect(() => {
    const moved = () => {
      const found = shownNow();
      setShown((old) => { if (old.server === found.server && old.parts.join("/") === found.parts.join("/")) return old; scrollTo(0, 0); return found; });
    };
    addEventListener("hashchange", moved);
    addEventListener("password-needed", enter);
    setShown(shownNow());  // it may have changed since the first render, when nobody listened
    enter();
    return () => { removeEventListener("hashchange", moved); removeEventListener("password-needed", enter); };
  }, []);
  useKeys(() => setHelp(true));
  useLayoutEffect(() => { document.title = titleOf(parts, server); }, [server, parts]);  // with the page, not a moment after it
  if (error) return html`<div class="login"><${Problem} error=${error} /><button onClick=${enter}>Try again</button></div>`;
  if (!session) return html`<p class="waiting">Loading …</p>`;
  if (session.needs_password) return html`<${Login} onDone=${enter} />`;
  const [Page, properties] = pageOf(parts);
  const here = menuOf(parts[0] || "overview");
  const there = live.overview && live.overview.server;
  const several = session.servers.length > 1;
  const leave = () => api("/session", { method: "DELETE" }).then(() => location.reload());
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main").focus(); }}>To the content</a>
    <div class="frame"><nav aria-label="Pages"><h1>Headrace</h1>
      ${several && html`<${Chosen} servers=${session.servers} server=${server} here=${here} />`}
      ${PAGES.map(([name, title]) => html`<a key=${name} href=${page(name)} aria-current=${name === here ? "page" : undefined}>${title}</a>`)}
      <div class="foot">
        ${there && html`<p><span class=${live.connected && there.connected ? "good" : "bad"}>●</span> ${there.name || "this server"}<br />${there.headrace ? html`Headrace ${there.headrace}<br />compatible with nats-server ${there.version}` : html`nats-server ${there.version}`}${there.cluster ? html`<br />cluster ${there.cluster}` : ""}</p>`}
        <p><button onClick=${toggle}>${theme === "dark" ? "Light" : "Dark"}</button> <button onClick=${() => setHelp(true)} aria-label="Keys">?</button></p>
        ${session.has_password && html`<p><button onClick=${leave}>Log out</button></p>`}
        <p>console ${session.version}${session.read_only ? ", read-only" : ""}</p>
      </div></nav>
    <main id="main" tabindex="-1">
      ${live.number > 0 && !live.connected && html`<p class="note bad" role="alert">The console does not answer; what you see is from before. Trying again …</p>`}
      ${live.overview && live.overview.error && html`<p class="note bad" role="alert">${live.overview.error}</p>`}
      <${Page} key=${`@${server}/${parts.join("/")}`} session=${session} ...${properties} />
    </main></div>
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}<${Toasts} />`;
}

render(html`<${App} />`, document.getElementById("app"));
