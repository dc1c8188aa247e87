// hook.mjs
// WEBHOOK_SECRET=whsec_… node hook.mjs
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const secret = Buffer.from(process.env.WEBHOOK_SECRET.replace(/^whsec_/, ""), "base64");

function isGenuine(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": given = "" } = headers;
  if (!id || !(Math.abs(Date.now() / 1000 - Number(timestamp)) < 300)) return false;
  const expected = createHmac("sha256", secret).update(`${id}.${timestamp}.`).update(body).digest();
  // While a secret is replaced there are two signatures; one that fits is enough.
  return given.split(" ").some((each) => {
    const [version, text] = each.split(",");
    const signature = Buffer.from(text ?? "", "base64");
    return version === "v1" && signature.length === expected.length && timingSafeEqual(signature, expected);
  });
}

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (!isGenuine(request.headers, body)) {
    response.writeHead(401).end();
    return;
  }
  // A job may come more than once: remember its id until its work is done.
  console.log(`${request.headers["webhook-id"]} ${body}`);
  response.writeHead(204).end(); // any 2xx: the job is done
}).listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => console.log("listening"));
