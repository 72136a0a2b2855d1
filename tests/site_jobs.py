"""What the processes of a site are given to do in tests. A file of its own, so that they import nothing else."""

from __future__ import annotations

import os
import socket


def multiply(worker: int, item: int) -> tuple[int, int]:
    return worker * item, os.getpid()


def end(worker: int, item: int) -> None:
    os._exit(worker)


def wait_for_the_end(port: int, item: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(f"{os.getpid()}\n".encode())
        line.recv(1)  # returns when the other end is closed
    os.write(1, f"done {item}\n".encode())
