// The larger module, for Keras files, logs, advice and documents. It is the same code with more in it, and loaded only when it is
// needed. The first message brings it once a worker has compiled it.
import { compiled } from "./compiled.js";
import init, { start_worker } from "./memfit_full.js";

async function sent() {
  const module = await compiled("memfit_full_bg.wasm");
  self.postMessage(module);
  return module;
}

self.onmessage = async (event) => {
  self.onmessage = null;
  try {
    await init({ module_or_path: event.data ?? (await sent()) });
    start_worker();
  } catch (error) {
    // The page hears of errors, not of rejected promises.
    setTimeout(() => { throw error; });
  }
};
