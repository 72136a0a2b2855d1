"""Classes that JAX takes apart arrive in a process that has never heard of them, and are taken apart there."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import warm_python
from source_tree import PACKAGE

from benchax.discovery import import_file
from benchax.workers import pickling

FILE = """
import dataclasses
import equinox, flax, jax, jax.numpy as jnp

print("imported")

@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
    w: jax.Array

@jax.tree_util.register_pytree_node_class
class ByHand:
    def __init__(self, w):
        self.w = w
    def tree_flatten(self):
        return (self.w,), "aux"
    @classmethod
    def tree_unflatten(cls, aux, leaves):
        assert aux == "aux"
        return cls(*leaves)

@flax.struct.dataclass
class OfFlax:
    w: jax.Array
    rate: float = flax.struct.field(pytree_node=False, default=2.0)

class OfEquinox(equinox.Module):
    w: jax.Array

class Plain:
    w = 3

def registered(x):
    return jax.tree.map(lambda leaf: leaf + 1, Registered(x))

def by_hand(x):
    return jax.tree.map(lambda leaf: leaf + 1, ByHand(x))

def of_flax(x):
    return OfFlax(x).replace(w=x + 1)

def of_equinox(x):
    return jax.tree.map(lambda leaf: leaf + 1, OfEquinox(x))

def plain(x):
    return x + Plain.w
"""

# Loads each function twice, as a worker does that gets it in two jobs, and calls it jitted. Each in a fork, which has
# imported no file of ours; JAX is imported once, which takes longer than all the rest.
CHILD = """
import os, pickle, sys
from benchax.workers import pickling
import jax
import jax.numpy as jnp
for content in pickle.load(sys.stdin.buffer):
    if os.fork() == 0:
        pickling.loads(content)
        fn = pickling.loads(content)
        print(float(jax.tree.leaves(jax.jit(fn)(jnp.float32(1)))[0]), flush=True)
        os._exit(0)
    os.wait()
    print("next", flush=True)
"""


# Sends what a notebook or script has, which no other process can import.
NOTEBOOK = """
import dataclasses, sys
import equinox, jax
from benchax.workers import pickling

@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Here:
    w: jax.Array

class Modelled(equinox.Module):
    w: jax.Array

def registered(x):
    return jax.tree.map(lambda leaf: leaf + 1, Here(x))

def modelled(x):
    return Modelled(x)

sys.stdout.buffer.write(pickling.dumps(globals()[sys.argv[1]]))
"""


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Known:
    w: Any


def python(*words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    return warm_python.run([sys.executable, *words], input=given, env=environment)


def in_other_processes(*contents: bytes) -> list[list[str]]:
    """The words that each function printed there."""
    done = python("-c", CHILD, given=pickle.dumps(contents))
    assert done.returncode == 0, done.stderr.decode()
    *printed, rest = done.stdout.decode().split("next")
    assert len(printed) == len(contents), (rest, done.stderr.decode())
    return [words.split() for words in printed]


OF_A_FILE = ["registered", "by_hand", "of_flax", "of_equinox"]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the functions of a file printed in another process, by name."""
    path = tmp_path_factory.mktemp("file") / "states of mine.py"
    path.write_text(FILE, encoding="utf-8")
    file, names = import_file(path), [*OF_A_FILE, "plain"]
    return dict(zip(names, in_other_processes(*(pickling.dumps(getattr(file, name)) for name in names)), strict=True))


@pytest.mark.parametrize("name", OF_A_FILE)
def test_those_of_a_file_are_imported_from_it(printed: dict[str, list[str]], name: str) -> None:
    assert printed[name] == ["imported", "2.0"]


def test_a_file_without_need_is_not_imported_again(printed: dict[str, list[str]]) -> None:
    assert printed["plain"] == ["4.0"]


def test_on_another_machine_they_are_imported_from_the_folder_that_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "inner").mkdir(parents=True)
    (here / "inner" / "states.py").write_text(FILE, encoding="utf-8")
    sent = pickling.dumps(import_file(here / "inner" / "states.py").of_equinox)
    here.rename(there)
    monkeypatch.setenv(pickling.SENT_FROM, str(here))
    monkeypatch.chdir(there)

    assert in_other_processes(sent) == [["imported", "2.0"]]


def test_those_of_a_notebook_are_told_to_jax_again() -> None:
    sent = python("-c", NOTEBOOK, "registered")

    assert in_other_processes(sent.stdout) == [["2.0"]]


def test_a_class_with_a_making_of_its_own_is_refused_where_no_file_has_it() -> None:
    sent = python("-c", NOTEBOOK, "modelled")

    assert b"TypeError: the class 'Modelled' of '__main__' is made by" in sent.stderr
    assert b"put it into a separate file and import it from there" in sent.stderr


def test_those_that_were_known_here_stay_what_they_were() -> None:
    back = pickling.loads(pickling.dumps(Known(jnp.ones(3))))

    assert type(back) is Known
    assert len(jax.tree.leaves(back)) == 1
