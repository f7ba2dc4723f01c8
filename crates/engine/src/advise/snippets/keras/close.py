import subprocess

# The processes on the card, and what each holds.
query = ["nvidia-smi", "--query-compute-apps=pid,used_memory,process_name", "--format=csv"]
print(subprocess.run(query, capture_output=True, text=True).stdout)
