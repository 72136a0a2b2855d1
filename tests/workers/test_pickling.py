"""What can travel to another process, and arrives there as what it was."""

from __future__ import annotations

import dataclasses
import functools
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warm_python
from source_tree import PACKAGE

from benchax.case import make_case
from benchax.discovery import find, import_file
from benchax.workers import pickling

FILE = """
import benchax
import jax

SCALE = 3.0

def helper(x):
    return x * SCALE

@benchax.benchmark(args=lambda n: (2.0 * n,), n=[1])
def by_helper(x):
    return helper(x)

@benchax.benchmark(args=(2.0,))
@jax.jit
def jitted(x):
    return helper(x)

class Model:
    def __call__(self, x):
        return helper(x)

of_class = benchax.benchmark(Model(), name="of_class", args=(2.0,))
"""

# Loads each blob, calls what is in it with 2.0 and says what came out, and what jax.stages it offers.
CHILD = """
import pickle, sys
blobs = pickle.load(sys.stdin.buffer)
def look(blob):
    fn, *args = pickle.loads(blob)
    value = float(fn(*args))
    compiled = float(fn.lower(*args).compile()(args[0])) if hasattr(fn, "lower") else None  # the others are static
    return value, hasattr(fn, "trace"), compiled
sys.stdout.buffer.write(pickle.dumps({name: look(blob) for name, blob in blobs.items()}))
"""


def travellers(folder: Path) -> dict[str, Any]:
    """Name → (function, arguments). None of these can be imported by name, but for those called "imported"."""
    three = 3.0

    def closure(x: Any) -> Any:
        return x * three

    def power(x: Any, exponent: int) -> Any:
        return x**exponent

    class Halver:
        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, x: Any) -> Any:
            return x / self.by

    class Local(Halver):
        def method(self, x: Any) -> Any:
            return x / self.by

    jitted = jax.jit(closure)
    file = folder / "bench_travel.py"
    file.write_text(FILE)
    cases = {case.id.name: case for case in find([file])[0]}
    return {
        "lambda": (lambda x: x * 3.0, 2.0),
        "closure": (closure, 2.0),
        "partial": (functools.partial(power, exponent=3), 2.0),
        "object": (Local(4.0), 2.0),
        "method": (Local(4.0).method, 2.0),
        "imported": (jax.lax.square, 2.0),
        "imported jitted": (jnp.square, 2.0),
        "imported partial": (functools.partial(jnp.power, 3.0), 2.0),
        "jitted lambda": (jax.jit(lambda x: x * 3.0), 2.0),
        "jitted closure": (jitted, 2.0),
        "jitted static": (jax.jit(power, static_argnames="exponent"), 2.0, 3),
        "jitted partial": (jax.jit(functools.partial(power, exponent=3)), 2.0),
        "closure over jitted": (lambda x: jitted(x) + 1.0, 2.0),
        "file": (cases["by_helper"].fn, *cases["by_helper"].inputs()[0]),
        "file jitted": (cases["jitted"].fn, 2.0),
        "file object": (cases["of_class"].fn, 2.0),
    }


@pytest.fixture(scope="module")
def arrived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[float, bool, float | None]]:
    """What one other process, which can import benchax and nothing of this file, made of everything."""
    folder = tmp_path_factory.mktemp("bench")
    blobs = {name: pickling.dumps(value) for name, value in travellers(folder).items()}
    done = python("-c", CHILD, given=pickle.dumps(blobs))
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def test_each_arrives_and_gives_the_same_result_a_jitted_one_with_its_stages(
    arrived: dict[str, Any], tmp_path: Path
) -> None:
    """JAX's own pickling loses trace and lower, without which nothing could be measured apart."""
    expected = {name: float(fn(*arguments)) for name, (fn, *arguments) in travellers(tmp_path).items()}

    assert {name: value for name, (value, _, _) in arrived.items()} == expected
    jitted = [found for name, found in arrived.items() if "jitted" in name and "over" not in name]
    assert len(jitted) == 6
    assert all(has_trace and compiled == value for value, has_trace, compiled in jitted)


def test_a_whole_case_survives_the_way_there_and_back() -> None:
    case = make_case(lambda x, n: x * n, ("f32[8]", 3), name="näme", tag="t", static=(1,))

    back = pickle.loads(pickling.dumps(case))

    assert (back.id, back.static, back.inputs()) == (case.id, case.static, case.inputs())
    assert back.fn(2, 3) == 6
    outer = pickling.loads(pickling.dumps(lambda: lambda: None))
    assert outer.__code__.co_filename == outer().__code__.co_filename == __file__


@pytest.mark.parametrize("make", [threading.Lock, lambda: (i for i in "abc")], ids=["lock", "generator"])
def test_what_cannot_travel_is_refused_and_cloudpickle_is_left_as_it_was(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    """Other users of cloudpickle in this process, such as Ray, must not notice."""
    what, before = make(), cloudpickle.list_registry_pickle_by_value()

    pickling.dumps(travellers(tmp_path)["file"])
    with pytest.raises(TypeError, match="cannot pickle"):
        pickling.dumps(lambda: what)

    assert cloudpickle.list_registry_pickle_by_value() == before


# ---- arrays -----------------------------------------------------------------------------------------------------


def there_and_back(value: Any) -> tuple[Any, int]:
    """The value, and how many buffers travelled beside the pickle."""
    beside: list[pickle.PickleBuffer] = []
    content = pickling.dumps(value, beside.append)
    return pickling.loads(content, [memoryview(bytearray(buffer.raw())) for buffer in beside]), len(beside)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int32", "complex64", "bfloat16", "float8_e4m3fn", "int4"])
def test_an_array_of_jax_arrives_as_one(dtype: str) -> None:
    array = jnp.arange(6, dtype="float32").astype(dtype).reshape(2, 3)

    back, _ = there_and_back(array)

    assert isinstance(back, jax.Array)
    assert (back.dtype, back.shape, back.tolist()) == (array.dtype, array.shape, array.tolist())
    assert back.weak_type == array.weak_type


def test_a_number_that_became_an_array_is_still_weak_and_typed_keys_draw_the_same() -> None:
    """Else x * it would have another dtype over there."""
    assert there_and_back(jnp.asarray(2.0))[0].weak_type
    for implementation in ("threefry2x32", "rbg"):
        key = jax.random.split(jax.random.key(3, impl=implementation), 2)
        back, _ = there_and_back(key)
        assert back.dtype == key.dtype
        assert jax.random.bits(back[1]) == jax.random.bits(key[1])


def test_buffers_travel_beside_the_pickle() -> None:
    small, big = np.zeros((0, 3)), np.arange(2.0**18)

    (back_small, back_big, back_jax), beside = there_and_back((small, big, jnp.asarray(big)))

    assert beside == 3
    np.testing.assert_array_equal(back_small, small)
    np.testing.assert_array_equal(back_big, big)
    np.testing.assert_array_equal(back_jax, big)


def test_an_array_over_several_devices_is_refused() -> None:
    """It would arrive on one, and another program would be measured."""
    code = """
import jax, jax.numpy as jnp
from benchax.workers import pickling
mesh = jax.make_mesh((2,), ("x",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
try:
    pickling.dumps(jax.device_put(jnp.arange(4), sharding))
except TypeError as error:
    print(error)
"""
    said = warm_python.run_on_devices(2, code)

    assert said == "an array over 2 devices cannot be sent to another process\n"


# ---- classes that JAX takes apart, in a process that has never heard of them ----------------------------------------

CLASSES = """
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

def add_one(cls):
    return lambda x: jax.tree.map(lambda leaf: leaf + 1, cls(x))

registered, by_hand, of_equinox = map(add_one, (Registered, ByHand, OfEquinox))

def of_flax(x):
    return OfFlax(x).replace(w=x + 1)

def plain(x):
    return x + Plain.w
"""

# Loads each function twice, as a worker does that gets it in two jobs, and calls it jitted. Each in a fork, which has
# imported no file of ours; JAX is imported once, which takes longer than all the rest.
FORKS = """
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
    done = python("-c", FORKS, given=pickle.dumps(contents))
    assert done.returncode == 0, done.stderr.decode()
    *printed, rest = done.stdout.decode().split("next")
    assert len(printed) == len(contents), (rest, done.stderr.decode())
    return [words.split() for words in printed]


def test_those_of_a_file_are_imported_from_it_and_a_file_without_need_is_not(tmp_path: Path) -> None:
    (tmp_path / "states of mine.py").write_text(CLASSES, encoding="utf-8")
    file = import_file(tmp_path / "states of mine.py")
    names = ["registered", "by_hand", "of_flax", "of_equinox", "plain"]

    printed = in_other_processes(*(pickling.dumps(getattr(file, name)) for name in names))

    assert printed == [*[["imported", "2.0"]] * 4, ["4.0"]]


def test_on_another_machine_they_are_imported_from_the_folder_that_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "inner").mkdir(parents=True)
    (here / "inner" / "states.py").write_text(CLASSES, encoding="utf-8")
    sent = pickling.dumps(import_file(here / "inner" / "states.py").of_equinox)
    here.rename(there)
    monkeypatch.setenv(pickling.SENT_FROM, str(here))
    monkeypatch.chdir(there)

    assert in_other_processes(sent) == [["imported", "2.0"]]


def test_those_of_a_notebook_are_told_to_jax_again_but_one_with_a_making_of_its_own() -> None:
    told, refused = (python("-c", NOTEBOOK, name) for name in ("registered", "modelled"))

    assert in_other_processes(told.stdout) == [["2.0"]]
    assert b"TypeError: the class 'Modelled' of '__main__' is made by" in refused.stderr
    assert b"put it into a separate file and import it from there" in refused.stderr


def test_those_that_were_known_here_stay_what_they_were() -> None:
    back = pickling.loads(pickling.dumps(Known(jnp.ones(3))))

    assert type(back) is Known
    assert len(jax.tree.leaves(back)) == 1
