// Runs the core for the elements of one page. A model is fetched once and stays in the browser's own store, from which it is read
// slice by slice; the last few that were opened are kept.
import init, { open } from "./memfit.js";

const KEPT = 8;
const started = init({ module_or_path: new URL("memfit_bg.wasm", import.meta.url) });
const opened = new Map();

async function load(src) {
  const response = await fetch(src);
  if (!response.ok) throw new Error(`${src} could not be fetched: ${response.status}`);
  const [blob] = await Promise.all([response.blob(), started]);
  const name = new URL(src).pathname.split("/").pop();
  return open(blob, name ? decodeURIComponent(name) : undefined);
}

function model(src) {
  if (!opened.has(src)) {
    const loading = load(src);
    opened.set(src, loading);
    loading.catch(() => opened.delete(src));
    const [oldest] = opened.keys();
    if (opened.size > KEPT) {
      opened.get(oldest).then((model) => model.free(), () => {});
      opened.delete(oldest);
    }
  }
  return opened.get(src);
}

self.onmessage = async ({ data: { id, src, plan } }) => {
  try {
    self.postMessage({ id, estimate: (await model(src)).estimate(plan) });
  } catch (error) {
    self.postMessage({ id, error: error.message ?? String(error) });
  }
};
