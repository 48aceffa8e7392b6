"""Products of 16-bit numbers where the adapter has them, of 32-bit ones otherwise: which is chosen, and that both compile."""

import pytest
import pytest_asyncio

from tests.support.tabs import webgpu_browser

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

COMPILE = """async ([dtype, halves, replace]) => {
  const { head } = await import("/network/static/lend/precision.js");
  const file = await (await fetch("/network/static/lend/qwen3.wgsl")).text();
  const adapter = await navigator.gpu.requestAdapter();
  const { wanted } = await import("/network/static/lend/precision.js");
  const device = await adapter.requestDevice({ requiredFeatures: wanted(adapter.features) });
  let code = head(dtype, halves) + file;
  if (replace) code = code.replace("enable f16;", "").replaceAll("f16", "f32");
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code });
  const faults = (await module.getCompilationInfo()).messages.filter((each) => each.type === "error");
  const entries = [];
  if (!faults.length)
    for (const entryPoint of ["linear", "norm", "rotate"]) {
      await device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint } });
      entries.push(entryPoint);
    }
  await device.popErrorScope();
  return { faults: faults.map((each) => each.message), entries, has: adapter.features.has("shader-f16") };
}"""

OPEN = """async (features) => {
  const asked = [];
  const device = { features: new Set(features) };
  const adapter = {
    features: new Set(features),
    limits: { maxBufferSize: 1, maxStorageBufferBindingSize: 1, maxComputeWorkgroupStorageSize: 1 },
    info: { vendor: "made up" },
    requestDevice: async (wish) => { asked.push(...wish.requiredFeatures); return device; },
  };
  Object.defineProperty(navigator, "gpu", { value: { requestAdapter: async () => adapter }, configurable: true });
  const { openGpu } = await import("/network/static/lend/gpu.js");
  const { bits } = await openGpu();
  const { head, HALVES } = await import("/network/static/lend/precision.js");
  return { asked, bits, begins: head("BF16", device.features.has(HALVES)).split("\\n")[0] };
}"""


@pytest_asyncio.fixture(loop_scope="module")
async def page(coordinator):
    async with webgpu_browser() as browser:
        page = await browser.new_page()
        await page.goto(f"{coordinator.url}/lend")
        yield page


async def test_halves_are_asked_for_where_the_adapter_has_them_and_only_there(page):
    has = await page.evaluate(OPEN, ["timestamp-query", "shader-f16"])
    assert has == {"asked": ["shader-f16"], "bits": 16, "begins": "enable f16;"}
    hasnt = await page.evaluate(OPEN, ["timestamp-query"])
    assert hasnt == {"asked": [], "bits": 32, "begins": "alias half = f32;"}


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
async def test_the_kernels_compile_for_both(page, dtype):
    whole = ["linear", "norm", "rotate"]
    plain = await page.evaluate(COMPILE, [dtype, False, False])
    assert (plain["faults"], plain["entries"]) == ([], whole)
    # Where the adapter has no halves the source for them is checked with another name for the type: all else is the same.
    renamed = await page.evaluate(COMPILE, [dtype, True, True])
    assert (renamed["faults"], renamed["entries"]) == ([], whole)
    halves = await page.evaluate(COMPILE, [dtype, True, False])
    if halves["has"]:
        assert (halves["faults"], halves["entries"]) == ([], whole)
    else:
        assert halves["faults"] == ["extension 'f16' is not allowed in the current environment"]
