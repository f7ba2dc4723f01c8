// For browsers and bundlers: the module lies beside this file, and bundlers understand how it is named.
import init, { explainJson, gpus, gpusJson, open, version } from "./memfit.js";

let started;

/** Loads the module; `open` may be called when the promise is fulfilled. */
export function load(module) {
  started ??= init({ module_or_path: module ?? new URL("memfit_bg.wasm", import.meta.url) }).then(() => undefined);
  return started;
}

export { explainJson, gpus, gpusJson, open, version };
