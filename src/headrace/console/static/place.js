// Which server the page is about. What the page asks, writes and leads to is at that server, and at no other.
let server = "";

/** The name of the server whose page is shown; "" for the one the console was started with. */
export const placed = () => server;

/** Called by the frame, when it shows a page. */
export function place(name) { server = name; }

let titles = new Map();

/** What the servers of this console are called: [{name, title}]. */
export function call(servers) { titles = new Map(servers.map((each) => [each.name, each.title])); }

/** What the page's server is called, where there are several to confuse it with; else "". */
export const called = () => titles.size > 1 ? titles.get(server) ?? server : "";

/** Where the console is asked for something of this server. */
export const asked = (path) => "/api" + (server && path !== "/session" ? `/at/${encodeURIComponent(server)}` : "") + path;

/** The address of a page of a server: page("streams/ORDERS") is #/streams/ORDERS, or #/@prod/streams/ORDERS. */
export const page = (path, name = server) => `#/${name ? `@${encodeURIComponent(name)}/` : ""}${path}`;
