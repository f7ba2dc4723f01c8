// A model is dropped and the page says what the command line says.
import { after, before, test } from "node:test";
import assert from "node:assert/strict";
import { browser, command, model, open, serve, verdict } from "./site.js";

let site, chromium;
before(async () => {
  [site, chromium] = await Promise.all([serve(), browser()]);
});
after(async () => {
  await chromium?.close();
  site?.stop();
});

test("a chosen file is estimated, with the numbers of the command line", async () => {
  const context = await chromium.newContext();
  const page = await open(context, site.address);
  await page.locator("input[type=file]").first().setInputFiles(model("resnet50.ts_train.onnx"));
  assert.match(await verdict(page), /Batch 32 fits on RTX 4090/);
  const said = JSON.parse(command("estimate", model("resnet50.ts_train.onnx"), "-b", "32", "--format", "json"));
  const gib = (said.peak.allocated_bytes / 2 ** 30).toFixed(2);
  assert.match(await page.locator(".parts tfoot").innerText(), new RegExp(`${gib} GiB`));
  assert.deepEqual(page.errors, []);
  await context.close();
});

test("all problems of a damaged file are listed as the core words them", async () => {
  const context = await chromium.newContext();
  const page = await open(context, site.address);
  const file = { name: "broken.onnx", mimeType: "application/octet-stream", buffer: Buffer.from([0x3a, 0xff, 0xff, 0x03, 1, 2]) };
  await page.locator("input[type=file]").first().setInputFiles(file);
  const alert = page.getByRole("alert");
  await alert.waitFor();
  assert.match(await alert.innerText(), /file/);
  await context.close();
});
