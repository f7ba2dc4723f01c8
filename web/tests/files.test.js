// Files: every number on the page is the command line's; damaged and huge files; nothing freezes and nothing is uploaded.
import { after, before, test } from "node:test";
import assert from "node:assert/strict";
import { closeSync, existsSync, ftruncateSync, mkdirSync, openSync, readFileSync, readdirSync, rmSync, writeSync } from "node:fs";
import { basename, join } from "node:path";
import { browser, choose, command, download, drop, estimate, large, model, open, root, serve, verdict } from "./site.js";

let site, chromium;
before(async () => {
  [site, chromium] = await Promise.all([serve(), browser()]);
});
after(async () => {
  await chromium?.close();
  site?.stop();
});

const keras = join(root, "../shared/corpus/keras");
const files = ["resnet50.ts_train.onnx", "gpt.dyn_train.onnx", "vit.ts_eval_b1.onnx", "lstm.ts_train.onnx"].map(model);
for (const kind of [".keras", ".json", ".h5"]) {
  const found = existsSync(keras) ? readdirSync(keras).filter((file) => file.endsWith(kind) && file !== "index.json") : [];
  if (found.length > 0) files.push(join(keras, found[0]));
  else console.log(`no ${kind} file lies beside this repository; that format is not dropped`);
}
for (const path of files) {
  const name = basename(path);
  test(`${name}: the page's JSON is the command line's, byte for byte`, async () => {
    const context = await chromium.newContext();
    const page = await open(context, site.address);
    await choose(page, path);
    await verdict(page);
    await estimate(page);
    const words = (await page.locator(".command code").innerText()).split(" ").slice(2);
    const typed = command("estimate", path, ...words.slice(1), "--format", "json");
    assert.ok(words.includes("--gpu"));
    assert.equal(await download(page, "JSON"), typed);
    assert.deepEqual(page.errors, []);
    await context.close();
  });
}

// Every choice of the page, a few at a time, on files of both formats.
const PLANS = {
  "gpt.dyn_train.onnx": [
    "batch=4&gpu=a100-80gb&precision=mixed-fp16&optimizer=sgd&impl=loop&accumulate=3&checkpoint=block&loss=mse&validation=8",
    "batch=4&gpu=rtx-3060&gpus=8&tensor=2&stages=2&parallel=zero1&ema=1&weight-decay=1&keep-gradients=1",
    "batch=2&gpu=t4&tensor=2&others=1500&display=1&prefetch=2&predict=3&stale=1&composed-attention=1&autocast-backward=1&precision=mixed-bf16",
    "batch=8&gpu=a100-40gb:3g.20gb&expandable=1&alloc=max_split_size_mb:128&fraction=80&async-pool=1&precision=bf16&master-weights=1",
    "batch=8&gpu=24GiB&alloc=garbage_collection_threshold:0.8,roundup_power2_divisions:4&mode=infer&freeze=transformer.*",
    "batch=8&gpu=rtx-4090&framework=burn&optimizer=adamw&growth=1",
    "batch=8&gpu=rtx-4090&growth=1&limit=4000&clip-norm=1",
  ],
  "resnet18.dyn_eval.onnx": [
    "batch=16&gpu=t4&assume-batchnorm=1&cudnn-benchmark=1&channels-last=1",
    "batch=64&gpu=t4&input.x=64x3x96x96",
    "batch=16&gpu=v100-16gb&framework=tensorflow&limit=8000&no-loss-scale=1&precision=mixed-fp16&run-eagerly=1&no-xla=1",
  ],
  "gpt.ts_eval_b1.onnx": ["batch=4&gpu=t4&tied=no&assume-dropout=1", "batch=4&gpu=t4&tied=yes"],
  "keras/lenet.keras": [
    "batch=64&gpu=t4&run-eagerly=1&optimizer=adamw&clip-norm=1&weight-decay=1",
    "batch=64&gpu=t4&no-xla=1&growth=1&steps=4&validation=128&prefetch=2",
    "batch=64&gpu=t4&framework=pytorch&optimizer=sgd&expandable=1",
    "batch=64&gpu=t4&precision=mixed-fp16&no-loss-scale=1&fraction=50&mode=infer&expandable=1&async-pool=1",
  ],
  "keras/transformer_block.keras": ["batch=32&gpu=l4&precision=mixed-bf16&optimizer=lion&ema=1&accumulate=2&limit=9000&gpus=4&parallel=zero2"],
};
for (const [file, plans] of Object.entries(PLANS)) {
  test(`${file}: every choice gives the command line's JSON`, async () => {
    const context = await chromium.newContext();
    const page = await open(context, site.address);
    const path = model(file);
    await choose(page, path);
    await verdict(page);
    for (const plan of plans) {
      await page.evaluate((fragment) => void (location.hash = fragment), `file=${encodeURIComponent(basename(path))}&${plan}`);
      await page.waitForFunction((plan) => new URLSearchParams(plan).get("batch") === document.querySelector("#batch")?.value, plan);
      await page.locator(`.columns[data-settled="true"]`).waitFor();
      const words = spoken(await page.locator(".command code").innerText()).slice(3);
      assert.equal(await download(page, "JSON"), command("estimate", path, ...words, "--format", "json"), words.join(" "));
    }
    assert.deepEqual(page.errors, []);
    await context.close();
  });
}

/** The words of a command, as a shell reads them. */
const spoken = (text) => [...text.matchAll(/(?:[^\s']|'[^']*')+/g)].map(([word]) => word.replaceAll("'", ""));

test("a Keras model that was saved before it was built is told its input, and the batch of a shape is the slider's", async () => {
  const path = model("keras/sequential_unbuilt.keras");
  const context = await chromium.newContext();
  const page = await open(context, site.address);
  await choose(page, path);
  await page.getByText(/saved before it was built/).waitFor();
  await page.locator("#tell-input").fill("32 32 3");
  await page.locator("#tell-input").press("Tab");
  await page.getByText(/expected sizes/).waitFor();
  await page.locator("#tell-input").fill("16x32x32x3");
  await page.locator("#tell-input").press("Tab");
  await verdict(page);
  await page.locator("#slider").fill("63");
  await estimate(page);
  const words = spoken(await page.locator(".command code").innerText()).slice(3);
  assert.ok(words.includes("input_layer:256x32x32x3"), words.join(" "));
  assert.equal(await download(page, "JSON"), command("estimate", path, ...words, "--format", "json"));
  // A curve that rises.
  await page.locator(".line").waitFor();
  const points = (await page.locator(".line").getAttribute("points")).split(" ").map((point) => Number(point.split(",")[1]));
  assert.ok(points.at(-1) < points[0], points.join(" "));
  await context.close();
});

test("custom layers of a Keras model are told", async () => {
  const path = model("keras/custom_layer.keras");
  const context = await chromium.newContext();
  const page = await open(context, site.address);
  await choose(page, path);
  await verdict(page);
  await page.getByText(/not one of Keras' own layers/).first().waitFor();
  await page.locator("summary", { hasText: "Input shapes" }).click();
  await page.locator("#layers-told").fill("scale:shape=64,params=64,state=1");
  await page.locator("#layers-told").press("Tab");
  await page.getByText(/not one of Keras' own layers/).waitFor({ state: "detached" });
  await estimate(page);
  const words = spoken(await page.locator(".command code").innerText()).slice(3);
  assert.equal(await download(page, "JSON"), command("estimate", path, ...words, "--format", "json"));
  await context.close();
});

test("a slow disk shows how far it is, and another file does not wait for it", async () => {
  const context = await chromium.newContext({ serviceWorkers: "block" });
  // Each slice takes a while.
  await context.route(/worker\.js$/, async (route) => {
    const response = await route.fetch();
    const slow = `const read = FileReaderSync.prototype.readAsArrayBuffer;
      FileReaderSync.prototype.readAsArrayBuffer = function (blob) {
        for (const end = performance.now() + (blob.size > 8 ? 400 : 0); performance.now() < end; );
        return read.call(this, blob);
      };`;
    await route.fulfill({ response, body: (await response.text()) + slow });
  });
  const page = await open(context, site.address);
  const file = { name: "slow.onnx", mimeType: "application/octet-stream", buffer: readFileSync(model("unet.ts_train.onnx")) };
  await choose(page, file);
  await page.getByRole("progressbar").waitFor();
  await drop(page, "mlp.onnx", readFileSync(model("mlp.ts_train.onnx")));
  await page.getByRole("heading", { name: "mlp", exact: true }).waitFor();
  await choose(page, file);
  await page.getByRole("progressbar").waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("heading", { name: "Drop a model here" }).waitFor();
  assert.deepEqual(page.errors, []);
  await context.close();
});

test("a file dropped anywhere on the page is opened", async () => {
  const context = await chromium.newContext();
  const page = await open(context, site.address);
  await drop(page, "unet.onnx", readFileSync(model("unet.ts_train.onnx")));
  assert.match(await verdict(page), /RTX 4090/);
  await page.getByRole("heading", { name: "unet", exact: true }).waitFor();
  await context.close();
});

test("a model whose weights lie beside it is opened with or without them", async () => {
  const context = await chromium.newContext();
  const page = await open(context, site.address);
  const weights = { name: "weights.bin.data", mimeType: "application/octet-stream", buffer: Buffer.alloc(1000) };
  const file = { name: "beside.onnx", mimeType: "application/octet-stream", buffer: readFileSync(large) };
  await choose(page, [weights, file]);
  await verdict(page);
  await page.getByRole("heading", { name: "beside", exact: true }).waitFor();
  assert.deepEqual(page.errors, []);
  await context.close();
});

test("documents are those of the command line", async () => {
  const path = model("mobilenet_v2.ts_train.onnx");
  const context = await chromium.newContext();
  const page = await open(context, site.address);
  await choose(page, path);
  await verdict(page);
  await estimate(page);
  const flags = ["-b", "32", "--gpu", "rtx-4090"];
  for (const [button, ending] of [["Markdown", "md"], ["HTML", "html"], ["SVG", "svg"]]) {
    const out = join(root, `target/web/files/typed.${ending}`);
    command("report", path, ...flags, "-o", out);
    assert.equal(await download(page, button), readFileSync(out, "utf8"), ending);
  }
  const png = await download(page, "PNG", null);
  assert.deepEqual([...png.subarray(1, 4)], [..."PNG"].map((c) => c.charCodeAt(0)));
  assert.ok(png.readUInt32BE(16) > 800 && png.length > 10_000, `${png.readUInt32BE(16)} wide, ${png.length} bytes`);
  assert.deepEqual(page.errors, []);
  await context.close();
});

test("a model of one's own comes back from this browser and from a link, and is forgotten on request", async () => {
  const path = model("gpt.dyn_train.onnx");
  const context = await chromium.newContext({ permissions: ["clipboard-read", "clipboard-write"] });
  const page = await open(context, site.address);
  await choose(page, path);
  await verdict(page);
  await page.locator("#precision").selectOption("mixed-bf16");
  await page.locator("#validation").fill("64");
  await page.locator("#validation").press("Tab");
  await page.getByText(/^Validation with batch 64 holds/).waitFor();
  await page.locator("summary", { hasText: "Around the step" }).click();
  await page.locator("#stale").fill("2");
  await page.locator("#stale").press("Tab");
  await page.getByText(/^With what else the process holds on the card, the step has/).waitFor();
  await page.locator("summary", { hasText: "Several GPUs" }).click();
  await page.locator("#gpus").fill("8");
  await page.locator("#gpus").press("Tab");
  await page.locator("#parallel").selectOption("zero3");
  await estimate(page);
  const share = page.getByRole("button", { name: "Copy link with the model" });
  await share.click();
  const said = await download(page, "JSON");
  assert.equal(said, command("estimate", path, ..."-b 32 --gpu rtx-4090 --precision mixed-bf16 --validation-batch 64 --stale-models 2 --gpus 8 --parallel zero3 --format json".split(" ")));
  const link = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(link.length < 66_000, `${link.length}`);
  console.log(`a link with ${path.split("/").at(-1)} has ${link.length} characters`);

  // Without the link: by its name, from this browser.
  await page.reload();
  await verdict(page);
  await estimate(page);
  assert.equal(await download(page, "JSON"), said);
  await page.getByRole("button", { name: "Examples" }).click();
  await page.getByRole("button", { name: "gpt.dyn_train.onnx" }).click();
  await verdict(page);
  await page.getByRole("button", { name: "Examples" }).click();
  await page.getByRole("button", { name: "Forget them" }).click();
  assert.equal(await page.getByRole("button", { name: "gpt.dyn_train.onnx" }).count(), 0);
  assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).filter((key) => /model|recent/.test(key))), []);
  await context.close();

  // Another browser has the link alone.
  const other = await chromium.newContext();
  const there = await open(other, link);
  await verdict(there);
  await estimate(there);
  assert.equal(await there.locator("#precision").inputValue(), "mixed-bf16");
  assert.equal(await download(there, "JSON"), said);
  assert.deepEqual(there.errors, []);
  await other.close();
});

test("a Keras model comes back from a link too", { skip: !existsSync(keras) }, async () => {
  const path = join(keras, readdirSync(keras).find((file) => file.endsWith(".keras")));
  const context = await chromium.newContext({ permissions: ["clipboard-read", "clipboard-write"] });
  const page = await open(context, site.address);
  await choose(page, path);
  await verdict(page);
  await estimate(page);
  await page.getByRole("button", { name: "Copy link with the model" }).click();
  const said = await download(page, "JSON");
  const link = await page.evaluate(() => navigator.clipboard.readText());
  await context.close();
  const other = await chromium.newContext();
  const there = await open(other, link);
  await verdict(there);
  await estimate(there);
  assert.equal(await download(there, "JSON"), said);
  await other.close();
});

test("a structure that is too large for a link is said to be, and a damaged link is told", async () => {
  const context = await chromium.newContext();
  const page = await open(context, site.address);
  const buffer = wordy(readFileSync(model("mlp.ts_train.onnx")), 50);
  await choose(page, { name: "wordy.onnx", mimeType: "application/octet-stream", buffer });
  await verdict(page);
  await page.getByText(/too large for a link/).waitFor();
  assert.equal(await page.getByRole("button", { name: "Copy link with the model" }).count(), 0);
  await context.close();
  const other = await chromium.newContext();
  const there = await open(other, `${site.address}#file=x.onnx&batch=8&gpu=t4&graph=AAAA`);
  await there.getByRole("alert").waitFor();
  assert.match(await there.getByRole("alert").innerText(), /damaged/);
  await other.close();
});

test("all problems of a damaged file are listed as the command line words them", async () => {
  const folder = join(root, "target/web/files");
  mkdirSync(folder, { recursive: true });
  const path = join(folder, "damaged.onnx");
  const bytes = readFileSync(model("resnet18.ts_train.onnx")).subarray(0, 20_000);
  const file = openSync(path, "w");
  writeSync(file, bytes);
  closeSync(file);
  const context = await chromium.newContext();
  const page = await open(context, site.address);
  await choose(page, path);
  const alert = page.getByRole("alert");
  await alert.waitFor();
  const shown = await alert.innerText();
  let said;
  try {
    command("estimate", path);
  } catch (error) {
    said = String(error.stderr);
  }
  const message = said.match(/^error: .*?damaged\.onnx: (.*)$/m)[1];
  assert.ok(shown.includes(message), `${shown}\n${said}`);
  // And the page goes on.
  await choose(page, model("mlp.ts_train.onnx"));
  await verdict(page);
  await context.close();
});

test("a file of several GiB opens, and its answer is the command line's", async () => {
  const path = join(root, "target/web/files/huge.onnx");
  mkdirSync(join(root, "target/web/files"), { recursive: true });
  sparse(path, readFileSync(model("mlp.ts_train.onnx")), 5 * 2 ** 30);
  try {
    const context = await chromium.newContext();
    const page = await open(context, site.address);
    const begin = Date.now();
    await choose(page, path);
    await verdict(page);
    const took = Date.now() - begin;
    console.log(`5 GiB: ${took} ms`);
    assert.equal(await download(page, "JSON"), command("estimate", path, "-b", "32", "--gpu", "rtx-4090", "--format", "json"));
    await context.close();
  } finally {
    rmSync(path);
  }
});

test("no request leaves the page's own host, and none at all after loading", async () => {
  const context = await chromium.newContext({ serviceWorkers: "block" });
  const requests = [];
  context.on("request", (request) => requests.push(request.url()));
  const page = await open(context, site.address);
  await page.waitForLoadState("networkidle");
  assert.ok(requests.every((url) => url.startsWith(new URL(site.address).origin) || url.startsWith("blob:")), requests.join("\n"));
  requests.length = 0;
  await choose(page, model("resnet50.ts_train.onnx"));
  await verdict(page);
  await page.locator("#slider").fill("10");
  await page.locator("#precision").selectOption("mixed-bf16");
  await estimate(page);
  await page.waitForTimeout(500);
  // The worker's own files are the last that are fetched; the icon is the browser's own wish, from its cache.
  const outside = requests.filter((url) => !/\/(worker\.js|memfit_web\.js|pack\.js|png\.js|icon\.svg)$/.test(url));
  assert.deepEqual(outside, []);
  await context.close();
});

/** A copy of a model that names so many producers; the last one counts, all are read. */
function wordy(bytes, count) {
  const letters = () => Buffer.from(Array.from({ length: 4000 }, () => Math.floor(Math.random() * 26) + 97));
  // ModelProto.producer_name, field 2.
  const field = (content) => Buffer.concat([Buffer.from([18, ...varint(BigInt(content.length))]), content]);
  return Buffer.concat([bytes, ...Array.from({ length: count }, () => field(letters())), field(Buffer.from("test"))]);
}

/** A copy of a model with an unknown field of so many bytes at its end, which takes no room on the disk. */
function sparse(path, bytes, size) {
  const file = openSync(path, "w");
  writeSync(file, bytes);
  // Field 1000, length-delimited: a reader of the format skips it.
  const tag = varint(1000n * 8n + 2n);
  writeSync(file, Buffer.from([...tag, ...varint(BigInt(size))]));
  ftruncateSync(file, bytes.length + tag.length + varint(BigInt(size)).length + size);
  closeSync(file);
}

function varint(n) {
  const bytes = [];
  while (n > 127n) {
    bytes.push(Number(n % 128n) + 128);
    n /= 128n;
  }
  return [...bytes, Number(n)];
}
