// Compiles the module once and starts the page on it; the worker gets the same module.
import { compiled } from "./compiled.js";
import init, { start_page } from "./memfit_web.js";

try {
  const module = await compiled("memfit_web_bg.wasm");
  await init({ module_or_path: module });
  start_page(module);
} catch (error) {
  const status = document.querySelector(".loading");
  if (status) status.textContent = `${error.message ?? error}. A recent Chrome, Edge, Firefox or Safari is needed.`;
  throw error;
}

if ("serviceWorker" in navigator && location.protocol !== "file:") {
  try {
    await navigator.serviceWorker.register("sw.js");
    const { active } = await navigator.serviceWorker.ready;
    if (!navigator.connection?.saveData) {
      const keep = () => active.postMessage("keep the rest");
      if ("requestIdleCallback" in window) requestIdleCallback(keep, { timeout: 10_000 });
      else setTimeout(keep, 3000);
    }
  } catch {
    // Without it the page works too, only not offline.
  }
}
