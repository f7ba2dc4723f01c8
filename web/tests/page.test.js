// The page as people use it: slider and card, links, offline, the keyboard alone, both themes, narrow screens, barriers.
import { after, before, test } from "node:test";
import assert from "node:assert/strict";
import { join } from "node:path";
import { barriers, browser, choose, command, download, estimate, large, model, open, serve, shots, verdict } from "./site.js";

let site, chromium;
before(async () => {
  [site, chromium] = await Promise.all([serve(), browser()]);
});
after(async () => {
  await chromium?.close();
  site?.stop();
});

/** A page with ResNet-50 on it. */
async function resnet(options = {}) {
  const context = await chromium.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await open(context, `${site.address}#model=resnet50.ts_train.onnx`);
  await verdict(page);
  return { context, page };
}

test("the first page is there in a moment, and an answer soon after", async () => {
  for (const [what, fragment, selector] of [["interactive", "", ".drop button"], ["the answer of an example", "#model=resnet50.ts_train.onnx", "#verdict"]]) {
    const times = [];
    for (let i = 0; i < 5; i += 1) {
      // A new context has nothing in its cache.
      const context = await chromium.newContext();
      const page = await context.newPage();
      await page.addInitScript((selector) => {
        new MutationObserver(() => {
          if (!window.there && document.querySelector(selector)) window.there = performance.now();
        }).observe(document, { subtree: true, childList: true });
      }, selector);
      await page.goto(site.address + fragment);
      await page.waitForFunction(() => window.there);
      times.push(await page.evaluate(() => window.there));
      await context.close();
    }
    times.sort((a, b) => a - b);
    console.log(`${what} after ${times[2].toFixed(0)} ms, ${times[0].toFixed(0)} to ${times[4].toFixed(0)}`);
  }
});

test("the slider and the card change the answer", async () => {
  const { context, page } = await resnet();
  await page.locator("#slider").fill("45");
  await estimate(page);
  const batch = await page.locator("#batch").inputValue();
  assert.ok(Number(batch) > 32);
  assert.match(await verdict(page), new RegExp(`atch ${batch}\\b`));
  await page.locator("#batch").fill("4000");
  await page.locator("#batch").press("Tab");
  await estimate(page);
  assert.match(await verdict(page), /4,000 does not fit on RTX 4090/);
  await page.locator("#gpu").fill("h100");
  await page.locator("#gpu").press("Tab");
  assert.match(await verdict(page), /H100/);
  await page.locator("#gpu").fill("no such card");
  await page.locator("#gpu").press("Tab");
  await page.getByText(/no GPU is called/).waitFor();
  await page.locator("#gpu").fill("9.5 GiB");
  await page.locator("#gpu").press("Tab");
  assert.match(await verdict(page), /9\.50 GiB/);
  // The catalogue is searched.
  await page.locator("#gpu").click();
  await barriers(page, ".answer");
  assert.ok((await page.getByRole("option").count()) > 40);
  await page.locator("#gpu").fill("h100 rtx");
  await page.locator("#cards").waitFor({ state: "hidden" });
  await page.locator("#gpu").press("Escape");
  assert.match(await page.locator("#gpu").inputValue(), /9\.50? ?GiB/);
  await page.locator("#gpu").fill("3090");
  await page.locator("#gpu").press("ArrowDown");
  await page.locator("#gpu").press("Enter");
  assert.equal(await page.locator("#gpu").inputValue(), "RTX 3090");
  await page.locator("#gpu").click();
  await page.getByRole("option", { name: /^A100\S*80GB/ }).first().click();
  assert.match(await verdict(page), /A100/);
  await page.locator("#gpu").fill("rtx 3090");
  await page.locator("#gpu").press("Tab");
  // What is offered is safe; the largest batch may be tight, and the next one does not fit.
  const take = page.getByRole("button", { name: /^Use / });
  await take.click();
  await estimate(page);
  assert.match(await verdict(page), / fits on RTX 3090/);
  const most = Number((await page.locator("#answer-title").innerText()).match(/Largest batch on RTX 3090: ([\d,]+)/)[1].replace(",", ""));
  await page.locator("#batch").fill(String(most));
  await page.locator("#batch").press("Tab");
  await estimate(page);
  assert.match(await verdict(page), /(fits|is tight) on RTX 3090/);
  await page.locator("#batch").fill(String(most + 1));
  await page.locator("#batch").press("Tab");
  await estimate(page);
  assert.match(await verdict(page), /does not fit on RTX 3090/);
  assert.deepEqual(page.errors, []);
  await context.close();
});

test("each step of the slider is estimated at once", async () => {
  const { context, page } = await resnet();
  const times = [];
  for (let at = 5; at < 25; at += 1) {
    await page.locator("#slider").fill(String(at));
    await estimate(page);
    times.push(Number((await page.locator(".answer").innerText()).match(/in (\d+) ms/)[1]));
  }
  times.sort((a, b) => a - b);
  console.log(`estimate of ResNet-50 in the worker: median ${times[10]} ms`);
  await context.close();
});

test("a model of 2,000 nodes follows the slider, and its pictures are there", async () => {
  const context = await chromium.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await open(context, site.address);
  await choose(page, large);
  await verdict(page);
  await estimate(page);
  const times = [];
  for (let at = 2; at < 23; at += 1) {
    await page.locator("#slider").fill(String(at));
    await estimate(page);
    times.push(Number((await page.locator(".answer").innerText()).match(/in (\d+) ms/)[1]));
  }
  times.sort((a, b) => a - b);
  console.log(`estimate of 2,000 nodes in the worker: median ${times[10]} ms, at most ${times.at(-1)} ms`);
  await page.locator(".treemap .tile").first().waitFor();
  await page.locator("#filter").fill("a");
  await page.getByRole("button", { name: /^Show \d+ more$/ }).click();
  await page.locator(".layers tbody tr").nth(500).waitFor();
  assert.deepEqual(page.errors, []);
  await context.close();
});

test("advice is the command line's, one click makes a change and shows its effect, another takes it back", async () => {
  const { context, page } = await resnet();
  await page.locator("#gpu").fill("rtx-3060");
  await page.locator("#gpu").press("Tab");
  await page.locator("#batch").fill("192");
  await page.locator("#batch").press("Tab");
  await estimate(page);
  assert.match(await verdict(page), /does not fit/);
  const typed = JSON.parse(command("advise", model("resnet50.ts_train.onnx"), "--gpu", "rtx-3060", "-b", "192", "--format", "json"));
  await page.locator(".changes").waitFor();
  const titles = await page.locator(".changes strong:has(+ .effort)").allTextContents();
  assert.deepEqual(titles, typed.changes.map((change) => change.title));
  const before = await page.locator(".parts tfoot").innerText();
  const mixed = typed.changes.find((change) => change.name === "mixed-precision");
  await page.getByRole("button", { name: `Apply ${mixed.title}` }).first().click();
  await estimate(page);
  assert.equal(await page.locator("#precision").inputValue(), mixed.plan.precision);
  await page.getByText(/Applied: .*→.*−\d+\s%/).waitFor();
  await page.getByRole("button", { name: "Undo" }).click();
  await estimate(page);
  assert.equal(await page.locator("#precision").inputValue(), "fp32");
  assert.equal(await page.locator(".parts tfoot").innerText(), before);
  await page.locator(".best").getByRole("button", { name: /^Apply/ }).click();
  await estimate(page);
  assert.match(await verdict(page), typed.combination.result.verdict === "fits" ? / fits on / : / is tight on /);
  assert.deepEqual(page.errors, []);
  await context.close();
});

test("a step that fits has its savings on request", async () => {
  const { context, page } = await resnet();
  assert.equal(await page.locator(".changes").count(), 0);
  await page.getByRole("button", { name: "Look for savings" }).click();
  await page.locator(".changes .change").first().waitFor();
  await context.close();
});

test("a log is explained, beside the open model", async () => {
  const { context, page } = await resnet();
  await page.getByText("A run has died? Paste its log").click();
  await page.locator("#log").fill("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 22.40 GiB memory in use. Of the allocated memory 20.10 GiB is allocated by PyTorch, and 1.90 GiB is reserved by PyTorch but unallocated.");
  await page.getByRole("button", { name: "Explain" }).click();
  const said = page.getByLabel("Explanation");
  await said.waitFor();
  assert.match(await said.innerText(), /2\.00 GiB/);
  // The log does not tell the batch, the page does.
  assert.match(await said.innerText(), /The batch was 32/);
  assert.deepEqual(page.errors, []);
  await context.close();
});

test("two models are compared", async () => {
  const { context, page } = await resnet();
  await page.getByRole("button", { name: "Keep for comparison" }).click();
  await choose(page, model("mobilenet_v2.ts_train.onnx"));
  await page.getByRole("heading", { name: "mobilenet_v2.ts_train", exact: true }).waitFor();
  await estimate(page);
  const table = page.getByRole("region", { name: "Comparison" });
  assert.match(await table.innerText(), /resnet50\.ts_train[^]*mobilenet_v2\.ts_train/);
  await page.getByRole("row", { name: /^peak .*−.* %/ }).waitFor();
  await context.close();
});

test("a link brings the whole state to another browser", async () => {
  const { context, page } = await resnet();
  await page.locator("#precision").selectOption("mixed-bf16");
  await page.locator("#optimizer").selectOption("sgd");
  await page.locator("#checkpoint").selectOption("block");
  await page.locator("#freeze").fill("layer1.*");
  await page.locator("#freeze").press("Tab");
  await page.locator("#batch").fill("48");
  await page.locator("#batch").press("Tab");
  await estimate(page);
  await page.waitForFunction(() => location.hash.includes("batch=48"));
  const [link, said] = [page.url(), await page.locator(".parts tfoot").innerText()];
  await context.close();
  const other = await chromium.newContext();
  const there = await open(other, link);
  await verdict(there);
  await estimate(there);
  assert.equal(await there.locator(".parts tfoot").innerText(), said);
  assert.equal(await there.locator("#optimizer").inputValue(), "sgd");
  assert.equal(await there.locator("#freeze").inputValue(), "layer1.*");
  await other.close();
});

test("it works offline once it was open", async () => {
  const { context, page } = await resnet();
  await page.evaluate(() => navigator.serviceWorker.ready);
  await page.waitForFunction(async () => {
    const rest = ["memfit_full_bg.wasm", "examples/vit.ts_train.onnx"].map((file) => caches.match(file));
    return (await Promise.all(rest)).every(Boolean);
  });
  await page.reload();
  await context.setOffline(true);
  await page.goto(`${site.address}#model=vit.ts_train.onnx`);
  await page.reload();
  await page.getByRole("heading", { name: "vit.ts_train", exact: true }).waitFor();
  await verdict(page);
  // What is loaded later works too: it was kept when there was nothing else to do.
  await page.getByRole("button", { name: "Look for savings" }).click();
  await page.locator(".changes .change").first().waitFor();
  assert.match(await download(page, "Markdown"), /^# vit/);
  await context.close();
});

test("the keyboard alone gets to an answer and changes it", async () => {
  const context = await chromium.newContext();
  const page = await open(context, site.address);
  await tab(page, "ResNet-50");
  await page.keyboard.press("Enter");
  await verdict(page);
  await tab(page, "Batch size");
  await page.keyboard.press("ArrowRight");
  await estimate(page);
  assert.equal(await page.locator("#batch").inputValue(), "36");
  await page.locator(".chart[role=slider]").waitFor();
  await tab(page, "Moment of the step");
  const before = await page.locator(".moment strong").innerText();
  await page.keyboard.press("End");
  await page.waitForFunction((text) => document.querySelector(".moment strong").textContent !== text, before);
  await tab(page, "▸ layer1");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "layer1", exact: true, expanded: true }).waitFor();
  await context.close();
});

/** Presses Tab until the element with this name has the focus. */
async function tab(page, name) {
  for (let i = 0; i < 120; i += 1) {
    await page.keyboard.press("Tab");
    const focused = await page.evaluate(() => {
      const e = document.activeElement;
      return e.getAttribute("aria-label") ?? e.innerText ?? "";
    });
    if (focused.trim() === name) return;
  }
  assert.fail(`the keyboard does not get to ${name}`);
}

test("the timeline, the treemap and the table speak of the same layers", async () => {
  const { context, page } = await resnet();
  const chart = page.locator(".chart[role=slider]");
  await chart.waitFor();
  const peak = await page.locator(".moment strong").innerText();
  assert.match(await page.locator(".why").innerText(), new RegExp(peak.replace(".", "\\.")));
  await chart.hover({ position: { x: 120, y: 80 } });
  await page.waitForFunction((text) => document.querySelector(".moment strong").textContent !== text, peak);
  await page.locator("#filter").fill("layer4");
  await page.locator(".layers tbody tr").nth(3).hover();
  await page.locator(".treemap .selected").first().waitFor();
  assert.equal(await page.locator(".layers tbody tr").filter({ hasNotText: "layer4" }).count(), 0);
  await page.locator("#filter").fill("");
  // A layer in a folded module marks the module; a click opens it.
  const tile = page.locator(".treemap g").filter({ has: page.locator("title", { hasText: "layer3.4.conv3:" }) });
  await tile.hover();
  assert.match(await page.locator(".layers tr.selected th").innerText(), /layer3/);
  await tile.click();
  await page.locator(".layers tr.revealed").waitFor();
  assert.equal(await page.locator(".layers tr.revealed").getAttribute("id"), "row-layer3.4.conv3");
  await context.close();
});

test("the card that the browser names is chosen, unless the link names one", async () => {
  const context = await chromium.newContext();
  await context.addInitScript(() => {
    const info = { vendor: "nvidia", device: "", description: "NVIDIA GeForce RTX 3080 Ti" };
    Object.defineProperty(navigator, "gpu", { value: { requestAdapter: async () => ({ info }) } });
  });
  const page = await open(context, `${site.address}#model=mlp.ts_train.onnx`);
  await page.locator(".examples button").first().click();
  await page.getByText("this machine’s card").waitFor();
  assert.equal(await page.locator("#gpu").inputValue(), "RTX 3080 Ti");
  const linked = await open(context, `${site.address}#model=resnet50.ts_train.onnx&gpu=t4`);
  assert.match(await verdict(linked), / on (Tesla )?T4/);
  await context.close();
});

test("the matrix fills, and a cell takes its card, precision and batch", async () => {
  const { context, page } = await resnet();
  await page.getByRole("button", { name: "Fill the matrix" }).click();
  const cell = page.getByRole("row", { name: /^A100\S*80GB/ }).getByRole("button").nth(1);
  await cell.waitFor({ timeout: 60_000 });
  const size = Number((await cell.innerText()).replace(",", ""));
  await cell.click();
  await estimate(page);
  assert.equal(await page.locator("#precision").inputValue(), "mixed-bf16");
  assert.match(await verdict(page), / fits on /);
  const typed = JSON.parse(command("fit", model("resnet50.ts_train.onnx"), "--gpu", "a100-80gb", "--precision", "mixed-bf16", "--format", "json"));
  assert.equal(size, typed.results[0].safe_size);
  await page.getByRole("heading", { name: new RegExp(`A100.*: ${typed.results[0].max_batch_size.toLocaleString("en")}\\b`) }).waitFor();
  await context.close();
});

test("a plan is kept and compared", async () => {
  const { context, page } = await resnet();
  await page.getByRole("button", { name: "Keep for comparison" }).click();
  await page.locator("#precision").selectOption("mixed-bf16");
  await page.getByRole("row", { name: /^activations .*−.* %/ }).first().waitFor();
  await page.getByRole("button", { name: "Back to the kept plan" }).click();
  await page.getByRole("row", { name: /^peak .*the same/ }).waitFor();
  await context.close();
});

const looks = ["light", "dark"].flatMap((scheme) => [1600, 1100, 768, 360].map((width) => [scheme, width]));
for (const [scheme, width] of looks) {
  test(`no barrier is found in ${scheme}, ${width} wide`, async () => {
    const { context, page } = await resnet({ colorScheme: scheme, viewport: { width, height: 900 } });
    await page.locator(".treemap").waitFor();
    await page.locator(".line").waitFor();
    await page.getByRole("button", { name: "Look for savings" }).click();
    await page.locator(".changes").waitFor();
    await page.screenshot({ path: join(shots, `${scheme}-${width}.png`), fullPage: true });
    await barriers(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= width, `the page is ${wide} wide`);
    assert.deepEqual(page.errors, []);
    await context.close();
  });
}

test("no barrier is found on the first page, in either theme", async () => {
  for (const scheme of ["light", "dark"]) {
    const context = await chromium.newContext({ colorScheme: scheme });
    const page = await open(context, site.address);
    await page.screenshot({ path: join(shots, `first-${scheme}.png`), fullPage: true });
    await barriers(page);
    await page.getByRole("button", { name: /light and dark/ }).click();
    await barriers(page);
    await context.close();
  }
});

test("the policy of the page forbids what it does not need", async () => {
  const context = await chromium.newContext();
  const page = await open(context, site.address);
  const policy = await page.locator("meta[http-equiv=Content-Security-Policy]").getAttribute("content");
  assert.match(policy, /default-src 'none'/);
  assert.doesNotMatch(policy, /'unsafe-inline'|'unsafe-eval'|https?:/);
  const blocked = await page.evaluate(async () => {
    try {
      await fetch("https://example.com/");
      return false;
    } catch {
      return true;
    }
  });
  assert.ok(blocked);
  await context.close();
});
