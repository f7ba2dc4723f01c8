// The npm package: in Node, from a plain module script, in a worker and from a bundler, with the command line's bytes; its types.
import { test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { browser, command, model, modules, root } from "./site.js";

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

test("a Keras file is opened with what it does not say", async () => {
  const { load, open } = await import(join(folder, "node.js"));
  await load();
  const unbuilt = model("keras/sequential_unbuilt.keras");
  assert.throws(() => open(unbuilt), /saved before it was built/);
  const input = { input_layer: [8, 32, 32, 3] };
  const built = open(unbuilt, undefined, { input });
  const typed = command("estimate", unbuilt, "--input", "input_layer:8x32x32x3", "-b", "8", "--format", "json");
  assert.equal(built.estimateJson({ batch_size: 8, input }), typed);
  const layer = { scale: { shape: [64], params: 64, state: 1 } };
  const custom = open(model("keras/custom_layer.keras"), undefined, { layer });
  const flags = ["-b", "8", "--layer", "scale:shape=64,params=64,state=1", "--run-eagerly", "--format", "json"];
  assert.equal(custom.estimateJson({ batch_size: 8, layer, run_eagerly: true }), command("estimate", model("keras/custom_layer.keras"), ...flags));
});

test("types are declared for what is exported", () => {
  const types = readFileSync(join(folder, "memfit.d.ts"), "utf8");
  for (const word of ["interface Estimate", "interface Plan", "interface Advice", "class Model", "fit(", "advise(", "gpus()"]) {
    assert.ok(types.includes(word), word);
  }
});

/** A folder with the package installed and these files. */
function project(at, files) {
  rmSync(at, { recursive: true, force: true });
  mkdirSync(join(at, "node_modules"), { recursive: true });
  cpSync(folder, join(at, "node_modules/memfit"), { recursive: true });
  for (const [path, text] of Object.entries(files)) writeFileSync(join(at, path), text);
  return at;
}

/** Runs a program of an npm package. */
function tool(path, words, cwd) {
  const run = spawnSync(process.execPath, [join(modules, path), ...words], { cwd, encoding: "utf8", timeout: 120_000 });
  assert.equal(run.status, 0, run.stdout + run.stderr);
}

test("types hold what is right and refuse what is wrong", () => {
  const text = `import { load, open, gpus, type Advice, type Estimate, type MemfitError, type Plan } from "memfit";
    await load();
    const model = open(new Uint8Array(), "x.keras", { layer: { scale: { params: 64 } } });
    const plan: Plan = { batch_size: 8, run_eagerly: true, tensor_parallel: 2, allocator: { memory_growth: true } };
    const estimate: Estimate = model.estimate(plan);
    const bytes: number = estimate.peak.device_bytes + gpus().gpus[0].memory_bytes + model.fit(plan, { gpus: ["t4"] }).results[0].max_size;
    const advice: Advice = model.advise({ ...plan, ...model.advise(plan).changes[0].plan });
    // @ts-expect-error: no such word
    model.estimate({ precision: "fp8" });
    // @ts-expect-error: no such key
    model.estimate({ batchsize: 8 });
    export const all: [number, Advice, MemfitError | undefined] = [bytes, advice, undefined];
  `;
  for (const resolution of ["bundler", "nodenext"]) {
    const module = resolution === "nodenext" ? resolution : "esnext";
    const options = { strict: true, noEmit: true, target: "esnext", module, moduleResolution: resolution, lib: ["esnext", "dom"], types: [] };
    const files = { "use.ts": text, "tsconfig.json": JSON.stringify({ compilerOptions: options, files: ["use.ts"] }), "package.json": '{"type":"module"}' };
    tool("typescript/bin/tsc", ["--project", "."], project(join(root, "target/web/typed"), files));
  }
});

test("a bundler takes the module along", async () => {
  const at = project(join(root, "target/web/bundled"), {
    "index.html": '<!doctype html><title>-</title><script type="module" src="main.js"></script>',
    "main.js": `import { load, open } from "memfit";
      await load();
      const bytes = new Uint8Array(await (await fetch("/model.onnx")).arrayBuffer());
      window.said = open(bytes, ${JSON.stringify(name)}).estimateJson(${JSON.stringify(plan)});`,
    "package.json": '{"type":"module","dependencies":{"memfit":"*"}}',
  });
  tool("vite/bin/vite.js", ["build", "--logLevel", "error", "--target", "esnext"], at);
  assert.equal(await said((path) => (path === "/model.onnx" ? model(name) : join(at, "dist", path === "/page.html" ? "index.html" : path))), command("estimate", model(name), ...flags, "--format", "json"));
});

test("a plain module script opens bytes, a worker opens a file", async () => {
  const at = project(join(root, "target/web/plain"), {
    "page.html": "<!doctype html><title>-</title><script type=module src=page.js></script>",
    "page.js": `import { load, open } from "/node_modules/memfit/index.js";
      await load();
      const bytes = new Uint8Array(await (await fetch("/model.onnx")).arrayBuffer());
      const worker = new Worker("worker.js", { type: "module" });
      worker.postMessage(new Blob([bytes]));
      const far = await new Promise((resolve) => { worker.onmessage = (event) => resolve(event.data); });
      window.said = [open(bytes, ${JSON.stringify(name)}).estimateJson(${JSON.stringify(plan)}), far];`,
    "worker.js": `import { load, open } from "/node_modules/memfit/index.js";
      const loaded = load();
      self.onmessage = async (event) => {
        await loaded;
        self.postMessage(open(event.data, ${JSON.stringify(name)}).estimateJson(${JSON.stringify(plan)}));
      };`,
  });
  const typed = command("estimate", model(name), ...flags, "--format", "json");
  assert.deepEqual(await said((path) => (path === "/model.onnx" ? model(name) : join(at, path))), [typed, typed]);
});

/** What `/page.html` of a server says, which finds its files so. */
async function said(find) {
  const kinds = { ".js": "text/javascript", ".wasm": "application/wasm", ".html": "text/html" };
  const server = createServer((request, response) => {
    const path = request.url.split("?")[0];
    const file = find(path);
    const known = existsSync(file) && statSync(file).isFile();
    response.writeHead(known ? 200 : 404, { "content-type": kinds[extname(path)] ?? "application/octet-stream" });
    response.end(known ? readFileSync(file) : "");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const chromium = await browser();
  try {
    const page = await (await chromium.newContext()).newPage();
    await page.goto(`http://127.0.0.1:${server.address().port}/page.html`);
    await page.waitForFunction(() => window.said, undefined, { timeout: 60_000 });
    return await page.evaluate(() => window.said);
  } finally {
    await chromium.close();
    server.close();
  }
}
