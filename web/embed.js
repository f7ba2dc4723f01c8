// <memfit-estimate src="model.onnx" gpu="rtx-4090" batch="32">: what one training step of a model holds, on any page.
//
// What stands inside of the element is shown until the answer is there, and stays where there is none: a table written by hand or by
// `memfit report`. Nothing is loaded before the element comes into view; the core runs in a worker that all elements share.
// docs/embedding.md describes attributes, parts, custom properties and events.

const here = new URL(".", import.meta.url);

/** Attributes by the key of the plan that they are, and how they are read. */
const PLAN = {
  gpu: ["gpu", String],
  batch: ["batch_size", Number],
  framework: ["framework", String],
  precision: ["precision", String],
  mode: ["mode", String],
  optimizer: ["optimizer", String],
  "optimizer-impl": ["optimizer_impl", String],
  "weight-decay": ["weight_decay", yes],
  accumulate: ["accumulate", Number],
  gpus: ["gpus", Number],
  parallel: ["parallel", String],
  checkpoint: ["checkpoint", String],
  freeze: ["freeze", (text) => text.split(",").map((glob) => glob.trim())],
  loss: ["loss", String],
  ema: ["ema", yes],
  xla: ["xla", yes],
  "run-eagerly": ["run_eagerly", yes],
  display: ["display", yes],
  "memory-growth": ["memory_growth", yes],
  "assume-batchnorm": ["assume_batchnorm", yes],
  "assume-dropout": ["assume_dropout", yes],
  "allocator-conf": ["allocator_conf", String],
  set: ["set", (text) => pairs(text, Number)],
  input: ["input", (text) => pairs(text, (dims) => dims.split("x").map(Number))],
};

/** What the parts of a peak are called, in the order in which they are drawn. */
const PARTS = [
  ["parameters", "parameters"],
  ["buffers", "buffers"],
  ["gradients", "gradients"],
  ["optimizer", "optimizer state"],
  ["activations", "activations"],
  ["activation_gradients", "activation gradients"],
  ["workspace", "workspace"],
  ["inputs", "inputs"],
  ["transients", "transients"],
  ["allocator", "held by the allocator"],
  ["context", "context and libraries"],
];

const VERDICTS = { fits: "fits", tight: "tight", "does-not-fit": "does not fit" };

const STYLE = `
:host{--_back:var(--memfit-background,light-dark(#fff,#18212b));--_text:var(--memfit-text,light-dark(#16202b,#e8edf2));
--_soft:var(--memfit-soft,light-dark(#4c5a69,#a9b6c4));--_line:var(--memfit-line,light-dark(#d5dce4,#303d4b));
--_fits:var(--memfit-fits,light-dark(#00664a,#5fd0a8));--_tight:var(--memfit-tight,light-dark(#8a5300,#f0b429));
--_over:var(--memfit-over,light-dark(#b3261e,#ff9d94));display:block;max-width:var(--memfit-width,44rem);margin:1em 0;color-scheme:light dark}
:host([theme=light]){color-scheme:light}:host([theme=dark]){color-scheme:dark}:host([hidden]){display:none}
figure{margin:0;padding:1em 1.15em;background:var(--_back);color:var(--_text);border:1px solid var(--_line);
border-radius:var(--memfit-radius,.6em);font:var(--memfit-font,1em/1.45 system-ui,sans-serif);overflow-wrap:anywhere}
.name{font-weight:600}.plan,.more,td,.say{color:var(--_soft)}.plan,.more{font-size:.875em;margin:.15em 0 0}
.peak{font-size:1.6em;font-weight:650;line-height:1.2}.answer{margin:.5em 0 .1em;display:flex;flex-wrap:wrap;gap:.2em .7em;align-items:baseline}
.verdict{font-weight:600}.fits{color:var(--_fits)}.tight{color:var(--_tight)}.does-not-fit{color:var(--_over)}
svg{display:block;width:100%;height:1.1em;margin:.7em 0 0;border-radius:.25em;background:var(--_line)}
summary{cursor:pointer;font-size:.875em;margin-top:.6em}summary:focus-visible{outline:2px solid currentColor;outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:.875em;font-variant-numeric:tabular-nums}
th,td{text-align:left;font-weight:400;padding:.2em 0;border-bottom:1px solid var(--_line)}td{text-align:right;white-space:nowrap;color:inherit}
tfoot th,tfoot td{font-weight:600;border:0}i{display:inline-block;width:.75em;height:.75em;margin-right:.5em;border-radius:2px}
.say{margin:.3em 0 0;font-size:.875em}.say[role=alert]{color:var(--_over)}
@media print{figure{break-inside:avoid}}
`;

/** Colours of Okabe and Ito, as everywhere in memfit; a page may set its own. */
const COLOURS = ["#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#e69f00", "#999999", "#f0e442", "#b8a24a", "#7f7f7f", "#4d4d4d"];

function yes(text) {
  return text !== "false";
}

/** `seq=512 x=4` as an object. */
function pairs(text, read) {
  return Object.fromEntries(text.trim().split(/[\s,]+/).map((pair) => pair.split("=", 2)).map(([key, value]) => [key, read(value ?? "")]));
}

/** A size as the command line writes it: 1024 to the unit, rounded half up. */
function size(bytes) {
  const [unit, name, digits] = bytes >= 2 ** 30 ? [2 ** 30, "GiB", 2] : bytes >= 2 ** 20 ? [2 ** 20, "MiB", 1] : [1024, "KiB", 1];
  if (bytes < 1024) return `${bytes} B`;
  const scale = 10n ** BigInt(digits);
  const steps = String((BigInt(bytes) * scale + BigInt(unit / 2)) / BigInt(unit)).padStart(digits + 1, "0");
  return `${steps.slice(0, -digits)}.${steps.slice(-digits)} ${name}`;
}

let worker;
let asked = 0;
const waiting = new Map();

/** Asks the core; the worker starts with the first question. */
function ask(question) {
  if (!worker) {
    const script = new URL("embed-worker.js", here).href;
    // A worker has to come from the page's own host; a line of its own host's may fetch the rest from elsewhere.
    const own = script.startsWith(`${location.origin}/`);
    const from = own ? script : URL.createObjectURL(new Blob([`import ${JSON.stringify(script)};`], { type: "text/javascript" }));
    worker = new Worker(from, { type: "module" });
    worker.onmessage = ({ data: { id, ...answer } }) => {
      waiting.get(id)?.(answer);
      waiting.delete(id);
    };
    worker.onerror = (event) => {
      for (const told of waiting.values()) told({ error: event.message || "the core could not be loaded" });
      waiting.clear();
      worker = undefined;
    };
  }
  return new Promise((resolve) => {
    waiting.set(++asked, resolve);
    worker.postMessage({ id: asked, ...question });
  });
}

/** An element with properties and children. */
function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

class MemfitEstimate extends HTMLElement {
  static observedAttributes = ["src", ...Object.keys(PLAN)];
  #seen = false;
  #queued = false;
  #turn = 0;
  #watch;

  /** The answer as `memfit estimate --format json` writes it, once there is one. */
  estimate = null;

  connectedCallback() {
    if (!this.shadowRoot) {
      const root = this.attachShadow({ mode: "open" });
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(STYLE);
      root.adoptedStyleSheets = [sheet];
      root.append(make("slot"));
    }
    this.#watch ??= new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      this.#watch.disconnect();
      this.#seen = true;
      this.#ask();
    }, { rootMargin: "200px" });
    if (!this.#seen) this.#watch.observe(this);
  }

  disconnectedCallback() {
    this.#watch?.disconnect();
  }

  attributeChangedCallback() {
    if (this.#seen) this.#ask();
  }

  /** What the attributes say, as a plan. */
  get plan() {
    const given = Object.entries(PLAN).filter(([name]) => this.hasAttribute(name));
    return Object.fromEntries(given.map(([name, [key, read]]) => [key, read(this.getAttribute(name))]));
  }

  async #ask() {
    // Attributes often change several at once.
    if (this.#queued) return;
    this.#queued = true;
    await Promise.resolve();
    this.#queued = false;
    const turn = ++this.#turn;
    const src = this.getAttribute("src");
    if (!src) return this.#fail("no model is named: src is missing");
    this.setAttribute("aria-busy", "true");
    const answer = await ask({ src: new URL(src, document.baseURI).href, plan: this.plan });
    if (turn !== this.#turn) return;
    this.removeAttribute("aria-busy");
    if (answer.error) return this.#fail(answer.error);
    this.estimate = answer.estimate;
    this.#show(answer.estimate);
    this.dispatchEvent(new CustomEvent("memfit-estimate", { bubbles: true, detail: answer.estimate }));
  }

  /** What was there before stays, with a line that says why it is all there is. */
  #fail(error) {
    const say = make("p", { class: "say", role: "alert", part: "error" }, `memfit: ${error}`);
    this.shadowRoot.replaceChildren(make("slot"), say);
    this.dispatchEvent(new CustomEvent("memfit-error", { bubbles: true, detail: error }));
  }

  #show({ model, plan, peak, breakdown, fit, unknown }) {
    const words = [plan.mode, plan.framework, plan.precision];
    if (plan.mode === "train") words.push(plan.optimizer);
    if (plan.batch_size !== null) words.push(`batch ${plan.batch_size}`);
    const answer = make("p", { class: "answer" }, make("span", { class: "peak", part: "peak" }, `${unknown.length ? "≥ " : ""}${size(peak.device_bytes)}`));
    if (fit) {
      const room = `${size(Math.abs(fit.headroom_bytes))} ${fit.verdict === "does-not-fit" ? "missing" : "left"}`;
      answer.append(make("span", { class: `verdict ${fit.verdict}`, part: "verdict" }, `${VERDICTS[fit.verdict]} on ${fit.gpu}: ${room}`));
    }
    const parts = PARTS.map(([key, name], i) => ({ name, bytes: breakdown[`${key}_bytes`], colour: `var(--memfit-${key.replace("_", "-")},${COLOURS[i]})` }));
    const figure = make(
      "figure",
      { part: "card" },
      make("figcaption", { class: "name", part: "name" }, model.name),
      make("p", { class: "plan" }, words.join(" · ")),
      answer,
      make("p", { class: "more" }, `between ${size(peak.device_low_bytes)} and ${size(peak.device_high_bytes)} on the device; the peak is in ${peak.phase.replace("_", " ")}, at ${peak.layer}`),
      bar(parts, Math.max(peak.device_bytes, fit?.capacity_bytes ?? 0)),
      table(parts.filter((part) => part.bytes > 0), peak.device_bytes),
    );
    this.shadowRoot.replaceChildren(figure);
  }
}

/** The parts side by side; the table has the numbers. */
function bar(parts, whole) {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true", part: "bar" })) picture.setAttribute(key, value);
  let sum = 0;
  for (const { bytes, colour } of parts) {
    const rect = document.createElementNS(picture.namespaceURI, "rect");
    const place = { x: (sum / whole) * 1000, width: (bytes / whole) * 1000, y: 0, height: 10 };
    for (const [key, value] of Object.entries(place)) rect.setAttribute(key, String(value));
    rect.style.fill = colour;
    picture.append(rect);
    sum += bytes;
  }
  return picture;
}

function table(parts, whole) {
  const rows = parts.map(({ name, bytes, colour }) => {
    const key = make("i");
    key.style.background = colour;
    return make("tr", {}, make("th", { scope: "row" }, key, name), make("td", {}, size(bytes)));
  });
  const total = make("tr", {}, make("th", { scope: "row" }, "on the device"), make("td", {}, size(whole)));
  const head = make("summary", {}, "Where it goes");
  return make("details", { part: "details" }, head, make("table", {}, make("tbody", {}, ...rows), make("tfoot", {}, total)));
}

if (!customElements.get("memfit-estimate")) customElements.define("memfit-estimate", MemfitEstimate);
