// The larger module, for Keras files and logs. It is the same code with more in it, and loaded only when it is needed.
import init, { start_worker } from "./memfit_full.js";

self.onmessage = async () => {
  self.onmessage = null;
  await init({ module_or_path: new URL("memfit_full_bg.wasm", import.meta.url) });
  start_worker();
};
