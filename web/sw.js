// Keeps the whole site, so that it works offline. VERSION and the lists are written by the build; a new build is a new version.
const VERSION = "development";
const FILES = [];
// What no first visit needs: the larger module, the examples. The page asks for it when it has nothing else to do.
const LATER = [];

self.addEventListener("install", (event) => {
  event.waitUntil(
    caches.open(VERSION).then((cache) => cache.addAll(FILES)).then(() => self.skipWaiting()),
  );
});

self.addEventListener("activate", (event) => {
  event.waitUntil(
    caches.keys()
      .then((names) => Promise.all(names.filter((name) => name.startsWith("memfit-") && name !== VERSION).map((name) => caches.delete(name))))
      .then(() => self.clients.claim()),
  );
});

self.addEventListener("message", (event) => {
  if (event.data === "keep the rest") event.waitUntil(rest());
});

self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET" || new URL(event.request.url).origin !== self.location.origin) return;
  event.respondWith(
    caches.open(VERSION)
      .then((cache) => cache.match(event.request, { ignoreSearch: true }))
      .then((found) => found ?? fetch(event.request).then((response) => kept(event.request, response))),
  );
});

async function rest() {
  const cache = await caches.open(VERSION);
  for (const file of LATER) {
    if (!(await cache.match(file))) await cache.add(file).catch(() => undefined);
  }
}

// What is needed before the rest was kept is kept then.
async function kept(request, response) {
  if (response.ok) {
    const cache = await caches.open(VERSION);
    await cache.put(request, response.clone());
  }
  return response;
}
