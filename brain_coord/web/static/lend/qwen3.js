// Layers of Qwen3 on this tab's GPU: one stage of a model, with a KV cache for each answer that is being written.

import { folded, readBack, shader, source, storage } from "./gpu.js";
import { HALVES, head } from "./precision.js";

const FIRST_CAPACITY = 256;
const MOST_SESSIONS = 8;

const compiled = new WeakMap();

/** What `load` makes for a device under a name: made once, and again after it could not be. */
function once(device, name, load) {
  if (!compiled.has(device)) compiled.set(device, new Map());
  const known = compiled.get(device);
  if (!known.has(name)) {
    const making = load();
    making.catch(() => known.delete(name));
    known.set(name, making);
  }
  return known.get(name);
}

/** The kernels for weights of one kind. */
const kernels = (device, dtype) =>
  once(device, dtype, async () => {
    const code = head(dtype, device.features.has(HALVES)) + (await source("qwen3.wgsl"));
    return pipelines(device, device.createShaderModule({ code }), ["linear", "norm", "rotate"]);
  });

const attention = (device) =>
  once(device, "attention", async () =>
    pipelines(device, await shader(device, "attention.wgsl"), ["score", "soften", "mix", "gate"]),
  );

async function pipelines(device, module, names) {
  const made = names.map(async (entryPoint) => [
    entryPoint,
    await device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint } }),
  ]);
  return Object.fromEntries(await Promise.all(made));
}

/** Dispatches of one run: their small uniforms go to the GPU in one write. */
class Run {
  constructor(device) {
    this.device = device;
    this.steps = [];
    this.passing = [];
  }

  scratch(bytes) {
    const buffer = storage(this.device, bytes);
    this.passing.push(buffer);
    return buffer;
  }

  /** `numbers` fill the uniform at binding 0; `buffers` are by binding. */
  add(pipeline, numbers, buffers, groups) {
    this.steps.push({ pipeline, numbers, buffers, groups });
  }

  encode(encoder) {
    const { device, steps } = this;
    const data = new ArrayBuffer(steps.length * 256);
    steps.forEach(({ numbers }, index) => {
      const view = new DataView(data, index * 256);
      numbers.forEach((number, at) => {
        if (typeof number === "object") view.setFloat32(at * 4, number.float, true);
        else view.setUint32(at * 4, number, true);
      });
    });
    const uniforms = device.createBuffer({
      size: Math.max(256, data.byteLength),
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
    });
    this.passing.push(uniforms);
    device.queue.writeBuffer(uniforms, 0, data);
    const pass = encoder.beginComputePass();
    steps.forEach(({ pipeline, buffers, groups }, index) => {
      const entries = [{ binding: 0, resource: { buffer: uniforms, offset: index * 256, size: 32 } }];
      for (const [binding, buffer] of Object.entries(buffers)) {
        entries.push({ binding: Number(binding), resource: { buffer } });
      }
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
      pass.dispatchWorkgroups(...groups);
    });
    pass.end();
  }

  destroy() {
    for (const buffer of this.passing) buffer.destroy();
  }
}

const float = (value) => ({ float: value });

/** One stage. */
export class Stage {
  constructor(device, header, { tensors, bytes }) {
    Object.assign(this, { device, tensors, bytes });
    const { config, first, last, final, context } = header;
    Object.assign(this, { config, first, last, final, context });
    this.sessions = new Map();
    this.turns = this.makeTurns();
  }

  /** Compile what this stage's weights need. */
  async prepare() {
    const kinds = new Set([...this.tensors.values()].map((tensor) => tensor.dtype));
    this.kernels = Object.fromEntries(
      await Promise.all([...kinds].map(async (dtype) => [dtype, await kernels(this.device, dtype)])),
    );
    this.attention = await attention(this.device);
  }

  /** Cosines and sines in doubles, rounded as the reference rounds them: shaders promise little for large angles. */
  makeTurns() {
    const { head_dim: size, rope_theta: theta } = this.config;
    const half = size / 2;
    const table = new Float32Array(this.context * size);
    for (let at = 0; at < half; at++) {
      const frequency = Math.fround(1 / Math.fround(theta ** ((2 * at) / size)));
      for (let position = 0; position < this.context; position++) {
        const angle = Math.fround(position * frequency);
        table[(position * half + at) * 2] = Math.cos(angle);
        table[(position * half + at) * 2 + 1] = Math.sin(angle);
      }
    }
    const buffer = storage(this.device, table.byteLength);
    this.device.queue.writeBuffer(buffer, 0, table);
    return buffer;
  }

  session(name, start) {
    let session = this.sessions.get(name);
    if (!session && start === 0) {
      if (this.sessions.size >= MOST_SESSIONS) this.drop(this.sessions.keys().next().value);
      session = { length: 0, capacity: 0, keys: [], values: [] };
      this.sessions.set(name, session);
    }
    if (!session || session.length < start) return null;
    session.length = start; // what stands after it is written anew
    this.sessions.delete(name);
    this.sessions.set(name, session); // the one that was used longest ago goes first
    return session;
  }

  grow(session, length) {
    if (length <= session.capacity) return;
    const { num_key_value_heads: heads, head_dim: size } = this.config;
    const capacity = Math.min(this.context, Math.max(FIRST_CAPACITY, 2 ** Math.ceil(Math.log2(length))));
    const bytes = capacity * heads * size * 4;
    const used = session.length * heads * size * 4;
    const encoder = this.device.createCommandEncoder();
    const larger = (old) => {
      const buffer = storage(this.device, bytes);
      if (old && used) encoder.copyBufferToBuffer(old, 0, buffer, 0, used);
      return buffer;
    };
    const before = [...session.keys, ...session.values];
    for (let layer = 0; layer < this.last - this.first; layer++) {
      session.keys[layer] = larger(session.keys[layer]);
      session.values[layer] = larger(session.values[layer]);
    }
    this.device.queue.submit([encoder.finish()]);
    for (const buffer of before) buffer.destroy();
    session.capacity = capacity;
  }

  drop(name) {
    const session = this.sessions.get(name);
    if (!session) return;
    for (const buffer of [...session.keys, ...session.values]) buffer.destroy();
    this.sessions.delete(name);
  }

  /** Every answer that was being written. */
  forget() {
    for (const name of [...this.sessions.keys()]) this.drop(name);
  }

  destroy() {
    this.forget();
    for (const { parts } of this.tensors.values()) for (const part of parts) part.buffer.destroy();
    this.turns.destroy();
  }

  linear(run, name, x, y, tokens, { width, offset = 0, add = 0 } = {}) {
    const { dtype, rows, columns, parts } = this.tensors.get(name);
    for (const part of parts) {
      const numbers = [columns, part.rows, tokens, part.first, width ?? rows, offset, add, 0];
      const groups = [...folded(part.rows), Math.ceil(tokens / 4)];
      run.add(this.kernels[dtype].linear, numbers, { 1: part.buffer, 2: x, 3: y }, groups);
    }
  }

  norm(run, name, x, y, tokens, first = 0) {
    const { dtype, rows, parts } = this.tensors.get(name);
    const numbers = [rows, first, float(this.config.rms_norm_eps), 0];
    run.add(this.kernels[dtype].norm, numbers, { 1: parts[0].buffer, 2: x, 3: y }, [tokens]);
  }

  rotate(run, name, x, y, heads, tokens, start, offset) {
    const { dtype, parts } = this.tensors.get(name);
    const { head_dim: size, rms_norm_eps: epsilon } = this.config;
    const numbers = [heads, size, tokens, start, offset, float(epsilon), 0, 0];
    const buffers = { 1: parts[0].buffer, 2: x, 3: y, 4: this.turns };
    run.add(this.kernels[dtype].rotate, numbers, buffers, [Math.ceil((heads * tokens) / 64)]);
  }

  /** Run `tokens` positions from `start` on; `hidden` is their activations on the GPU, and is overwritten. */
  layers(run, session, hidden, start, tokens) {
    const { hidden_size, num_attention_heads: heads, num_key_value_heads: shared, head_dim: size } = this.config;
    const { intermediate_size } = this.config;
    const length = start + tokens;
    const floats = (count) => run.scratch(count * tokens * 4);
    const normed = floats(hidden_size);
    const [query, turned, mixed] = [floats(heads * size), floats(heads * size), floats(heads * size)];
    const key = floats(shared * size);
    const shares = run.scratch(tokens * heads * length * 4);
    const [gate, up, gated] = [floats(intermediate_size), floats(intermediate_size), floats(intermediate_size)];
    const numbers = [heads, heads / shared, size, tokens, start, length, float(1 / Math.sqrt(size)), 0];
    const spread = (count) => folded(Math.ceil(count / 64));
    const { score, soften, mix, gate: gating } = this.attention;
    for (let layer = this.first; layer < this.last; layer++) {
      const at = `model.layers.${layer}.`;
      const [keys, values] = [session.keys[layer - this.first], session.values[layer - this.first]];
      const row = shared * size;
      this.norm(run, `${at}input_layernorm.weight`, hidden, normed, tokens);
      this.linear(run, `${at}self_attn.q_proj.weight`, normed, query, tokens);
      this.linear(run, `${at}self_attn.k_proj.weight`, normed, key, tokens);
      this.linear(run, `${at}self_attn.v_proj.weight`, normed, values, tokens, { offset: start * row });
      this.rotate(run, `${at}self_attn.q_norm.weight`, query, turned, heads, tokens, start, 0);
      this.rotate(run, `${at}self_attn.k_norm.weight`, key, keys, shared, tokens, start, start * row);
      run.add(score, numbers, { 1: turned, 2: keys, 3: shares }, spread(tokens * heads * length));
      run.add(soften, numbers, { 3: shares }, folded(tokens * heads));
      run.add(mix, numbers, { 2: values, 3: shares, 4: mixed }, spread(tokens * heads * size));
      this.linear(run, `${at}self_attn.o_proj.weight`, mixed, hidden, tokens, { add: 1 });
      this.norm(run, `${at}post_attention_layernorm.weight`, hidden, normed, tokens);
      this.linear(run, `${at}mlp.gate_proj.weight`, normed, gate, tokens);
      this.linear(run, `${at}mlp.up_proj.weight`, normed, up, tokens);
      const count = intermediate_size * tokens;
      run.add(gating, [0, 1, 0, 0, 0, count, 0, 0], { 1: gate, 2: up, 4: gated }, spread(count));
      this.linear(run, `${at}mlp.down_proj.weight`, gated, hidden, tokens, { add: 1 });
    }
  }

  /** Logits of the last `rows` of `tokens`. */
  logits(run, hidden, tokens, rows) {
    const { hidden_size, vocab_size } = this.config;
    const normed = run.scratch(rows * hidden_size * 4);
    const logits = run.scratch(rows * vocab_size * 4);
    this.norm(run, "model.norm.weight", hidden, normed, rows, tokens - rows);
    this.linear(run, this.tensors.has("lm_head.weight") ? "lm_head.weight" : "model.embed_tokens.weight", normed, logits, rows);
    return logits;
  }
}

/** Several stages of one model that this tab holds, one after the other; null when the KV cache is not there. */
export async function forward(device, stages, header, payload) {
  const { session: name, start, tokens, rows } = header;
  const sessions = stages.map((stage) => stage.session(name, start));
  if (sessions.includes(null)) return null;
  const run = new Run(device);
  try {
    const { hidden_size, vocab_size } = stages[0].config;
    const hidden = run.scratch(tokens * hidden_size * 4);
    device.queue.writeBuffer(hidden, 0, payload, 0, tokens * hidden_size * 4);
    stages.forEach((stage, index) => {
      stage.grow(sessions[index], start + tokens);
      stage.layers(run, sessions[index], hidden, start, tokens);
    });
    const last = stages.at(-1);
    const encoder = device.createCommandEncoder();
    const result = last.final && rows ? last.logits(run, hidden, tokens, rows) : hidden;
    const count = last.final && rows ? rows * vocab_size : last.final ? 0 : tokens * hidden_size;
    run.encode(encoder);
    const numbers = new Float32Array(await readBack(device, result, Math.max(4, count * 4), encoder));
    for (const session of sessions) session.length = start + tokens;
    return numbers.subarray(0, count);
  } finally {
    run.destroy();
  }
}

/** The `count` largest of `logits`, best first, ties by place. */
export function best(logits, count) {
  const kept = [];
  let least = -Infinity;
  for (let at = 0; at < logits.length; at++) {
    const value = logits[at];
    if (kept.length === count && !(value > least)) continue;
    let low = 0;
    let high = kept.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (logits[kept[middle]] >= value) low = middle + 1;
      else high = middle;
    }
    kept.splice(low, 0, at);
    if (kept.length > count) kept.pop();
    least = logits[kept.at(-1)];
  }
  return kept;
}
