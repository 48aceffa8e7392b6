// The forward pass of Qwen3, kernel by kernel, in 32-bit floats but for the operands of products. What stands before this file
// (see precision.js) tells how wide those are, and how a weight is read:
//   half, fn narrow(v: vec4f) -> vec4<half>
//   fn weight(at: u32) -> f32          one weight
//   fn pair(at: u32) -> vec2f          two, at an even place
// and declares `weights` as binding 1 of group 0.

struct Linear {
  inner: u32,
  outputs: u32,
  tokens: u32,
  first: u32, // of the outputs, where a matrix is cut into several buffers
  width: u32, // of a token's outputs
  offset: u32, // where the first token's outputs stand
  add: u32, // whether they are added to what stands there
  unused: u32,
}

@group(0) @binding(0) var<uniform> linear_of: Linear;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

var<workgroup> partial: array<vec4f, 32>;

// One output of four tokens in a workgroup, so that a weight that was read serves all four. There is one barrier only:
// adapters that run on a CPU pay for each.
@compute @workgroup_size(32)
fn linear(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) index: u32,
) {
  let output = group.x + group.y * groups.x;
  if (output >= linear_of.outputs) {
    return;
  }
  let inner = linear_of.inner;
  let last = linear_of.tokens - 1u;
  let token = group.z * 4u;
  let rows = vec4u(token, min(token + 1u, last), min(token + 2u, last), min(token + 3u, last)) * inner;
  var sum = vec4f();
  for (var at = index * 2u; at < inner; at += 64u) {
    let w = vec2<half>(pair(output * inner + at));
    let even = narrow(vec4f(x[rows.x + at], x[rows.y + at], x[rows.z + at], x[rows.w + at]));
    let odd = narrow(vec4f(x[rows.x + at + 1u], x[rows.y + at + 1u], x[rows.z + at + 1u], x[rows.w + at + 1u]));
    sum += f32(w.x) * vec4f(even) + f32(w.y) * vec4f(odd);
  }
  partial[index] = sum;
  workgroupBarrier();
  if (index < 4u && token + index < linear_of.tokens) {
    let at = linear_of.offset + (token + index) * linear_of.width + linear_of.first + output;
    var whole = select(0.0, y[at], linear_of.add != 0u);
    for (var i = 0u; i < 32u; i++) {
      whole += partial[i][index];
    }
    y[at] = whole;
  }
}

struct Norm {
  width: u32,
  first: u32, // of the tokens
  epsilon: f32,
  unused: u32,
}

@group(0) @binding(0) var<uniform> norm_of: Norm;

var<workgroup> squares: array<f32, 64>;

@compute @workgroup_size(64)
fn norm(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let width = norm_of.width;
  let begin = (norm_of.first + group.x) * width;
  var sum = 0.0;
  for (var at = index; at < width; at += 64u) {
    sum += x[begin + at] * x[begin + at];
  }
  squares[index] = sum;
  for (var half = 32u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (index < half) {
      squares[index] += squares[index + half];
    }
  }
  workgroupBarrier();
  let scale = inverseSqrt(squares[0] / f32(width) + norm_of.epsilon);
  for (var at = index; at < width; at += 64u) {
    y[group.x * width + at] = weight(at) * (x[begin + at] * scale);
  }
}

struct Heads {
  heads: u32,
  size: u32, // of a head
  tokens: u32,
  start: u32, // position of the first token
  offset: u32, // where its outputs stand
  epsilon: f32,
  unused_a: u32,
  unused_b: u32,
}

@group(0) @binding(0) var<uniform> heads_of: Heads;
@group(0) @binding(4) var<storage, read> turns: array<vec2f>; // cosine and sine, by position and half a head

// A head of a token: normalised, then turned by its position.
@compute @workgroup_size(64)
fn rotate(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= heads_of.heads * heads_of.tokens) {
    return;
  }
  let size = heads_of.size;
  let half = size / 2u;
  let begin = id.x * size;
  let token = id.x / heads_of.heads;
  var sum = 0.0;
  for (var at = 0u; at < size; at++) {
    sum += x[begin + at] * x[begin + at];
  }
  let scale = inverseSqrt(sum / f32(size) + heads_of.epsilon);
  for (var at = 0u; at < half; at++) {
    let turn = turns[(heads_of.start + token) * half + at];
    let left = weight(at) * (x[begin + at] * scale);
    let right = weight(at + half) * (x[begin + at + half] * scale);
    y[heads_of.offset + begin + at] = left * turn.x - right * turn.y;
    y[heads_of.offset + begin + at + half] = right * turn.x + left * turn.y;
  }
}
