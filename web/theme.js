// Before the first paint, so that a page in the dark does not flash white.
try {
  const theme = localStorage.getItem("memfit.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; the system's theme is used then.
}
