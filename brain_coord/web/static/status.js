// The line that says how old a page is. Silence is measured on a clock that nobody sets.

const PATIENCE_MS = 5000;

const line = document.getElementById("live");
let heard = performance.now();
let heardAt = new Date();
let patience = PATIENCE_MS;

function say(state, text) {
  if (!line || line.dataset.state === state) return;
  line.textContent = text;
  line.dataset.state = state;
  document.body.classList.toggle("stale", state === "stale");
}

/** Something came from the coordinator now; more is due in so many seconds. */
export function alive(next_s = 0) {
  heard = performance.now();
  heardAt = new Date();
  patience = Math.max(PATIENCE_MS, 3000 * next_s);
  say("live", "Live");
}

/** The coordinator cannot be reached. */
export function stale() {
  say("stale", `Stale since ${heardAt.toISOString().slice(11, 19)} UTC, trying again`);
}

/** Mark the page stale while nothing comes, and call `again` every second of that. */
export function watch(again) {
  setInterval(() => {
    if (document.hidden || performance.now() - heard <= patience) return;
    stale();
    again();
  }, 1000);
}
