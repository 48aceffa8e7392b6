// A page about one thing, fetched again every few seconds and patched in place.

import { children, elements } from "./morph.js";
import { watchParts } from "./parts.js";
import { alive, stale } from "./status.js";

const main = document.getElementById("main");

let asking = false;

async function refresh() {
  if (document.hidden || asking) return;
  asking = true;
  try {
    const signal = AbortSignal.timeout(5000);
    const reply = await fetch(location.href, { headers: { accept: "text/html" }, signal });
    if (!reply.ok) throw new Error(`status ${reply.status}`);
    const fresh = elements(await reply.text()).querySelector("#main");
    if (fresh) children(main, fresh);
    alive();
  } catch {
    stale();
  } finally {
    asking = false;
  }
}

setInterval(refresh, Number(main.dataset.refresh) * 1000);
watchParts(document);
