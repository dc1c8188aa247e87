// worker.mjs
// CHANNEL_TOKEN=orders-token CONSUMER_TOKEN=mailer-token node worker.mjs
const url = process.env.JOBS_URL ?? "http://127.0.0.1:8080";
const queue = `${url}/v2/channel/orders/consumer/mailer/jobs`;
const headers = {
  "content-type": "application/json",
  "x-broker-channel-token": process.env.CHANNEL_TOKEN,
  "x-broker-consumer-token": process.env.CONSUMER_TOKEN,
};
const stopping = new AbortController();
process.on("SIGTERM", () => stopping.abort());

async function ask(what, body, signal) {
  const answer = await fetch(`${queue}/${what}`, { method: "POST", headers, body: JSON.stringify(body), signal });
  // The status of one item is that of the answer; its result is in the body in any case.
  if (!answer.ok && ![404, 409].includes(answer.status)) throw new Error(`${what}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

async function work(job) {
  const held = { id: job.id, lease: job.lease };
  const beat = () => ask("heartbeat", { jobs: [held], lease_seconds: 30 }).catch((error) => console.error(error.message));
  const beating = setInterval(beat, 10_000);
  try {
    await handle(job);
    await ask("complete", { jobs: [held] });
  } catch (error) {
    await ask("fail", { jobs: [{ ...held, reason: String(error) }] });
  } finally {
    clearInterval(beating);
  }
}

async function handle(job) {
  const { message } = job;
  const payload = Buffer.from(message.payload, message.encoding === "base64" ? "base64" : "utf8");
  console.log(`order ${JSON.parse(payload).order}, attempt ${job.attempt}`);
}

while (!stopping.signal.aborted) {
  try {
    const { jobs } = await ask("claim", { max: 10, lease_seconds: 30, wait_seconds: 20 }, stopping.signal);
    await Promise.all(jobs.map(work));
  } catch (error) {
    if (stopping.signal.aborted) break;
    console.error(error.message);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
