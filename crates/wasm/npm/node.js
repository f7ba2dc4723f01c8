// For Node: the module is read from the disk, and a path is opened slice by slice.
import { closeSync, fstatSync, openSync, readFileSync, readSync } from "node:fs";
import { basename } from "node:path";
import { explainJson, gpus, gpusJson, initSync, open as openSource, version } from "./memfit.js";

let started = false;

/** Loads the module; `open` may be called when the promise is fulfilled. */
export async function load(module) {
  if (!started) {
    initSync({ module: module ?? readFileSync(new URL("memfit_bg.wasm", import.meta.url)) });
    started = true;
  }
}

/** As in a browser; a string is the path of a file. */
export function open(source, name, told) {
  if (typeof source !== "string") return openSource(source, name, told);
  const file = openSync(source, "r");
  try {
    const read = (offset, length) => {
      const bytes = new Uint8Array(length);
      return bytes.subarray(0, readSync(file, bytes, 0, length, offset));
    };
    return openSource({ size: fstatSync(file).size, read }, name ?? basename(source), told);
  } finally {
    closeSync(file);
  }
}

export { explainJson, gpus, gpusJson, version };
