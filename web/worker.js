// The same module as the page's, with another entry. The first message brings it.
import init, { start_worker } from "./memfit_web.js";

self.onmessage = async (event) => {
  self.onmessage = null;
  await init({ module_or_path: event.data });
  start_worker();
};
