// /network, live: fragments and orders of lists as the coordinator sends them once a second.

import { elements, morph } from "./morph.js";
import { watchParts } from "./parts.js";
import { alive, stale, watch } from "./status.js";

const REDIAL_MS = 5000;

const base = document.body.dataset.base;
const line = document.getElementById("live");
const spare = new Map(); // fragments that came before their place in a list did
let seen = line.dataset.position;
let source = null;
let dialled = 0;

function place(key, html) {
  const fresh = elements(html).firstElementChild;
  const present = document.getElementById(key);
  if (present) morph(present, fresh);
  else spare.set(key, fresh);
}

/** Whether somebody reads this element now, so that it must not be taken away. */
function inUse(element) {
  return element.contains(document.activeElement) || element.querySelector("details[open]") !== null;
}

function arrange(list, keys) {
  const wanted = new Set(keys);
  const kept = list.hasAttribute("data-keep-open");
  for (const child of [...list.children]) {
    if (!wanted.has(child.id) && !(kept && inUse(child))) child.remove();
  }
  let at = list.firstElementChild;
  for (const key of keys) {
    while (at && !wanted.has(at.id)) at = at.nextElementSibling;
    if (at?.id === key) {
      at = at.nextElementSibling;
      continue;
    }
    const element = spare.get(key) ?? document.getElementById(key);
    if (element) list.insertBefore(element, at);
  }
  if (keys.length === 0 && list.children.length === 0) list.replaceChildren(); // leaves no blank text: `:empty` holds
}

function apply(told) {
  for (const [key, html] of Object.entries(told.html ?? {})) place(key, html);
  for (const [name, keys] of Object.entries(told.order ?? {})) {
    const list = document.querySelector(`[data-list="${name}"]`);
    if (list) arrange(list, keys);
  }
  spare.clear();
}

function connect() {
  source?.close();
  source = null;
  if (document.hidden) return;
  dialled = performance.now();
  source = new EventSource(`${base}/network/events?seen=${encodeURIComponent(seen)}`);
  source.onmessage = (event) => {
    const told = JSON.parse(event.data);
    apply(told);
    seen = event.lastEventId;
    alive(told.next_s);
  };
  source.onerror = stale;
}

/** A refused stream is not dialled again by the browser, and one that died in a sleep or in a router never ends by itself. */
function again() {
  if (performance.now() - dialled > REDIAL_MS) connect();
}

// A hidden tab asks for nothing; when it is looked at again it gets what it missed.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    source?.close();
    source = null;
  } else if (!source) connect();
});

connect();
watch(again);
watchParts(document);
