project = "A model"
html_theme = "alabaster"
html_js_files = [("https://example.com/memfit/embed.js", {"type": "module"})]
