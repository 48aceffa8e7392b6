// Weights of a stage: fetched piece by piece, each checked by its hash, kept in the browser's cache, put on the GPU.

import { hex, sha256 } from "./identity.js";
import { storage } from "./gpu.js";

const CACHE = "brain-weights";
const AT_ONCE = 4;

async function piece({ base, ticket, signal }, { sha256: wanted }, cache) {
  const url = `${base}/lend/pieces/${wanted}`;
  const kept = await cache?.match(url);
  if (kept) {
    const bytes = await kept.arrayBuffer();
    if (hex(await sha256(bytes)) === wanted) return [bytes, true];
    await cache.delete(url);
  }
  const reply = await fetch(url, { headers: { authorization: `Bearer ${ticket}` }, signal });
  if (!reply.ok) throw new Error(`the coordinator answered ${reply.status} for a piece of weights`);
  const bytes = await reply.arrayBuffer();
  if (hex(await sha256(bytes)) !== wanted) throw new Error("a piece of weights is not what was promised");
  await cache?.put(url, new Response(bytes.slice(0))).catch(() => {}); // a full disk only costs the next load its time
  return [bytes, false];
}

/**
 * The tensors of a stage as GPU buffers, by name; a matrix above what a shader may bind is cut by rows.
 *
 * @returns tensors, and how many bytes there are and came from the cache.
 */
export async function loadTensors(context, tensors, progress) {
  const { device } = context;
  const cache = await globalThis.caches?.open(CACHE).catch(() => null);
  const total = tensors.reduce((sum, tensor) => sum + tensor.bytes, 0);
  const loaded = new Map();
  const jobs = [];
  let done = 0;
  let cached = 0;
  for (const tensor of tensors) {
    const [rows, columns = 1] = tensor.shape;
    const rowBytes = tensor.bytes / rows;
    const most = Math.max(1, Math.floor(device.limits.maxStorageBufferBindingSize / rowBytes));
    const even = rowBytes % 4 === 0 ? most : Math.max(2, most - (most % 2));
    const parts = [];
    for (let first = 0; first < rows; first += even) {
      const count = Math.min(even, rows - first);
      parts.push({ buffer: storage(device, count * rowBytes), first, rows: count });
    }
    loaded.set(tensor.name, { dtype: tensor.dtype, rows, columns, parts, rowBytes });
    let offset = 0;
    for (const each of tensor.pieces) {
      jobs.push({ piece: each, tensor: tensor.name, offset });
      offset += each.bytes;
    }
  }
  const work = async () => {
    for (let job = jobs.shift(); job; job = jobs.shift()) {
      context.signal?.throwIfAborted();
      const [bytes, was] = await piece(context, job.piece, cache);
      place(device, loaded.get(job.tensor), job.offset, bytes);
      done += bytes.byteLength;
      if (was) cached += bytes.byteLength;
      progress(done, total);
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  } catch (error) {
    for (const { parts } of loaded.values()) for (const part of parts) part.buffer.destroy();
    throw error;
  }
  return { tensors: loaded, bytes: total, cached };
}

/** A piece may end one part of a matrix and begin the next. */
function place(device, { parts, rowBytes }, offset, bytes) {
  for (const part of parts) {
    const begin = part.first * rowBytes;
    const from = Math.max(offset, begin);
    const to = Math.min(offset + bytes.byteLength, begin + part.rows * rowBytes);
    if (to <= from) continue;
    let data = new Uint8Array(bytes, from - offset, to - from);
    if (data.byteLength % 4) {
      const padded = new Uint8Array(Math.ceil(data.byteLength / 4) * 4);
      padded.set(data);
      data = padded;
    }
    device.queue.writeBuffer(part.buffer, from - begin, data);
  }
}
