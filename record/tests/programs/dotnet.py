"""Imitates a .NET process: maps libcoreclr.so and answers on a diagnostics socket.

Usage: dotnet.py DIR HOW SECONDS. HOW: map (writes a perf map on request), old (rejects the command), silent (never
answers), foreign (another process listens). Prints the commands it receives.
"""

import ctypes
import mmap
import os
import socket
import sys
import threading
import time

folder, how, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
pid = os.getpid()
path = f"/tmp/dotnet-diagnostic-{pid}-1-socket"
library = os.path.join(folder, "libcoreclr.so")
with open(library, "wb") as file:
    file.write(b"\0" * 4096)
mapped = mmap.mmap(os.open(library, os.O_RDONLY), 4096, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
# A function of generated code: an endless loop until the flag is set.
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("8b0785c074fac3"))
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()


def answer():
    while True:
        stream, _ = listener.accept()
        asked = stream.recv(64)
        if not asked:
            continue
        if how == "silent":
            time.sleep(60)
        command = asked[16:18].hex()
        print(f"asked {command} {asked[20:].hex()}".strip(), flush=True)
        known = how == "map"
        if known and command == "0405":
            with open(f"/tmp/perf-{pid}.map", "w") as file:
                file.write(f"{address:x} 7 void [App] Program::Spin()[OptimizedTier1]\n")
        header = b"DOTNET_IPC_V1\0" + (24).to_bytes(2, "little") + (b"\xff\0\0\0" if known else b"\xff\xff\0\0")
        stream.sendall(header + b"\0\0\0\0")
        stream.close()


if how == "foreign" and os.fork() == 0:
    # The peer of a listener made before the fork would be the parent.
    os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    threading.Timer(seconds, lambda: os._exit(0)).start()
    answer()
flag = ctypes.c_int(0)
threading.Thread(target=answer, daemon=True).start()
threading.Timer(seconds, lambda: setattr(flag, "value", 1)).start()
ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(ctypes.addressof(flag))
os.unlink(path)
