// A model's structure as text that a link and the browser's storage can hold, and back: deflate, then base64url.

/** No structure is larger; text that says otherwise is a trap. */
const MOST = 64 << 20;

export async function pack(bytes) {
  const packed = new Blob([bytes]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const all = new Uint8Array(await new Response(packed).arrayBuffer());
  let text = "";
  for (let at = 0; at < all.length; at += 1 << 15) text += String.fromCharCode(...all.subarray(at, at + (1 << 15)));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export async function unpack(text) {
  const packed = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const parts = [];
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > MOST) throw new RangeError("it is larger than any model's structure");
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}
