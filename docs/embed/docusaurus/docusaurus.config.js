export default {
  title: "A model",
  url: "https://example.com",
  baseUrl: "/",
  scripts: [{ src: "https://example.com/memfit/embed.js", type: "module" }],
  presets: [["classic", { blog: false, docs: { routeBasePath: "/", sidebarPath: undefined } }]],
};
