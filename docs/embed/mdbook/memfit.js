// mdBook adds classic scripts; the element is a module.
import("https://example.com/memfit/embed.js");
