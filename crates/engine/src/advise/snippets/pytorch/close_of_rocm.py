import subprocess

# The processes on the card, and what each holds.
print(subprocess.run(["rocm-smi", "--showpids"], capture_output=True, text=True).stdout)
