// A module, fetched and compiled beside this file. A server that does not know the type of wasm files is no reason to fail.
export async function compiled(name) {
  const response = await fetch(new URL(name, import.meta.url));
  if (!response.ok) throw new Error(`the calculator could not be loaded: ${response.status}`);
  return response.headers.get("content-type")?.startsWith("application/wasm")
    ? WebAssembly.compileStreaming(response)
    : WebAssembly.compile(await response.arrayBuffer());
}
