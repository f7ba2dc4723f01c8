import type { Model, Source, Told } from "./memfit.js";

export * from "./memfit.js";

/**
 * Loads the module; `open` may be called when the promise is fulfilled. Without an argument it is found beside this
 * package's files.
 */
export function load(module?: WebAssembly.Module | URL | Response | BufferSource): Promise<void>;

/**
 * Reads the structure of a model file, never its weights. `source` is its bytes, an object with `size` and
 * `read(offset, length)`, in a worker a `File`, in Node the file's path. `told` is what a Keras file does not say.
 */
export function open(source: Uint8Array | Blob | Source | string, name?: string, told?: Told | string): Model;
