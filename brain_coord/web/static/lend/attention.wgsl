// Grouped-query attention over the KV cache, and the gate of the feed-forward part.

struct Attention {
  heads: u32,
  per_key: u32, // heads that share a key and a value
  size: u32, // of a head
  tokens: u32,
  start: u32, // position of the first token
  length: u32, // positions in the cache
  scale: f32,
  unused: u32,
}

@group(0) @binding(0) var<uniform> shape: Attention;
@group(0) @binding(1) var<storage, read> queries: array<f32>;
@group(0) @binding(2) var<storage, read> cache: array<f32>;
@group(0) @binding(3) var<storage, read_write> shares: array<f32>;
@group(0) @binding(4) var<storage, read_write> mixed: array<f32>;

@compute @workgroup_size(64)
fn score(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  let at = id.x + id.y * groups.x * 64u;
  if (at >= shape.tokens * shape.heads * shape.length) {
    return;
  }
  let position = at % shape.length;
  let row = at / shape.length; // token and head
  let head = row % shape.heads;
  if (position > shape.start + row / shape.heads) {
    shares[at] = -3.0e38;
    return;
  }
  let begin = row * shape.size;
  let key = (position * (shape.heads / shape.per_key) + head / shape.per_key) * shape.size;
  var sum = 0.0;
  for (var i = 0u; i < shape.size; i++) {
    sum += queries[begin + i] * cache[key + i];
  }
  shares[at] = sum * shape.scale;
}

var<workgroup> folded: array<f32, 64>;

@compute @workgroup_size(64)
fn soften(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) index: u32,
) {
  let row = group.x + group.y * groups.x;
  if (row >= shape.tokens * shape.heads) {
    return;
  }
  let begin = row * shape.length;
  var most = -3.0e38;
  for (var at = index; at < shape.length; at += 64u) {
    most = max(most, shares[begin + at]);
  }
  folded[index] = most;
  for (var half = 32u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (index < half) {
      folded[index] = max(folded[index], folded[index + half]);
    }
  }
  workgroupBarrier();
  most = folded[0];
  workgroupBarrier();
  var sum = 0.0;
  for (var at = index; at < shape.length; at += 64u) {
    let value = exp(shares[begin + at] - most);
    shares[begin + at] = value;
    sum += value;
  }
  folded[index] = sum;
  for (var half = 32u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (index < half) {
      folded[index] += folded[index + half];
    }
  }
  workgroupBarrier();
  let whole = folded[0];
  for (var at = index; at < shape.length; at += 64u) {
    shares[begin + at] = shares[begin + at] / whole;
  }
}

@compute @workgroup_size(64)
fn mix(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  let at = id.x + id.y * groups.x * 64u;
  if (at >= shape.tokens * shape.heads * shape.size) {
    return;
  }
  let row = at / shape.size;
  let head = row % shape.heads;
  let stride = (shape.heads / shape.per_key) * shape.size;
  var value = (head / shape.per_key) * shape.size + at % shape.size;
  let end = shape.start + row / shape.heads;
  var sum = 0.0;
  for (var position = 0u; position <= end; position++) {
    sum += shares[row * shape.length + position] * cache[value];
    value += stride;
  }
  mixed[at] = sum;
}

// The gate: silu(gate) · up, over `length` numbers.
@compute @workgroup_size(64)
fn gate(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  let at = id.x + id.y * groups.x * 64u;
  if (at < shape.length) {
    let value = queries[at];
    mixed[at] = value / (1.0 + exp(-value)) * cache[at];
  }
}
