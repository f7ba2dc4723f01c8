// What the tests share: the built site served under a sub-path, a browser, the command line to compare with.
import { spawn, spawnSync } from "node:child_process";
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = join(dirname(fileURLToPath(import.meta.url)), "../..");

/** The packages that the tests need. */
export const modules = process.env.MEMFIT_MODULES ?? join(root, "target/web/node_modules");
export const require = createRequire(join(modules, "x.js"));
const { chromium } = require("playwright-core");

export const shots = join(root, "target/web/screenshots");
mkdirSync(shots, { recursive: true });

/** A model of this repository. */
export const model = (name) => join(root, "models", name);

/** Serves web/dist under a sub-path, on a free port. */
export function serve() {
  const server = spawn(join(root, "target/debug/xtask-web"), ["serve", join(root, "web/dist"), "--port", "0", "--base", "/tools/memfit"]);
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.stderr.on("data", (text) => process.stderr.write(text));
    server.stdout.once("data", (text) => resolve({ address: String(text).trim(), stop: () => server.kill() }));
  });
}

/** A browser without anything of this machine's. */
export const browser = () =>
  chromium.launch({
    executablePath: process.env.MEMFIT_CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });

/** What the command line says about a model; that it does not fit is no failure here. */
export function command(...words) {
  const run = spawnSync(join(root, "target/debug/memfit"), words, { encoding: "utf8", maxBuffer: 2 ** 28 });
  if (run.status > 1) throw Object.assign(new Error(run.stderr), { stderr: run.stderr });
  return run.stdout;
}

/** A page that fails the test for whatever goes wrong on it. */
export async function open(context, address) {
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.errors = [];
  page.on("pageerror", (error) => page.errors.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") page.errors.push(message.text());
  });
  await page.goto(address);
  await page.getByRole("heading", { name: "memfit" }).waitFor();
  return page;
}

/** The verdict, once it is there. */
export async function verdict(page) {
  const said = page.locator("#verdict");
  await said.waitFor();
  return said.innerText();
}

/** Chooses a file, or several, as one does in the dialog. */
export const choose = (page, path) => page.locator("input[type=file]").first().setInputFiles(path);

/** A transformer of some 2,000 nodes, whose weights would lie in a file beside it. */
export const large = join(root, "target/web/files/transformer.onnx");

/** Drops a file in the middle of the page. */
export const drop = (page, name, bytes) =>
  page.evaluate(
    ([name, text]) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
      document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
    },
    [name, bytes.toString("base64")],
  );

/** Waits until the page shows the answer to its newest question. */
export async function estimate(page) {
  await page.locator('.columns[data-settled="true"]').waitFor();
}

/** No barrier is found on a page, or in what a selector finds there. */
export async function barriers(page, selector) {
  // Through the debugger, which a page's policy does not bind.
  await page.evaluate(require("axe-core").source);
  const found = await page.evaluate((selector) => window.axe.run(selector ?? document, { resultTypes: ["violations"] }), selector);
  const said = found.violations.map((v) => `${v.impact} ${v.id}: ${v.nodes.map((n) => n.html.slice(0, 160)).slice(0, 4).join("\n  ")}`);
  assert.deepEqual(said, []);
}

/** The content of a file that a button hands out. */
export async function download(page, button, encoding = "utf8") {
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: button, exact: true }).click()]);
  return readFileSync(await file.path(), encoding);
}
