// The tab's GPU: whether there is one that can be used, and the few things every kernel needs of it.

import { HALVES, wanted } from "./precision.js";

export class NoGpu extends Error {}

/** The adapter and a device with the largest buffers it has; a plain sentence when there is none. */
export async function openGpu() {
  if (!globalThis.isSecureContext) {
    throw new NoGpu("WebGPU needs a secure page: open this one by https, or on this machine itself.");
  }
  if (!navigator.gpu) {
    throw new NoGpu("This browser has no WebGPU. A current Chrome, Edge, Firefox or Safari has it.");
  }
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new NoGpu("This browser has WebGPU, but no graphics adapter that it may use.");
  const { maxBufferSize, maxStorageBufferBindingSize, maxComputeWorkgroupStorageSize } = adapter.limits;
  const device = await adapter.requestDevice({
    requiredFeatures: wanted(adapter.features),
    requiredLimits: { maxBufferSize, maxStorageBufferBindingSize, maxComputeWorkgroupStorageSize },
  });
  return { device, name: nameOf(adapter.info ?? {}), bits: device.features.has(HALVES) ? 16 : 32 };
}

function nameOf(info) {
  const words = [info.vendor, info.architecture, info.device, info.description].filter(Boolean);
  return (
    [...new Set(words)]
      .join(" ")
      .replace(/[^ -~]/g, "")
      .slice(0, 64) || "an adapter without a name"
  );
}

const sources = new Map();

/** The text of a file of kernels next to this module; fetched once, and again after it could not be. */
export async function source(name) {
  if (!sources.has(name)) {
    const reply = await fetch(new URL(name, import.meta.url));
    if (!reply.ok) throw new Error(`the coordinator answered ${reply.status} for ${name}`);
    sources.set(name, await reply.text());
  }
  return sources.get(name);
}

/** The kernels of a file. */
export async function shader(device, name) {
  return device.createShaderModule({ code: await source(name) });
}

export function storage(device, bytes, extra = 0) {
  return device.createBuffer({
    size: Math.max(16, Math.ceil(bytes / 16) * 16),
    usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST | extra,
  });
}

export function uniform(device, numbers) {
  const buffer = device.createBuffer({
    size: Math.ceil((numbers.length * 4) / 16) * 16,
    usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
  });
  device.queue.writeBuffer(buffer, 0, new Uint32Array(numbers));
  return buffer;
}

/** A one-dimensional count of workgroups, folded where it is above what a dimension may have. */
export function folded(count) {
  const wide = Math.min(count, 32768);
  return [wide, Math.ceil(count / wide)];
}

const FAULTS = ["validation", "out-of-memory", "internal"];

/**
 * What `work` makes of the GPU. Calls that it cannot carry out, for want of memory mostly, seem to succeed and give zeros:
 * an honest tab would be taken for a liar. So here they throw.
 */
export async function checked(device, work) {
  for (const kind of FAULTS) device.pushErrorScope(kind);
  try {
    return await work();
  } finally {
    const found = await Promise.all(FAULTS.map(() => device.popErrorScope().catch(() => null)));
    const fault = found.find(Boolean);
    if (fault) throw new Error(`the GPU could not do it: ${fault.message.split("\n")[0].slice(0, 200)}`);
  }
}

/** Bytes of a buffer, back from the GPU. */
export async function readBack(device, buffer, bytes, encoder = device.createCommandEncoder()) {
  const staging = device.createBuffer({
    size: Math.ceil(bytes / 16) * 16,
    usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
  });
  try {
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, Math.ceil(bytes / 4) * 4);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    return staging.getMappedRange().slice(0, bytes);
  } finally {
    staging.destroy();
  }
}
