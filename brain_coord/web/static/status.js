// The line that says how old a page is.

const line = document.getElementById("live");
let heard = Date.now();

function say(state, text) {
  if (!line || (line.dataset.state === state && state !== "stale")) return;
  if (line.dataset.state !== state || line.textContent !== text) line.textContent = text;
  line.dataset.state = state;
  document.body.classList.toggle("stale", state === "stale");
}

/** Something came from the coordinator now. */
export function alive() {
  heard = Date.now();
  say("live", "Live");
}

/** The coordinator cannot be reached. */
export function stale() {
  if (line?.dataset.state === "stale") return;
  say("stale", `Stale since ${new Date(heard).toLocaleTimeString()}, trying again`);
}

/** Mark the page stale when nothing came for so long. */
export function watch(limit_ms) {
  setInterval(() => {
    if (!document.hidden && Date.now() - heard > limit_ms) stale();
  }, 1000);
}
