// The npm package: in Node, from a plain module script, and in a worker, with the command line's bytes.
import { test } from "node:test";
import assert from "node:assert/strict";
import { existsSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { browser, command, model, root } from "./site.js";

const folder = join(root, "target/npm/memfit");
const name = "gpt.dyn_train.onnx";
const flags = ["-b", "4", "--precision", "mixed-bf16", "--gpu", "rtx-3090"];
const plan = { batch_size: 4, precision: "mixed-bf16", gpu: "rtx-3090" };

test("in Node, a path and bytes give the command line's JSON", async () => {
  const { gpusJson, load, open } = await import(join(folder, "node.js"));
  await load();
  const opened = open(model(name));
  assert.equal(opened.estimateJson(plan), command("estimate", model(name), ...flags, "--format", "json"));
  assert.equal(opened.inspectJson({ batch_size: 4 }), command("inspect", model(name), "-b", "4", "--format", "json"));
  const search = { gpus: ["rtx-3060", "t4"], precisions: ["fp32", "mixed-fp16"] };
  const typed = command("fit", model(name), "--gpu", "rtx-3060,t4", "--precision", "fp32,mixed-fp16", "--format", "json");
  assert.equal(opened.fitJson({}, search), typed);
  const much = { ...plan, batch_size: 512 };
  const advised = ["-b", "512", ...flags.slice(2)];
  assert.equal(opened.adviseJson(much), command("advise", model(name), ...advised, "--format", "json"));
  // What a change makes of the plan is a plan.
  const change = opened.advise(much).changes[0];
  assert.equal(opened.estimate({ ...much, ...change.plan }).peak.device_bytes, change.result.device_bytes);
  assert.throws(() => opened.advise({ batch_size: 4 }), /no card is named/);
  assert.equal(gpusJson(), command("gpus", "--format", "json"));
  const again = open(readFileSync(model(name)), name);
  assert.deepEqual(again.estimate(plan), JSON.parse(opened.estimateJson(plan)));
  assert.equal(again.name, "gpt.dyn_train");
});

test("a failure lists its problems", async () => {
  const { load, open } = await import(join(folder, "node.js"));
  await load();
  try {
    open(readFileSync(model(name)).subarray(0, 1000), name);
    assert.fail("it was opened");
  } catch (error) {
    assert.equal(error.name, "MemfitError");
    assert.ok(error.problems.length > 0 && error.problems[0].message.includes("cut off"), error.message);
  }
  assert.throws(() => open(readFileSync(model(name)), name).estimate({ batchsize: 4 }), /batchsize/);
});

test("types are declared for what is exported", () => {
  const types = readFileSync(join(folder, "memfit.d.ts"), "utf8");
  for (const word of ["interface Estimate", "interface Plan", "interface Advice", "class Model", "fit(", "advise(", "gpus()"]) {
    assert.ok(types.includes(word), word);
  }
});

test("a plain module script opens bytes, a worker opens a file", async () => {
  const kinds = { ".js": "text/javascript", ".wasm": "application/wasm", ".html": "text/html", ".onnx": "application/octet-stream" };
  const pages = {
    "/page.html": "<!doctype html><title>-</title><script type=module src=page.js></script>",
    "/page.js": `import { load, open } from "/memfit/index.js";
      await load();
      const bytes = new Uint8Array(await (await fetch("/model.onnx")).arrayBuffer());
      const worker = new Worker("worker.js", { type: "module" });
      worker.postMessage(new Blob([bytes]));
      const far = await new Promise((resolve) => { worker.onmessage = (event) => resolve(event.data); });
      window.said = [open(bytes, ${JSON.stringify(name)}).estimateJson(${JSON.stringify(plan)}), far];`,
    "/worker.js": `import { load, open } from "/memfit/index.js";
      const loaded = load();
      self.onmessage = async (event) => {
        await loaded;
        self.postMessage(open(event.data, ${JSON.stringify(name)}).estimateJson(${JSON.stringify(plan)}));
      };`,
  };
  const server = createServer((request, response) => {
    const path = request.url.split("?")[0];
    const file = path === "/model.onnx" ? model(name) : join(folder, path.replace("/memfit", ""));
    const known = path in pages || (existsSync(file) && statSync(file).isFile());
    response.writeHead(known ? 200 : 404, { "content-type": kinds[extname(path)] ?? "text/plain" });
    response.end(path in pages ? pages[path] : known ? readFileSync(file) : "");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const chromium = await browser();
  try {
    const page = await (await chromium.newContext()).newPage();
    await page.goto(`http://127.0.0.1:${server.address().port}/page.html`);
    await page.waitForFunction(() => window.said, undefined, { timeout: 60_000 });
    const said = await page.evaluate(() => window.said);
    const typed = command("estimate", model(name), ...flags, "--format", "json");
    assert.deepEqual(said, [typed, typed]);
  } finally {
    await chromium.close();
    server.close();
  }
});
