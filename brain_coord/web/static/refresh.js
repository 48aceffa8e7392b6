// A page about one thing, fetched again every few seconds and patched in place.

import { children, elements } from "./morph.js";
import { watchParts } from "./parts.js";
import { alive, stale } from "./status.js";

const main = document.getElementById("main");

async function refresh() {
  if (document.hidden) return;
  try {
    const reply = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!reply.ok) throw new Error(`status ${reply.status}`);
    const fresh = elements(await reply.text()).querySelector("#main");
    if (fresh) children(main, fresh);
    alive();
  } catch {
    stale();
  }
}

setInterval(refresh, Number(main.dataset.refresh) * 1000);
watchParts(document);
