// Products of matrices over the integers mod 2^32, and operands made from a seed (the same function as browser/u32.py).

struct Part {
  rows: u32,
  columns: u32,
  row: u32,
  column: u32,
  width: u32,
  side: u32,
  low: u32,
  high: u32,
}

@group(0) @binding(0) var<uniform> part: Part;
@group(0) @binding(1) var<storage, read_write> cells: array<u32>;

fn mix(value: u32) -> u32 {
  var x = value ^ (value >> 16u);
  x = x * 0x85ebca6bu;
  x = x ^ (x >> 13u);
  x = x * 0xc2b2ae35u;
  return x ^ (x >> 16u);
}

@compute @workgroup_size(64)
fn seeded(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  let at = id.x + id.y * groups.x * 64u;
  if (at >= part.rows * part.columns) {
    return;
  }
  let place = (part.row + at / part.columns) * part.width + part.column + at % part.columns;
  cells[at] = mix(mix(place * part.side + part.low) ^ (part.high + part.side));
}

struct Shape {
  rows: u32,
  inner: u32,
  columns: u32,
  unused: u32,
}

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> left: array<u32>;
@group(0) @binding(2) var<storage, read> right: array<u32>;
@group(0) @binding(3) var<storage, read_write> result: array<u32>;

// A workgroup makes 64 by 64 numbers, each invocation 4 by 4 of them, 16 terms at a time.
var<workgroup> tile_left: array<u32, 1024>;
var<workgroup> tile_right: array<u32, 1024>;

@compute @workgroup_size(16, 16)
fn multiply(
  @builtin(local_invocation_id) local: vec3u,
  @builtin(workgroup_id) group: vec3u,
  @builtin(local_invocation_index) index: u32,
) {
  var sums: array<u32, 16>;
  let first_row = group.y * 64u;
  let first_column = group.x * 64u;
  for (var start = 0u; start < shape.inner; start += 16u) {
    for (var step = 0u; step < 4u; step++) {
      let at = index + step * 256u;
      let left_row = first_row + at / 16u;
      let left_term = start + at % 16u;
      let inside_left = left_row < shape.rows && left_term < shape.inner;
      tile_left[at] = select(0u, left[min(left_row * shape.inner + left_term, arrayLength(&left) - 1u)], inside_left);
      let right_term = start + at / 64u;
      let right_column = first_column + at % 64u;
      let inside_right = right_term < shape.inner && right_column < shape.columns;
      tile_right[at] =
        select(0u, right[min(right_term * shape.columns + right_column, arrayLength(&right) - 1u)], inside_right);
    }
    workgroupBarrier();
    for (var term = 0u; term < 16u; term++) {
      for (var i = 0u; i < 4u; i++) {
        let a = tile_left[(local.y + i * 16u) * 16u + term];
        for (var j = 0u; j < 4u; j++) {
          sums[i * 4u + j] += a * tile_right[term * 64u + local.x + j * 16u];
        }
      }
    }
    workgroupBarrier();
  }
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 4u; j++) {
      let row = first_row + local.y + i * 16u;
      let column = first_column + local.x + j * 16u;
      if (row < shape.rows && column < shape.columns) {
        result[row * shape.columns + column] = sums[i * 4u + j];
      }
    }
  }
}
