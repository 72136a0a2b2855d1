"""Finding benchmarks: in folders, in files, and as `module:function` with inputs; what breaks stays beside the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refusal

from benchax.case import Case
from benchax.discovery import (
    files,
    find,
    literal,
    matches,
    resolve_target,
    suggest_for_file,
    suggest_for_words,
    target_cases,
)
from benchax.model import CaseId, Failure, Opaque

ONE = """
import benchax

@benchax.benchmark(args=("f32[3]",))
def {name}(x):
    return x
"""
SIZES = """
import benchax

@benchax.benchmark(args=lambda n: (f"f32[{n}]",), n=[128, 256])
def sizes(x):
    return x
"""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=5,
)


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Files are imported for real: afterwards their folders and modules are forgotten."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(file: Path, text: str = "", **names: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.format(**names) if names else text, encoding="utf-8")
    return file


def labels(found: tuple[list[Case], list[Failure]]) -> list[str]:
    return [case.id.label for case in found[0]]


# Files


def test_benchmarks_are_found_at_any_depth_in_the_order_of_paths_and_definitions(tmp_path: Path) -> None:
    for place in ("bench_b.py", "bench_a.py", "sub/deep/bench_c.py", "sub/bench_d.py"):
        write(tmp_path / place, ONE, name=Path(place).stem.removeprefix("bench_"))
    write(tmp_path / "bench_e.py", "".join(ONE.format(name=name) for name in ("zeta", "alpha")) + SIZES)

    found = find([tmp_path])

    assert labels(found) == ["a", "b", "zeta", "alpha", "sizes[n=128]", "sizes[n=256]", "d", "c"]
    assert found[1] == []


@pytest.mark.parametrize(
    "name", ["x.py", "test_bench_x.py", "bench.py", "Bench_x.py", "bench_x.txt", ".bench_x.py", ".hidden/bench_x.py",
             "sub/.venv/lib/bench_x.py", "bench_x.pyc"],
)  # fmt: skip
def test_other_files_and_hidden_folders_are_left_out(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, "raise SystemExit('imported')")

    assert files(tmp_path) == []


def test_a_file_or_folder_that_is_named_may_be_called_anything_and_is_measured_once(project: Path) -> None:
    file = write(project / ".work" / "fast.py", ONE, name="x")
    write(project / ".work" / "bench_y.py", ONE, name="y")

    named = find([file, project / ".work", Path(".work") / "." / "fast.py"])

    assert labels(named) == ["x", "y"]
    assert {case.folder for case in named[0]} == {(project / ".work").resolve()}


@pytest.mark.parametrize("folder", ["with space", "naïve-Ärger", "測試", "a:b", "100%", "it's", "[x]", "{n}"])
def test_folders_and_files_may_have_any_name(folder: str, tmp_path: Path) -> None:
    file = write(tmp_path / folder / f"bench_{folder}.py", ONE, name="x")
    write(tmp_path / folder / "my kernels.py", "class K:\n    @staticmethod\n    def f(x):\n        return x + 1\n")

    found = find([tmp_path])
    (case,) = target_cases(f"{tmp_path / folder / 'my kernels.py'}:K.f", ["f32[8]"])

    assert (labels(found), found[0][0].folder) == (["x"], file.parent.resolve())
    assert (case.fn(1), case.id.name) == (2, "K.f")


def test_two_files_of_one_name_in_different_folders_stay_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write(tmp_path / folder / "bench_x.py", ONE, name=f"from_{folder}")

    first, second = find([tmp_path])[0]

    assert [first.id.name, second.id.name] == ["from_a", "from_b"]
    assert [first.folder, second.folder] == [tmp_path / "a", tmp_path / "b"]
    assert sys.modules[first.fn.__module__] is not sys.modules[second.fn.__module__]


def test_two_benchmarks_of_one_name_in_one_run_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a" / "bench_x.py", ONE, name="same")
    write(tmp_path / "b" / "bench_y.py", ONE, name="same")

    assert refusal(find, [tmp_path]) == (
        f"two benchmarks are called 'same' (in {tmp_path / 'a'} and {tmp_path / 'b'}), so their rows would "
        "have the same name\nexpected names that differ within one run\n\n"
        "hint: give one of them a name: @benchax.benchmark(name=...), or choose with --filter"
    )


def test_a_benchmark_with_two_names_is_one_benchmark(tmp_path: Path) -> None:
    write(tmp_path / "bench_x.py", ONE + "alias = {name}\nlisted = [{name}]", name="x")

    assert labels(find([tmp_path])) == ["x"]


def test_modules_beside_the_file_can_be_imported_and_inputs_are_not_made_while_looking(tmp_path: Path) -> None:
    write(tmp_path / "helper_of_test_discovery.py", "SIZE = 7")
    text = SIZES.replace("128, 256", "SIZE").replace('(f"f32[{n}]",)', "1 / 0")
    write(tmp_path / "bench_x.py", f"from helper_of_test_discovery import SIZE\n{text}")

    found = find([tmp_path])

    assert labels(found) == ["sizes[n=7]"]
    with pytest.raises(ZeroDivisionError):
        found[0][0].inputs()


def test_a_function_of_the_file_is_a_parameter_with_a_lasting_identity(tmp_path: Path) -> None:
    """Neither the folder nor the process shows, else no two runs would have a row of the same case."""
    write(tmp_path / "bench_x.py", "def tanh(x): return x\n" + SIZES.replace("128, 256", "tanh"))

    assert find([tmp_path])[0][0].id.params == (("n", Opaque("function", "bench_x.tanh")),)


@pytest.mark.parametrize("file", ["bench_x.py", "other.py"])
def test_no_benchmarks_at_all_is_an_error_that_shows_how_to_make_one(file: str, tmp_path: Path) -> None:
    write(tmp_path / "a" / file, "x = 1")
    (tmp_path / "b").mkdir()

    assert refusal(find, [tmp_path / "a", tmp_path / "b"]) == (
        f"no benchmarks in {str(tmp_path / 'a')!r}, {str(tmp_path / 'b')!r}\n"
        "expected functions under @benchax.benchmark(...) in files named bench_*.py\n"
        "\nhint: to measure one function without a file: benchax run jax.numpy:sort f32[1000000]"
    )


def test_a_file_without_benchmarks_is_told_what_measures_it(tmp_path: Path) -> None:
    functions = write(tmp_path / "model.py", "def _own(): ...\ndef loss(x): ...\ndef step(x): ...")
    tests = write(tmp_path / "test_fit.py", "def test_fit(benchmark): ...")
    benches = write(tmp_path / "bench_fit.py", "def bench_fit(benchmark, trained): ...")

    assert refusal(find, [functions]).endswith(
        f"a function of it (loss, step) is measured by: benchax run {functions}:loss 'f32[8,128]'; "
        f"this shows where a program spends its time: benchax profile -- python {functions}"
    )
    assert all(f"pytest {file} --benchax-fixture" in refusal(find, [file]) for file in (tests, benches))
    for words in (["python", "train.py"], ["python train.py"]):
        assert "benchax profile -- python train.py" in refusal(find, [Path(word) for word in words])


# Files that break


@pytest.mark.parametrize(
    ("text", "message", "in_traceback"),
    [
        ("def f(:\n", "SyntaxError: ", "SyntaxError"),
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_mod", "import no_such"),
        ("raise SystemExit(3)", "SystemExit: 3", "raise SystemExit(3)"),
        ("def g():\n    return 1 / 0\ng()", "ZeroDivisionError: division by zero", "return 1 / 0"),
        ("import benchax\n@benchax.benchmark(n=3)\ndef f(n): ...", "UsageError: parameter 'n' of", "benchmark(n=3)"),
        (
            "class Mute(Exception):\n    def __str__(self): raise KeyError\nraise Mute",
            "Mute: <exception str",
            "raise Mute",
        ),
        ("# \x00", "", ""),
    ],
)
def test_a_file_that_breaks_is_reported_beside_the_cases_of_the_others(
    text: str, message: str, in_traceback: str, tmp_path: Path
) -> None:
    """Also if the filter or a parameter belongs to nothing else: it may be in there."""
    write(tmp_path / "bench_a.py", ONE, name="a")
    path = write(tmp_path / "bench_broken_one.py", text)
    write(tmp_path / "bench_c.py", ONE, name="c")

    cases, (broken,) = find([tmp_path], {"n": [1]})

    assert [case.id.label for case in cases] == ["a", "c"]
    assert (broken.kind, broken.stage) == ("error", "import")
    assert broken.message.startswith(f"{path} cannot be imported: {message}")
    assert broken.traceback.startswith("Traceback (most recent call last):")
    assert in_traceback in broken.traceback
    assert [name for name in sys.modules if name.endswith("bench_broken_one")] == []
    assert (find([tmp_path], pattern="fft")[0], len(find([path])[1])) == ([], 1)


def test_a_file_that_is_not_text_is_reported_and_an_interrupt_is_not_swallowed(tmp_path: Path) -> None:
    (tmp_path / "bench_x.py").write_bytes(b"\xff\xfe\x00")

    assert "bench_x.py cannot be imported" in find([tmp_path])[1][0].message
    write(tmp_path / "bench_y.py", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        find([tmp_path])


# Filters and parameters


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("", [0, 1, 2]), ("s", [0, 1, 2]), ("sizes", [0, 1]), ("n=256", [1]), ("[n=128]", [0]), ("s*", [0, 1, 2]),
        ("*or*", [2]), ("sor?", [2]), ("sizes[n=*]", [0, 1]), ("*[n=?56]", [1]), ("size?", [0, 1]),
    ],
)  # fmt: skip
def test_a_filter_keeps_the_cases_whose_label_holds_or_matches_it(
    pattern: str, kept: list[int], tmp_path: Path
) -> None:
    write(tmp_path / "bench_x.py", SIZES + ONE.format(name="sort"))

    assert labels(find([tmp_path], pattern=pattern)) == [["sizes[n=128]", "sizes[n=256]", "sort"][i] for i in kept]


@pytest.mark.parametrize("pattern", ["?sort", "*Sort*", "s?t", "sor*x", "?", "n=*", "sort[n=[12]*", "*sort?"])
def test_a_pattern_with_a_star_has_to_match_from_end_to_end(pattern: str) -> None:
    assert not matches(CaseId("sort", (("n", 1),)), pattern)


def test_parameters_are_replaced_where_they_exist(tmp_path: Path) -> None:
    write(tmp_path / "bench_x.py", SIZES + ONE.format(name="plain"))

    found = find([tmp_path], {"n": [7, 8, 9]})

    assert labels(found) == ["sizes[n=7]", "sizes[n=8]", "sizes[n=9]", "plain"]
    assert found[0][0].inputs() == (("f32[7]",), {})


def test_a_filter_or_a_parameter_of_nothing_names_what_there_is(tmp_path: Path) -> None:
    sizes, plain = write(tmp_path / "bench_x.py", SIZES), write(tmp_path / "bench_y.py", ONE, name="sort")

    assert refusal(find, [tmp_path], pattern="srot") == (
        "no case matches 'srot'\nexpected 'sort'? Choices: sizes[n=128], sizes[n=256], sort"
    )
    assert refusal(find, [sizes], {"m": [1]}) == "no benchmark has a parameter 'm'\nexpected one of: n"
    assert refusal(find, [plain], {"n": [1]}) == "no benchmark has a parameter 'n'\nexpected no -p at all"


# Targets


def test_a_target_is_a_function_of_a_module_or_an_attribute_of_an_attribute() -> None:
    import jax

    (sort,), (relu,) = target_cases("jax.numpy:sort", ["f32[8]"]), target_cases("jax:nn.relu", ["f32[8]"])

    assert (sort.fn, sort.id, sort.inputs(), sort.static) == (jax.numpy.sort, CaseId("sort"), (("f32[8]",), {}), ())
    assert (relu.fn, relu.id.name) == (jax.nn.relu, "nn.relu")


def test_a_module_of_the_working_directory_can_be_a_target(project: Path) -> None:
    write(project / "kernels_of_test_discovery.py", "def f(x):\n    return x + 1\n")

    (case,) = target_cases("kernels_of_test_discovery:f", ["f32[8]"])

    assert (case.fn(1), case.folder) == (2, project)


TARGETS = (
    "", "jax.numpy", "jax.numpy:", ":sort", "kernels.py:", "jax.nunpy:sort", "no_such_package.a:sort", ".numpy:sort",
    "ends:f", "fails:f", "kernels.py:f", "bench_par.py:gradient[res=0.5, n=4]", "bench_par.py:K.gelo",
)  # fmt: skip


def test_a_target_that_is_none_is_refused_with_the_reason_and_the_nearest(project: Path, snapshot: Any) -> None:
    for name, text in {"ends": "raise SystemExit(3)", "fails": "1 / 0", "kernels": "1 / 0"}.items():
        write(project / f"{name}.py", text)
    write(project / "bench_par.py", "gradient = len\nclass K:\n    gelu = len\n    _hidden = len\n")

    assert {target: refusal(resolve_target, target) for target in TARGETS} == snapshot
    assert refusal(resolve_target, "statistics:medain").startswith(
        "'statistics' has no function 'medain'\nexpected 'median'? Choices: "
    )
    assert refusal(resolve_target, "nowhere.py:f").startswith("nowhere.py cannot be imported: FileNotFoundError: ")
    assert refusal(target_cases, "math:pi", []).startswith("cannot measure 3.14")


def test_a_benchmark_takes_no_inputs(tmp_path: Path) -> None:
    file = write(tmp_path / "bench_x.py", ONE, name="x")

    assert refusal(target_cases, f"{file}:x", ["f32[8]"]) == (
        f"'{file}:x' is a benchmark and brings its own inputs\nexpected no inputs, or a plain function\n\nhint: "
        "benchax run FILE"
    )


# Inputs of targets


INPUTS = (
    "f32[8,2]", "key", "3", "-1.5", "2j", "n=3", "None", "True", "(1, 2)", "'fast'", "fast", "ij,jk->ik", "'f32[8]'",
    "axis=None", "shape=(8, 2)", "key=f32[8]", "x=key", "text=n=3", "x=", "=3", "a-b=3",
)  # fmt: skip


def test_an_input_is_data_or_a_static_value(snapshot: Any) -> None:
    found = {text: target_cases("builtins:print", [text]) for text in INPUTS}

    assert {text: repr((*case.inputs(), case.static)) for text, (case,) in found.items()} == snapshot


def test_inputs_keep_their_places() -> None:
    (case,) = target_cases("builtins:print", ["f32[8]", "axis=0", "3", "y=i32[]", "key"])

    assert case.inputs() == (("f32[8]", 3, "key"), {"axis": 0, "y": "i32[]"})
    assert case.static == ("axis",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("F32[8]", "unknown dtype 'F32' in 'F32[8]'"),
        ("x=f32[-1]", "dimension '-1' in 'f32[-1]' is not a size"),
        ("f32[{n}]", "dimension '{n}' in 'f32[{n}]' is not a size"),
    ],
)
def test_a_slip_in_a_spec_is_reported_at_once(text: str, message: str) -> None:
    assert refusal(target_cases, "jax.numpy:sort", [text]).startswith(message)


def test_placeholders_stand_for_every_combination_of_the_parameters() -> None:
    cases = target_cases("jax.numpy:sort", ["f32[{n},{m},{n}]", "axis={axis}"], {"n": [1, 2], "m": [3], "axis": [0, 1]})
    (braces,) = target_cases("builtins:print", ["{'a': 1}", "{m} {n}"], {"n": [4]})

    sizes = [(n, axis) for n in (1, 2) for axis in (0, 1)]
    assert [case.id for case in cases] == [CaseId("sort", (("n", n), ("m", 3), ("axis", axis))) for n, axis in sizes]
    assert [case.inputs() for case in cases] == [((f"f32[{n},3,{n}]",), {"axis": axis}) for n, axis in sizes]
    assert braces.inputs() == (({"a": 1}, "{m} 4"), {})
    assert refusal(target_cases, "jax.numpy:sort", ["f32[{n}]"], {"n": [1], "m": [2]}) == (
        "no input mentions the parameter 'm'\nexpected an input such as f32[{m}]"
    )


# Literals


@given(st.text())
@example("(" * 10_000)
@example("{[1]: 2}")
@example("9" * 5000)
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_any_text_has_a_value(text: str) -> None:
    value = literal(text)

    assert value == text or repr(value) != repr(text)


@given(VALUES)
def test_any_value_can_be_given_as_its_repr(value: Any) -> None:
    assert repr(literal(repr(value))) == repr(value)


# ---- suggestions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["train.py", "--steps", "3"], "benchax profile -- python train.py --steps 3"),
        (["python train.py"], "benchax profile -- python train.py"),
        (["uv", "run", "train.py"], "benchax profile -- uv run train.py"),
        (["model.py:loss", "f32[8]"], "benchax run model.py:loss 'f32[8]'"),
        ([], ""), ([""], ""), (["benchmarks"], ""), (["--quick"], ""),
    ],
)  # fmt: skip
def test_a_program_and_a_function_are_told_their_command(words: list[str], command: str) -> None:
    assert suggest_for_words(words).rpartition(": ")[2] == command


def test_of_many_functions_a_few_are_named_and_without_any_the_program(tmp_path: Path) -> None:
    many = "def _own(x): ...\n" + "".join(f"def f{i}(x): ...\n" for i in range(5))
    file = write(tmp_path / "my model.py", many)
    none = [write(tmp_path / f"t{i}.py", text) for i, text in enumerate(["x = 3\n", "def f(:\n", "def f(x): '\0'\n"])]

    told = suggest_for_file(file)

    assert told.startswith(f"a function of it (f0, f1, f2, f3, …) is measured by: benchax run '{file}':f0")
    assert f"benchax profile -- python '{file}'" in told
    assert [suggest_for_file(file) for file in none] == [
        f"this shows where a program spends its time: benchax profile -- python {file}" for file in none
    ]
