// Documents as a browser shows them: valid HTML, readable without scripts, in the dark, on a narrow screen and on paper; tables that sort.
import { after, before, test } from "node:test";
import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { barriers, browser, command, model, require, root, shots } from "./site.js";

const { HtmlValidate } = require("html-validate");
const folder = join(root, "target/web/documents");
const report = join(folder, "report.html");
const index = join(folder, "all/index.html");

let chromium;
before(async () => {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, "models"), { recursive: true });
  copyFileSync(model("mlp.ts_train.onnx"), join(folder, "models/mlp.onnx"));
  writeFileSync(join(folder, "models/bad <&>.onnx"), "no model");
  command("report", model("resnet50.ts_train.onnx"), "-b", "32", "--gpu", "rtx-4090", "-o", report);
  // One of the files is no model, which the exit code says.
  assert.throws(() => command("report", join(folder, "models"), "-b", "2", "-o", join(folder, "all")));
  chromium = await browser();
});
after(() => chromium?.close());

async function show(path, options = {}) {
  const page = await (await chromium.newContext(options)).newPage();
  await page.goto(pathToFileURL(path).href);
  return page;
}

test("pages are valid HTML", async () => {
  const validator = new HtmlValidate({ extends: ["html-validate:recommended"] });
  for (const path of [report, index, join(root, "web/embed.html")]) {
    const { results } = await validator.validateString(readFileSync(path, "utf8"));
    const problems = results.flatMap((result) => result.messages.map((m) => `${path}:${m.line}:${m.column} ${m.ruleId} ${m.message}`));
    assert.deepEqual(problems, []);
  }
});

test("a report asks for nothing, and says all of it without scripts", async () => {
  const still = await show(report, { javaScriptEnabled: false });
  await still.getByText("All layers").click();
  assert.ok(await still.getByRole("rowheader", { name: "layer4.2.conv2" }).isVisible());
  const page = await show(report);
  const requests = [];
  page.on("request", (request) => requests.push(request.url()));
  await page.reload();
  assert.deepEqual(requests, [pathToFileURL(report).href]);
});

test("no barriers, in both themes", async () => {
  for (const path of [report, index]) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await show(path, { colorScheme });
      await barriers(page);
      await page.screenshot({ path: join(shots, `${path === report ? "report" : "index"}-${colorScheme}.png`) });
    }
  }
});

test("narrow screens and paper", async () => {
  const narrow = await show(report, { viewport: { width: 360, height: 740 } });
  await narrow.getByText("All layers").click();
  assert.ok(await narrow.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await narrow.screenshot({ path: join(shots, "report-narrow.png") });
  const paper = await show(report, { colorScheme: "dark" });
  await paper.emulateMedia({ media: "print" });
  assert.equal(await paper.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(255, 255, 255)");
  await paper.screenshot({ path: join(shots, "report-print.png"), fullPage: true });
});

test("a click on a column sorts by its numbers", async () => {
  const page = await show(report);
  await page.getByText("All layers").click();
  await page.getByRole("columnheader", { name: "saved" }).click();
  const saved = await page.locator("table.layers td:nth-child(5)").evaluateAll((cells) => cells.map((cell) => Number(cell.dataset.n)));
  assert.deepEqual(saved, saved.toSorted((a, b) => b - a));
});
