// The page for an <iframe>: what its query says becomes the element's attributes, and the page around is told how high it is.
import "./embed.js";

const element = document.createElement("memfit-estimate");
for (const [name, value] of new URLSearchParams(location.search)) {
  if (/^[a-z][a-z-]*$/.test(name) && !name.startsWith("on") && name !== "style") element.setAttribute(name, value);
}
document.body.append(element);
document.documentElement.style.colorScheme = element.getAttribute("theme") ?? "";

new ResizeObserver(() => {
  window.parent.postMessage({ type: "memfit-height", height: Math.ceil(element.getBoundingClientRect().height) }, "*");
}).observe(element);
