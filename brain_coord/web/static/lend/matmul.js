// One unit of compute.matmul_u32: a rectangle of a product, from a seed or from operands that came with it.

import { folded, readBack, shader, storage, uniform } from "./gpu.js";

const SIDES = { a: 0x9e3779b9, b: 0x7f4a7c15 };
const pipelines = new WeakMap();

async function compiled(device) {
  if (!pipelines.has(device)) {
    const module = await shader(device, "matmul.wgsl");
    const make = (entryPoint) => device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint } });
    pipelines.set(device, Promise.all([make("seeded"), make("multiply")]));
  }
  return pipelines.get(device);
}

function bind(device, pipeline, buffers) {
  const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
  return device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
}

/**
 * The rectangle as numbers in row order.
 *
 * @param header rows, inner, columns of the rectangle; row, column of its corner; width of the whole result; and seed
 *   (low and high half), without which both operands follow as bytes.
 */
export async function multiply(device, header, payload) {
  const { rows, inner, columns, row, column, width, seed } = header;
  const [seeded, product] = await compiled(device);
  const passing = [];
  const kept = (buffer) => {
    passing.push(buffer);
    return buffer;
  };
  const left = kept(storage(device, rows * inner * 4));
  const right = kept(storage(device, inner * columns * 4));
  const result = kept(storage(device, rows * columns * 4));
  const encoder = device.createCommandEncoder();
  if (seed) {
    const fill = (buffer, numbers, count) => {
      const part = kept(uniform(device, numbers));
      const pass = encoder.beginComputePass();
      pass.setPipeline(seeded);
      pass.setBindGroup(0, bind(device, seeded, [part, buffer]));
      pass.dispatchWorkgroups(...folded(Math.ceil(count / 64)));
      pass.end();
    };
    fill(left, [rows, inner, row, 0, inner, SIDES.a, ...seed], rows * inner);
    fill(right, [inner, columns, 0, column, width, SIDES.b, ...seed], inner * columns);
  } else {
    device.queue.writeBuffer(left, 0, payload, 0, rows * inner * 4);
    device.queue.writeBuffer(right, 0, payload, rows * inner * 4, inner * columns * 4);
  }
  const shape = kept(uniform(device, [rows, inner, columns, 0]));
  const pass = encoder.beginComputePass();
  pass.setPipeline(product);
  pass.setBindGroup(0, bind(device, product, [shape, left, right, result]));
  pass.dispatchWorkgroups(Math.ceil(columns / 64), Math.ceil(rows / 64));
  pass.end();
  try {
    return new Uint32Array(await readBack(device, result, rows * columns * 4, encoder));
  } finally {
    for (const buffer of passing) buffer.destroy();
  }
}
