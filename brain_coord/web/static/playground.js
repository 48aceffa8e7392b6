// The playground: one streamed request, its answer as it comes, and how it ran.

import { codeOf } from "./code.js";
import { show } from "./morph.js";
import { events } from "./stream.js";
import { showVerdict } from "./verify.js";

const base = document.body.dataset.base;
const form = document.getElementById("ask");
const [answer, progress, trace, receipt, verdict, stop] = ["answer", "progress", "trace", "receipt", "verdict", "stop"].map((id) => document.getElementById(id));
let running = null;

function request() {
  const fields = form.elements;
  const body = {
    model: fields.model.value,
    messages: [{ role: "user", content: fields.message.value }],
    max_tokens: Number(fields.max_tokens.value) || 256,
    stream: true,
  };
  if (fields.mode.value !== "AUTO") body.mode = fields.mode.value;
  if (fields.privacy.value) body.privacy = fields.privacy.value;
  return body;
}

function add(text, kind) {
  let last = answer.lastElementChild;
  if (last?.dataset.kind !== kind) {
    last = document.createElement("span");
    last.dataset.kind = kind;
    if (kind === "reasoning") last.className = "quiet";
    answer.append(last);
  }
  last.append(text); // a text node: an answer is never markup
  answer.scrollTop = answer.scrollHeight;
}

async function part(path) {
  for (let attempt = 0; attempt < 5; attempt += 1) {
    const reply = await fetch(`${base}/network/${path}?part=true`);
    if (reply.ok) return reply.text();
    await new Promise((done) => setTimeout(done, 200)); // the decision is listed a moment after the answer ends
  }
  return null;
}

async function explain(id, key) {
  const found = id && ((await part(`receipts/${id}`)) ?? (await part(`decisions/d-${id.slice(2)}`)));
  if (found) show(trace, found);
  if (!id) return;
  const reply = await fetch(`${base}/v1/receipts/${id}`, { headers: { authorization: `Bearer ${key}` } });
  if (!reply.ok) return;
  const link = document.createElement("a");
  link.href = `${base}/network/receipts/${id}`;
  link.textContent = `Receipt ${id}`;
  receipt.replaceChildren(link);
  await showVerdict(verdict, await reply.json(), `${base}/v1/signer`);
}

async function run() {
  const key = form.elements.key.value;
  running = new AbortController();
  const began = performance.now();
  const since = () => `${Math.round(performance.now() - began)} ms`;
  let id = null;
  const reply = await fetch(form.dataset.url, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify(request()),
    signal: running.signal,
  });
  id = reply.headers.get("x-brain-receipt");
  if (!reply.ok) {
    const { error } = await reply.json();
    progress.textContent = `${error.code}: ${error.message}`;
    return [id, key];
  }
  let first = null;
  for await (const data of events(reply.body)) {
    if (data === "[DONE]") continue;
    const event = JSON.parse(data);
    if (event.error) {
      progress.textContent = `${event.error.code}: ${event.error.message}`;
      return [id, key];
    }
    for (const { delta } of event.choices ?? []) {
      const reasoning = delta?.reasoning_content ?? delta?.reasoning;
      if (reasoning) add(reasoning, "reasoning");
      if (delta?.content) add(delta.content, "text");
      if ((reasoning || delta?.content) && !first) {
        first = since();
        progress.textContent = `First output after ${first}, as your browser sees it`;
      }
    }
    id = event.brain?.receipt ?? id;
  }
  progress.textContent = `Done after ${since()}; first output after ${first ?? "UNKNOWN"}, as your browser sees it`;
  return [id, key];
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running) return;
  answer.replaceChildren();
  receipt.replaceChildren();
  verdict.replaceChildren();
  trace.textContent = "";
  progress.textContent = "Asked…";
  stop.disabled = false;
  try {
    await explain(...(await run()));
  } catch (error) {
    progress.textContent = error.name === "AbortError" ? "Stopped." : `The coordinator cannot be reached (${error.message})`;
  } finally {
    running = null;
    stop.disabled = true;
  }
});
stop.addEventListener("click", () => running?.abort());

let kind = "curl";
function code() {
  document.getElementById("code").textContent = codeOf(kind, new URL(form.dataset.url, location.href), request());
}
for (const button of document.querySelectorAll("[data-code]")) {
  button.addEventListener("click", () => {
    kind = button.dataset.code;
    document.querySelectorAll("[data-code]").forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
    code();
  });
}
form.addEventListener("input", code);
document.getElementById("copy").addEventListener("click", async () => {
  const copied = document.getElementById("copied");
  try {
    await navigator.clipboard.writeText(document.getElementById("code").textContent);
    copied.textContent = "Copied.";
  } catch {
    copied.textContent = "This browser does not let a page copy; select the text.";
  }
});
code();
