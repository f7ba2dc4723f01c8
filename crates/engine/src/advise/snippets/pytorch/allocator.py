import os

# Before torch is imported.
os.environ["__VARIABLE__"] = "expandable_segments:True"
