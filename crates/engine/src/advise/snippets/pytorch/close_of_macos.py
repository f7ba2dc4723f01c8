import subprocess

# The processes that hold most of the memory, which the GPU shares.
query = ["top", "-l", "1", "-o", "mem", "-n", "15", "-stats", "pid,mem,command"]
print(subprocess.run(query, capture_output=True, text=True).stdout)
