// The stages of models that this tab holds: loading them, running them, letting them go.

import { checked } from "./gpu.js";
import { best, forward, Stage } from "./qwen3.js";
import { loadTensors } from "./weights.js";

const held = new Map();
const unasked = new Set(); // of these, what no coordinator has asked for since the link is there

const megabytes = (bytes) => `${(bytes / 2 ** 20).toFixed(0)} MB`;

const holds = () => (held.size ? `Holds ${[...held.keys()].join(", ")}.` : "");

export async function load(context, header) {
  const { device, show } = context;
  if (device !== load.device) {
    held.clear();
    unasked.clear(); // a new device: what the old one held is gone with it
    load.device = device;
  }
  const print = JSON.stringify(header); // the same name may stand for other weights tomorrow
  if (held.get(header.stage)?.print !== print) {
    drop(context, { stages: [header.stage, ...unasked] });
    const [stage, cached] = await prepared(context, header);
    stage.print = print;
    held.set(header.stage, stage);
    show("progress", `${holds()} ${megabytes(cached)} came from this browser’s cache.`);
    return { bytes: stage.bytes, cached };
  }
  unasked.delete(header.stage);
  return { bytes: held.get(header.stage).bytes, cached: held.get(header.stage).bytes };
}

/** A stage that can run, and how much of it came from the cache; nothing of it is left on the card where that fails. */
async function prepared(context, header) {
  const progress = (done, total) =>
    context.show("progress", `Loads ${header.stage}: ${megabytes(done)} of ${megabytes(total)}.`);
  let stage = null;
  try {
    return await checked(context.device, async () => {
      const loaded = await loadTensors(context, header.tensors, progress);
      stage = new Stage(context.device, header, loaded);
      await stage.prepare();
      return [stage, loaded.cached];
    });
  } catch (error) {
    stage?.destroy();
    context.show("progress", holds());
    throw error;
  }
}

/**
 * A new link: the coordinator knows nothing of what this tab held before. Answers that were being written are over; a
 * stage may be asked for again, and until another one needs its place it is kept for that.
 */
export function renew() {
  for (const [name, stage] of held) {
    stage.forget();
    unasked.add(name);
  }
}

/** Activations or logits; null when a stage or its KV cache is not here. */
export async function run({ device }, header, payload) {
  const stages = header.stages.map((name) => held.get(name));
  if (stages.includes(undefined)) return null;
  const numbers = await forward(device, stages, header, payload);
  if (numbers === null) return null;
  if (!stages.at(-1).final || !header.top || numbers.length === 0) return { numbers };
  const vocabulary = stages[0].config.vocab_size;
  const places = new Uint32Array(header.rows * header.top);
  const values = new Float32Array(header.rows * header.top);
  for (let row = 0; row < header.rows; row++) {
    const logits = numbers.subarray(row * vocabulary, (row + 1) * vocabulary);
    best(logits, header.top).forEach((place, at) => {
      places[row * header.top + at] = place;
      values[row * header.top + at] = logits[place];
    });
  }
  const both = new Uint8Array(places.byteLength + values.byteLength);
  both.set(new Uint8Array(places.buffer));
  both.set(new Uint8Array(values.buffer), places.byteLength);
  return { numbers: both };
}

/** Forget an answer's KV cache, or a whole stage. */
export function drop({ show }, header) {
  for (const name of header.stages) {
    if (header.session) held.get(name)?.drop(header.session);
    else {
      held.get(name)?.destroy();
      held.delete(name);
      unasked.delete(name);
    }
  }
  if (!header.session) show("progress", holds());
}
