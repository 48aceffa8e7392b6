// What a tab can be asked to do, by the path of the job. Nothing else runs here, whatever a coordinator says.

import { checked } from "./gpu.js";
import { multiply } from "./matmul.js";
import * as stages from "./stages.js";

const text = new TextDecoder();

/** A body: the length of its JSON header, the header, and what follows. */
export function unpack(body) {
  const length = new DataView(body.buffer, body.byteOffset).getUint32(0, true);
  return [JSON.parse(text.decode(body.subarray(4, 4 + length))), body.subarray(4 + length)];
}

export function pack(header, payload = new Uint8Array(0)) {
  const head = new TextEncoder().encode(JSON.stringify(header));
  const padded = Math.ceil(head.length / 4) * 4;
  const body = new Uint8Array(4 + padded + payload.byteLength).fill(32, 4, 4 + padded);
  new DataView(body.buffer).setUint32(0, padded, true);
  body.set(head, 4);
  body.set(new Uint8Array(payload.buffer ?? payload, payload.byteOffset ?? 0, payload.byteLength), 4 + padded);
  return body;
}

async function matmul({ device }, body) {
  const [header, payload] = unpack(body);
  const numbers = await checked(device, () => multiply(device, header, payload));
  return new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
}

async function load(context, body) {
  return pack(await stages.load(context, unpack(body)[0]));
}

async function run(context, body) {
  const [header, payload] = unpack(body);
  const answer = await checked(context.device, () => stages.run(context, header, payload));
  if (answer === null) return { status: 409, content_type: "text/plain", body: new Uint8Array(0) };
  return pack({ stages: header.stages }, answer.numbers);
}

async function drop(context, body) {
  stages.drop(context, unpack(body)[0]);
  return pack({});
}

/** `works`: keeps the card busy, and counts for the owner's limit. `follows`: comes of work that was taken before a rest. */
export const KERNELS = {
  "/v1/compute/matmul": { run: matmul, says: "a matrix product", works: true },
  "/v1/stage/load": { run: load, says: "the loading of a model’s layers" },
  "/v1/stage/run": { run, says: "layers of a language model", works: true, follows: true },
  "/v1/stage/drop": { run: drop, says: "tidying up" },
};
