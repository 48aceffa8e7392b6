// How wide the numbers are that a matrix product multiplies: 16 bits where the adapter has them, 32 otherwise.
// Sums are of 32 bits either way, so that two tabs of unlike cards still agree.

export const HALVES = "shader-f16";

/** What a device has to be asked for, of the features that its adapter has. */
export const wanted = (features) => (features.has(HALVES) ? [HALVES] : []);

const NARROW = {
  f32: `alias half = f32;
fn narrow(v: vec4f) -> vec4<half> { return v; }`,
  f16: `enable f16;
alias half = f16;
fn narrow(v: vec4f) -> vec4<half> { return vec4<half>(clamp(v, vec4f(-65504.0), vec4f(65504.0))); }`,
};

const WORDS = "@group(0) @binding(1) var<storage, read> weights: array<u32>;";

// One weight, and two at an even place. Two bytes a weight stay two bytes on the card.
const READERS = {
  F32: `${WORDS}
fn weight(at: u32) -> f32 { return bitcast<f32>(weights[at]); }
fn pair(at: u32) -> vec2f { return vec2f(weight(at), weight(at + 1u)); }`,
  BF16: `${WORDS}
fn weight(at: u32) -> f32 {
  return bitcast<f32>(select(weights[at / 2u] << 16u, weights[at / 2u] & 0xffff0000u, (at & 1u) == 1u)); }
fn pair(at: u32) -> vec2f {
  let both = weights[at / 2u];
  return vec2f(bitcast<f32>(both << 16u), bitcast<f32>(both & 0xffff0000u)); }`,
  F16: `${WORDS}
fn weight(at: u32) -> f32 { return unpack2x16float(weights[at / 2u])[at & 1u]; }
fn pair(at: u32) -> vec2f { return unpack2x16float(weights[at / 2u]); }`,
};

const NATIVE = `@group(0) @binding(1) var<storage, read> weights: array<vec2<f16>>;
fn weight(at: u32) -> f32 { return f32(weights[at / 2u][at & 1u]); }
fn pair(at: u32) -> vec2f { return vec2f(weights[at / 2u]); }`;

/** What stands before the kernels for weights of one kind. */
export function head(dtype, halves) {
  const reader = halves && dtype === "F16" ? NATIVE : READERS[dtype];
  return `${NARROW[halves ? "f16" : "f32"]}\n${reader}\n`;
}
