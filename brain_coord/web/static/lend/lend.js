// /lend: one button lends this tab's GPU. Nothing runs and no key is made before it is pressed.

import { NoGpu, openGpu } from "./gpu.js";
import { identity } from "./identity.js";
import { KERNELS } from "./kernels.js";
import { Link } from "./link.js";
import { Rules } from "./rules.js";
import { renew } from "./stages.js";

const base = document.body.dataset.base;
const at = (name) => document.getElementById(name);
const [start, pause, stop] = ["start", "pause", "stop"].map(at);
const { memory } = at("rules").elements;
const show = (name, text) => {
  if (at(name).textContent !== text) at(name).textContent = text;
};

const IDLE_MS = 500; // words that change with every token cannot be read
const FIRST_TRY_MS = 2000;
const MOST_TRIES = 5;
const STEADY_MS = 10 * 60 * 1000;

let link = null;
let gpu = null;
let rules = null;
let attempt = 0;
let tries = 0;
let again = null;
let idle = null;
let last = Promise.resolve();

function state(word, sentence) {
  at("state").dataset.state = word;
  show("state", sentence);
}

function amount(value, unit) {
  if (value === null || value === undefined) return "UNKNOWN";
  const steps = ["", "k", "M", "G", "T"];
  const step = value > 0 ? Math.min(steps.length - 1, Math.max(0, Math.floor(Math.log10(value) / 3))) : 0;
  const digits = value / 1000 ** step;
  return `${digits.toFixed(digits < 10 && step ? 1 : 0)} ${steps[step]}${unit}`.trim();
}

function standing(view) {
  const { measured } = view;
  show("speed", amount(measured.ops_s, "op/s"));
  show("rtt", measured.rtt_ms === null ? "UNKNOWN" : `${measured.rtt_ms.toFixed(1)} ms`);
  show("units", `${measured.units_verified}`);
  show("operations", amount(measured.operations_verified, "op"));
  show("tokens", `${measured.tokens}`);
  show("refusals", `${measured.answers_refused}`);
  show("reliability", `${measured.reliability}`);
  show("stages", [...view.stages, ...(view.loading ? [`${view.loading} (loading)`] : [])].join(", ") || "none");
}

/** One job after the other: a card that is shared by two kernels is measured by neither. */
function run(path, body, signal) {
  const kernel = KERNELS[path];
  if (!kernel) return Promise.resolve({ status: 404, content_type: "text/plain", body: new Uint8Array(0) });
  const turn = last.then(async () => {
    if (kernel.follows) await rules.rested();
    if (signal.aborted || !link) throw new Error("cancelled before it began");
    clearTimeout(idle);
    show("now", `Runs ${kernel.says}.`);
    const began = performance.now();
    try {
      const answer = await kernel.run({ device: gpu.device, base, ticket: link.ticket, signal, show }, body);
      show("fault", "");
      return answer instanceof Uint8Array
        ? { status: 200, content_type: "application/octet-stream", body: answer }
        : answer;
    } finally {
      if (link) idle = setTimeout(() => show("now", "Waits for work."), IDLE_MS);
      if (kernel.works) rules.worked(performance.now() - began);
    }
  });
  last = turn.catch(() => {});
  return turn;
}

const on = {
  welcome: () => {
    state("waiting", "Joined. The coordinator measures this tab before it gives it work.");
    last = last.then(renew);
    rules.told = undefined;
    rules.look();
  },
  refused: (message) => {
    if (!message.retry) end();
    state("refused", `The coordinator refused this tab: ${message.message}`);
  },
  notice: (message) => {
    if (message.data) standing(message.data);
    if (message.code === "measured") state("lending", "Lending. The coordinator times and checks what this tab computes.");
    if (message.code === "caught") state("refused", `Set aside: ${message.message}.`);
    if (message.code === "challenge") state("waiting", `${message.message}.`);
  },
  closed: () => state("waiting", "The coordinator cannot be reached; trying again."),
  fault: (error) => show("fault", `The last job failed here: ${error.message}`),
};

function describe() {
  return {
    agent_version: "web 1",
    report: { os: "browser", engine: "webgpu", engine_version: `f${gpu.bits}`, vram_mib: Number(memory.value), gpus: [{ name: gpu.name, kind: "unified" }] },
    offer: { models: [{ id: "compute.matmul_u32", loaded: true }], slots: 2 },
  };
}

async function begin() {
  const mine = ++attempt;
  start.disabled = memory.disabled = true; // what is lent is told once, when the link begins
  stop.disabled = false;
  state("waiting", "Looks for a GPU…");
  try {
    const found = await openGpu();
    if (mine !== attempt) return found.device.destroy(); // stopped meanwhile
    gpu = found;
    const began = performance.now();
    gpu.device.lost.then((lost) => {
      if (mine !== attempt) return; // let go by ourselves
      if (performance.now() - began > STEADY_MS) tries = 0;
      goOn(`The browser took the GPU away (${lost.message || lost.reason}).`);
    });
    show("adapter", `${gpu.name}; products of ${gpu.bits}-bit numbers`);
    const who = await identity();
    if (mine !== attempt) return;
    show("identity", who.id);
    rules ??= new Rules(at("rules"), (why) => {
      link?.drain(why !== null);
      show("held", why ?? "");
    });
    link = new Link(base, who, describe, run, on);
    pause.disabled = false;
    show("now", "Waits for work.");
  } catch (error) {
    if (mine !== attempt) return;
    const said = error instanceof NoGpu ? error.message : `This tab cannot lend: ${error.message}`;
    if (tries) return goOn(said);
    end();
    state("refused", said);
  }
}

/** What was lost mostly comes back: a driver that was reset, a card that was unplugged. Less eager each time, not for ever. */
function goOn(why) {
  end();
  if (tries >= MOST_TRIES) {
    state("refused", `${why} Press the button to try again.`);
    return;
  }
  const wait = FIRST_TRY_MS * 2 ** tries;
  tries += 1;
  start.disabled = true;
  stop.disabled = false;
  state("waiting", `${why} Tries again in ${wait / 1000} seconds.`);
  again = setTimeout(begin, wait);
}

function end() {
  attempt += 1;
  clearTimeout(again);
  clearTimeout(idle);
  link?.stop();
  link = null;
  gpu?.device.destroy();
  gpu = null;
  start.disabled = memory.disabled = false;
  pause.disabled = stop.disabled = true;
  for (const name of ["progress", "fault"]) show(name, "");
  show("stages", "none");
  show("now", "Nothing runs.");
  state("off", "Not lending.");
}

start.addEventListener("click", () => {
  tries = 0;
  begin();
});
stop.addEventListener("click", end);
pause.addEventListener("click", () => {
  rules.pause(!rules.paused);
  pause.textContent = rules.paused ? "Resume" : "Pause";
});
start.disabled = false;
if (!navigator.gpu) state("refused", "This browser has no WebGPU. A current Chrome, Edge, Firefox or Safari has it.");
