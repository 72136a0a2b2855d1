"""Finding benchmarks: in folders, in files, and as `module:function` with inputs; what breaks stays beside the rest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchax.discovery import (
    Found,
    files,
    find,
    literal,
    matches,
    resolve_target,
    suggest_for_file,
    suggest_for_words,
    target_cases,
)
from benchax.errors import UsageError
from benchax.model import CaseId, Opaque

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


def labels(found: Found) -> list[str]:
    return [case.id.label for case in found.cases]


# Files


def test_benchmarks_are_found_in_folders_at_any_depth_in_order(tmp_path: Path) -> None:
    for place in ("bench_b.py", "bench_a.py", "sub/deep/bench_c.py", "sub/bench_d.py"):
        write(tmp_path / place, ONE, name=Path(place).stem.removeprefix("bench_"))

    found = find([tmp_path])

    assert labels(found) == ["a", "b", "d", "c"]
    assert found.broken == ()


def test_several_benchmarks_of_a_file_come_in_the_order_of_their_definition(tmp_path: Path) -> None:
    write(tmp_path / "bench_x.py", "".join(ONE.format(name=name) for name in ("zeta", "alpha", "mid")) + SIZES)

    assert labels(find([tmp_path])) == ["zeta", "alpha", "mid", "sizes[n=128]", "sizes[n=256]"]


@pytest.mark.parametrize(
    "name", ["x.py", "test_bench_x.py", "bench.py", "Bench_x.py", "bench_x.txt", ".bench_x.py", ".hidden/bench_x.py",
             "sub/.venv/lib/bench_x.py", "bench_x.pyc"],
)  # fmt: skip
def test_other_files_and_hidden_folders_are_left_out(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, "raise SystemExit('imported')")

    assert files(tmp_path) == []


def test_a_hidden_folder_above_does_not_hide_what_was_asked_for(tmp_path: Path) -> None:
    write(tmp_path / ".work" / "bench_x.py", ONE, name="x")

    assert labels(find([tmp_path / ".work"])) == ["x"]


def test_a_file_that_is_named_may_be_called_anything(tmp_path: Path) -> None:
    file = write(tmp_path / "fast.py", ONE, name="x")

    assert labels(find([file])) == ["x"]


def test_a_file_that_is_named_twice_is_measured_once(tmp_path: Path) -> None:
    file = write(tmp_path / "bench_x.py", ONE, name="x")

    assert labels(find([file, tmp_path, tmp_path / "." / "bench_x.py"])) == ["x"]


def test_paths_may_be_relative(project: Path) -> None:
    write(project / "sub" / "bench_x.py", ONE, name="x")

    (case,) = find([Path("sub")]).cases

    assert (case.id.name, case.folder) == ("x", (project / "sub").resolve())


@pytest.mark.parametrize("folder", ["with space", "naïve-Ärger", "測試", "a:b", "100%", "it's", "[x]", "{n}"])
def test_folders_and_files_may_have_any_name(folder: str, tmp_path: Path) -> None:
    file = write(tmp_path / folder / f"bench_{folder}.py", ONE, name="x")

    found = find([tmp_path])

    assert (labels(found), found.cases[0].folder) == (["x"], file.parent.resolve())


def test_two_files_of_one_name_in_different_folders_stay_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write(tmp_path / folder / "bench_x.py", ONE, name=f"from_{folder}")

    first, second = find([tmp_path]).cases

    assert [first.id.name, second.id.name] == ["from_a", "from_b"]
    assert [first.folder, second.folder] == [tmp_path / "a", tmp_path / "b"]
    assert sys.modules[first.fn.__module__] is not sys.modules[second.fn.__module__]


def test_two_benchmarks_of_one_name_in_one_run_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a" / "bench_x.py", ONE, name="same")
    write(tmp_path / "b" / "bench_y.py", ONE, name="same")

    with pytest.raises(UsageError) as caught:
        find([tmp_path])

    assert str(caught.value) == (
        f"two benchmarks are called 'same' (in {tmp_path / 'a'} and {tmp_path / 'b'}), so their rows would "
        "have the same name\nexpected names that differ within one run\n\n"
        "hint: give one of them a name: @benchax.benchmark(name=...), or choose with --filter"
    )


def test_a_benchmark_with_two_names_is_one_benchmark(tmp_path: Path) -> None:
    write(tmp_path / "bench_x.py", ONE + "alias = {name}\nlisted = [{name}]", name="x")

    assert labels(find([tmp_path])) == ["x"]


def test_modules_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    write(tmp_path / "helper_of_test_discovery.py", "SIZE = 7")
    write(tmp_path / "bench_x.py", "from helper_of_test_discovery import SIZE\n" + SIZES.replace("128, 256", "SIZE"))

    assert labels(find([tmp_path])) == ["sizes[n=7]"]


def test_inputs_are_not_made_while_looking(tmp_path: Path) -> None:
    write(tmp_path / "bench_x.py", SIZES.replace('(f"f32[{n}]",)', "1 / 0"))

    (case, _) = find([tmp_path]).cases

    with pytest.raises(ZeroDivisionError):
        case.inputs()


def test_a_function_of_the_file_is_a_parameter_with_a_lasting_identity(tmp_path: Path) -> None:
    """Neither the folder nor the process shows, else no two runs would have a row of the same case."""
    write(tmp_path / "bench_x.py", "def tanh(x): return x\n" + SIZES.replace("128, 256", "tanh"))

    (case,) = find([tmp_path]).cases

    assert case.id.params == (("n", Opaque("function", "bench_x.tanh")),)


def test_a_path_that_is_not_there_is_quoted(tmp_path: Path) -> None:
    path = tmp_path / "nowhere"

    with pytest.raises(UsageError) as caught:
        find([path])

    assert str(caught.value) == (
        f"there is no file or folder {str(path)!r}\nexpected a folder with bench_*.py files, or such a file"
    )


def test_a_file_that_is_not_python_is_quoted(tmp_path: Path) -> None:
    path = write(tmp_path / "bench_x.txt")

    with pytest.raises(UsageError) as caught:
        find([path])

    assert str(caught.value) == (
        f"{str(path)!r} is not a Python file\nexpected a folder with bench_*.py files, or such a file"
    )


@pytest.mark.parametrize("file", ["bench_x.py", "other.py"])
def test_no_benchmarks_at_all_is_an_error_that_shows_how_to_make_one(file: str, tmp_path: Path) -> None:
    write(tmp_path / "a" / file, "x = 1")
    (tmp_path / "b").mkdir()

    with pytest.raises(UsageError) as caught:
        find([tmp_path / "a", tmp_path / "b"])

    assert str(caught.value) == (
        f"no benchmarks in {str(tmp_path / 'a')!r}, {str(tmp_path / 'b')!r}\n"
        "expected functions under @benchax.benchmark(...) in files named bench_*.py\n"
        "\nhint: to measure one function without a file: benchax run jax.numpy:sort f32[1000000]"
    )


def test_a_file_of_functions_is_told_how_they_and_the_program_are_measured(tmp_path: Path) -> None:
    file = write(tmp_path / "model.py", "def _own(): ...\ndef loss(x): ...\ndef step(x): ...")

    with pytest.raises(UsageError) as caught:
        find([file])

    assert caught.value.hint == (
        f"a function of it (loss, step) is measured by: benchax run {file}:loss 'f32[8,128]'; "
        f"this shows where a program spends its time: benchax profile -- python {file}"
    )


def test_a_file_of_tests_is_told_of_pytest(tmp_path: Path) -> None:
    file = write(tmp_path / "test_fit.py", "def test_fit(benchmark): ...")

    with pytest.raises(UsageError) as caught:
        find([file])

    assert f"pytest {file} --benchax-fixture" in caught.value.hint


@pytest.mark.parametrize("words", [["python", "train.py"], ["python train.py"]])
def test_a_program_in_place_of_benchmarks_is_told_what_looks_at_programs(words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        find([Path(word) for word in words])

    assert "benchax profile -- python train.py" in caught.value.hint


# Files that break


BREAKS = [
    ("def f(:\n", "SyntaxError: ", "SyntaxError"),
    ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'", "import no_such"),
    ("raise SystemExit(3)", "SystemExit: 3", "raise SystemExit(3)"),
    ("def g():\n    return 1 / 0\ng()", "ZeroDivisionError: division by zero", "return 1 / 0"),
    (
        "import benchax\n@benchax.benchmark(n=3)\ndef f(n): ...",
        "UsageError: parameter 'n' of",
        "benchax.benchmark(n=3)",
    ),
    ("# \x00", "", ""),
]


@pytest.mark.parametrize(("text", "message", "in_traceback"), BREAKS)
def test_a_file_that_breaks_is_reported_beside_the_cases_of_the_others(
    text: str, message: str, in_traceback: str, tmp_path: Path
) -> None:
    write(tmp_path / "bench_a.py", ONE, name="a")
    path = write(tmp_path / "bench_b.py", text)
    write(tmp_path / "bench_c.py", ONE, name="c")

    found = find([tmp_path])

    (broken,) = found.broken
    assert labels(found) == ["a", "c"]
    assert (broken.path, broken.failure.kind, broken.failure.stage) == (path, "error", "import")
    assert broken.failure.message.startswith(f"{path} cannot be imported: {message}")
    assert broken.failure.traceback.startswith("Traceback (most recent call last):")
    assert in_traceback in broken.failure.traceback


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "bench_x.py").write_bytes(b"\xff\xfe\x00")

    found = find([tmp_path])

    assert [broken.path.name for broken in found.broken] == ["bench_x.py"]


def test_a_file_that_broke_leaves_no_half_made_module(tmp_path: Path) -> None:
    write(tmp_path / "bench_broken_one.py", "1 / 0")

    find([tmp_path])

    assert [name for name in sys.modules if name.endswith("bench_broken_one")] == []


def test_only_broken_files_are_no_error_of_the_search(tmp_path: Path) -> None:
    write(tmp_path / "bench_x.py", "1 / 0")

    found = find([tmp_path])

    assert (len(found.cases), len(found.broken)) == (0, 1)


def test_an_interrupt_while_importing_is_not_swallowed(tmp_path: Path) -> None:
    write(tmp_path / "bench_x.py", "raise KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        find([tmp_path])


# Filters


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("", ["sizes[n=128]", "sizes[n=256]", "sort"]),
        ("s", ["sizes[n=128]", "sizes[n=256]", "sort"]),
        ("sizes", ["sizes[n=128]", "sizes[n=256]"]),
        ("n=256", ["sizes[n=256]"]),
        ("[n=128]", ["sizes[n=128]"]),
        ("s*", ["sizes[n=128]", "sizes[n=256]", "sort"]),
        ("*or*", ["sort"]),
        ("sor?", ["sort"]),
        ("sizes[n=*]", ["sizes[n=128]", "sizes[n=256]"]),
        ("*[n=?56]", ["sizes[n=256]"]),
        ("size?", ["sizes[n=128]", "sizes[n=256]"]),
    ],
)
def test_a_filter_keeps_the_cases_whose_label_holds_or_matches_it(
    pattern: str, kept: list[str], tmp_path: Path
) -> None:
    write(tmp_path / "bench_x.py", SIZES + ONE.format(name="sort"))

    assert labels(find([tmp_path], pattern=pattern)) == kept


@given(st.text(max_size=20), st.text(max_size=20))
@example("a*b", "a*b")
@example("[", "x")
def test_a_case_is_matched_by_its_own_label(name: str, tag: str) -> None:
    case_id = CaseId(name, (("n", 1),), tag=tag)

    assert matches(case_id, case_id.label)


@pytest.mark.parametrize("pattern", ["?sort", "*Sort*", "s?t", "sor*x", "?", "n=*", "sort[n=[12]*", "*sort?"])
def test_a_pattern_with_a_star_has_to_match_from_end_to_end(pattern: str) -> None:
    assert not matches(CaseId("sort", (("n", 1),)), pattern)


def test_a_filter_that_keeps_nothing_names_what_there_is(tmp_path: Path) -> None:
    write(tmp_path / "bench_x.py", SIZES + ONE.format(name="sort"))

    with pytest.raises(UsageError) as caught:
        find([tmp_path], pattern="srot")

    assert str(caught.value) == (
        "no case matches 'srot'\nexpected 'sort'? Permitted is one of: sizes[n=128], sizes[n=256], sort"
    )


def test_a_filter_that_keeps_nothing_does_not_hide_the_file_that_broke(tmp_path: Path) -> None:
    """What it was to keep may be in there."""
    write(tmp_path / "bench_a.py", ONE, name="a")
    write(tmp_path / "bench_fft.py", "1 / 0")

    found = find([tmp_path], pattern="fft")

    assert (found.cases, [broken.path.name for broken in found.broken]) == ((), ["bench_fft.py"])


# Parameters


def test_parameters_are_replaced_where_they_exist(tmp_path: Path) -> None:
    write(tmp_path / "bench_x.py", SIZES + ONE.format(name="plain"))

    found = find([tmp_path], {"n": [7, 8, 9]})

    assert labels(found) == ["sizes[n=7]", "sizes[n=8]", "sizes[n=9]", "plain"]
    assert found.cases[0].inputs() == (("f32[7]",), {})


def test_a_parameter_that_no_benchmark_has_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path / "bench_x.py", SIZES.replace("n=[", "size=[").replace("lambda n", "lambda size"))

    with pytest.raises(UsageError) as caught:
        find([tmp_path], {"sice": [1]})

    assert str(caught.value) == ("no benchmark has a parameter 'sice'\nexpected 'size'? Permitted is one of: size")


def test_a_parameter_where_no_benchmark_has_any(tmp_path: Path) -> None:
    write(tmp_path / "bench_x.py", ONE, name="x")

    with pytest.raises(UsageError) as caught:
        find([tmp_path], {"n": [1]})

    assert str(caught.value) == "no benchmark has a parameter 'n'\nexpected no -p at all"


def test_a_parameter_may_belong_to_the_file_that_broke(tmp_path: Path) -> None:
    write(tmp_path / "bench_a.py", ONE, name="a")
    write(tmp_path / "bench_b.py", "1 / 0")

    found = find([tmp_path], {"n": [1]})

    assert (labels(found), len(found.broken)) == (["a"], 1)


# Targets


def test_a_target_is_a_function_of_a_module() -> None:
    import jax.numpy as jnp

    (case,) = target_cases("jax.numpy:sort", ["f32[8]"])

    assert case.fn is jnp.sort
    assert case.id == CaseId("sort")
    assert (case.inputs(), case.static) == ((("f32[8]",), {}), ())


def test_a_target_may_be_an_attribute_of_an_attribute() -> None:
    import jax

    (case,) = target_cases("jax:nn.relu", ["f32[8]"])

    assert case.fn is jax.nn.relu
    assert case.id.name == "nn.relu"


@pytest.mark.parametrize("folder", ["plain", "with space", "a:b", "測試"])
def test_a_target_may_be_a_function_of_a_file(folder: str, tmp_path: Path) -> None:
    file = write(
        tmp_path / folder / "my kernels.py", "class K:\n    @staticmethod\n    def f(x):\n        return x + 1\n"
    )

    (case,) = target_cases(f"{file}:K.f", ["f32[8]"])

    assert case.fn(1) == 2
    assert case.id.name == "K.f"


def test_a_module_of_the_working_directory_can_be_a_target(project: Path) -> None:
    write(project / "kernels_of_test_discovery.py", "def f(x):\n    return x + 1\n")

    (case,) = target_cases("kernels_of_test_discovery:f", ["f32[8]"])

    assert (case.fn(1), case.folder) == (2, project)


@pytest.mark.parametrize("target", ["", "jax.numpy", "jax.numpy:", ":sort", "kernels.py:"])
def test_what_has_no_module_or_no_function_is_no_target(target: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_target(target)

    assert str(caught.value) == (
        f"cannot read {target!r} as a target\nexpected module:function or file.py:function, such as jax.numpy:sort"
    )


@pytest.mark.parametrize(
    ("module", "error"),
    [
        ("jax.nunpy", "ModuleNotFoundError: No module named 'jax.nunpy'"),
        ("no_such_package.a", "ModuleNotFoundError: No module named 'no_such_package'"),
        (".numpy", "TypeError: the 'package' argument is required to perform a relative import for '.numpy'"),
    ],
)
def test_an_unknown_module_is_quoted(module: str, error: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_target(f"{module}:sort")

    assert str(caught.value) == (
        f"cannot import the module {module!r}: {error}\nexpected an installed module or one in this folder"
    )


@pytest.mark.parametrize(
    ("text", "error"), [("raise SystemExit(3)", "SystemExit: 3"), ("1 / 0", "ZeroDivisionError: division by zero")]
)
def test_a_target_module_that_breaks_is_an_error_and_not_the_end(text: str, error: str, project: Path) -> None:
    write(project / "breaks_in_test_discovery.py", text)

    with pytest.raises(UsageError) as caught:
        resolve_target("breaks_in_test_discovery:f")

    assert caught.value.problem == f"cannot import the module 'breaks_in_test_discovery': {error}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0", "{file} cannot be imported: ZeroDivisionError: division by zero"),
        (None, "{file} cannot be imported: FileNotFoundError: [Errno 2] No such file or directory: '{file}'"),
    ],
)
def test_a_target_file_that_breaks_is_quoted(text: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    if text:
        write(file, text)

    with pytest.raises(UsageError) as caught:
        resolve_target(f"{file}:f")

    assert str(caught.value) == message.format(file=file)


def test_an_unknown_function_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        resolve_target("statistics:medain")

    assert caught.value.problem == "'statistics' has no function 'medain'"
    assert caught.value.expected.startswith("'median'? Permitted is one of")


def test_a_label_as_a_target_says_how_to_choose_that_case(tmp_path: Path) -> None:
    file = write(tmp_path / "bench_par.py", "gradient = len\n")

    with pytest.raises(UsageError) as caught:
        resolve_target(f"{file}:gradient[res=0.5, n=4]")

    assert caught.value.expected.startswith("'gradient'?")
    assert caught.value.hint == f"benchax run {file}:gradient -p res=0.5 -p n=4"


def test_an_unknown_attribute_of_an_attribute_names_the_nearest_there(tmp_path: Path) -> None:
    file = write(tmp_path / "kernels.py", "class K:\n    gelu = len\n    _hidden = len\n")

    with pytest.raises(UsageError) as caught:
        resolve_target(f"{file}:K.gelo")

    assert str(caught.value) == f"'{file}' has no function 'K.gelo'\nexpected 'gelu'? Permitted is one of: gelu"


def test_what_cannot_be_called_is_no_target() -> None:
    with pytest.raises(UsageError, match=r"^cannot measure 3\.14\d*, a float"):
        target_cases("math:pi", [])


def test_a_benchmark_takes_no_inputs(tmp_path: Path) -> None:
    file = write(tmp_path / "bench_x.py", ONE, name="x")

    with pytest.raises(UsageError) as caught:
        target_cases(f"{file}:x", ["f32[8]"])

    assert str(caught.value) == (
        f"'{file}:x' is a benchmark and brings its own inputs\nexpected no inputs, or a plain function\n\nhint: "
        "benchax run FILE"
    )


# Inputs of targets


@pytest.mark.parametrize(
    ("text", "args", "kwargs", "static"),
    [
        ("f32[8,2]", ("f32[8,2]",), {}, ()),
        ("key", ("key",), {}, ()),
        ("3", (3,), {}, ()),
        ("-1.5", (-1.5,), {}, ()),
        ("2j", (2j,), {}, ()),
        ("n=3", (), {"n": 3}, ("n",)),
        ("None", (None,), {}, (0,)),
        ("True", (True,), {}, (0,)),
        ("(1, 2)", ((1, 2),), {}, (0,)),
        ("'fast'", ("fast",), {}, (0,)),
        ("fast", ("fast",), {}, (0,)),
        ("ij,jk->ik", ("ij,jk->ik",), {}, (0,)),
        ("'f32[8]'", ("f32[8]",), {}, (0,)),
        ("'key'", ("key",), {}, (0,)),
        ("axis=0", (), {"axis": 0}, ("axis",)),
        ("axis=None", (), {"axis": None}, ("axis",)),
        ("shape=(8, 2)", (), {"shape": (8, 2)}, ("shape",)),
        ("mode=same", (), {"mode": "same"}, ("mode",)),
        ("key=f32[8]", (), {"key": "f32[8]"}, ()),
        ("x=key", (), {"x": "key"}, ()),
        ("text=a=b", (), {"text": "a=b"}, ("text",)),
        ("text=n=3", (), {"text": "n=3"}, ("text",)),
        ("x=", (), {"x": ""}, ("x",)),
        ("=3", ("=3",), {}, (0,)),
        ("a-b=3", ("a-b=3",), {}, (0,)),
    ],
)
def test_an_input_is_data_or_a_static_value(
    text: str, args: tuple[Any, ...], kwargs: dict[str, Any], static: tuple[int | str, ...]
) -> None:
    (case,) = target_cases("builtins:print", [text])

    assert repr(case.inputs()) == repr((args, kwargs))
    assert case.static == static


def test_inputs_keep_their_places() -> None:
    (case,) = target_cases("builtins:print", ["f32[8]", "axis=0", "3", "y=i32[]", "key"])

    assert case.inputs() == (("f32[8]", 3, "key"), {"axis": 0, "y": "i32[]"})
    assert case.static == ("axis",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f33[8]", "unknown dtype 'f33' in 'f33[8]'"),
        ("F32[8]", "unknown dtype 'F32' in 'F32[8]'"),
        ("x=f32[-1]", "dimension '-1' in 'f32[-1]' is not a size"),
        ("f32[{n}]", "dimension '{n}' in 'f32[{n}]' is not a size"),
    ],
)
def test_a_slip_in_a_spec_is_reported_at_once(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        target_cases("jax.numpy:sort", [text])

    assert caught.value.problem == message


def test_placeholders_stand_for_every_combination_of_the_parameters() -> None:
    cases = target_cases("jax.numpy:sort", ["f32[{n},{m}]", "axis={axis}"], {"n": [1, 2], "m": [3], "axis": [0, -1]})

    assert [case.id for case in cases] == [
        CaseId("sort", (("n", n), ("m", 3), ("axis", axis))) for n in (1, 2) for axis in (0, -1)
    ]
    assert [case.inputs() for case in cases] == [((f"f32[{n},3]",), {"axis": axis}) for n in (1, 2) for axis in (0, -1)]


def test_a_placeholder_may_stand_several_times() -> None:
    (case,) = target_cases("jax.numpy:matmul", ["{dtype}[{n},{n}]", "{dtype}[{n}]"], {"n": [4], "dtype": ["bf16"]})

    assert case.inputs() == (("bf16[4,4]", "bf16[4]"), {})


def test_braces_of_other_texts_stay_as_they_are() -> None:
    (case,) = target_cases("builtins:print", ["{'a': 1}", "{m} {n}"], {"n": [4]})

    assert case.inputs() == (({"a": 1}, "{m} 4"), {})


def test_a_parameter_that_no_input_mentions_is_an_error() -> None:
    with pytest.raises(UsageError) as caught:
        target_cases("jax.numpy:sort", ["f32[{n}]"], {"n": [1], "m": [2]})

    assert str(caught.value) == "no input mentions the parameter 'm'\nexpected an input such as f32[{m}]"


# Literals


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("1.5", 1.5), ("1e3", 1000.0), ("'x'", "x"), ("[1]", [1]), ("{1: 2}", {1: 2}), ("b'x'", b"x"),
     ("1+2j", 1 + 2j), ("fast", "fast"), ("1 +", "1 +"), ("__import__('os')", "__import__('os')"),
     ("{[]: 1}", "{[]: 1}"), ("", "")],
)  # fmt: skip
def test_a_literal_is_what_python_reads_or_the_text_itself(text: str, value: Any) -> None:
    found = literal(text)

    assert (type(found), found) == (type(value), value)


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


def test_looking_for_benchmarks_needs_no_jax(tmp_path: Path) -> None:
    write(tmp_path / "bench_x.py", SIZES)
    code = (
        "import sys; from pathlib import Path; from benchax.discovery import find\n"
        f"assert len(find([Path({str(tmp_path)!r})]).cases) == 2\n"
        "sys.exit('jax' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- suggestions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["train.py"], "benchax profile -- python train.py"),
        (["train.py", "--steps", "3"], "benchax profile -- python train.py --steps 3"),
        (["python train.py"], "benchax profile -- python train.py"),
        (["uv", "run", "train.py"], "benchax profile -- uv run train.py"),
        (["model.py:loss", "f32[8]"], "benchax run model.py:loss 'f32[8]'"),
    ],
)
def test_a_program_and_a_function_are_told_their_command(words: list[str], command: str) -> None:
    assert suggest_for_words(words).endswith(f": {command}")


@pytest.mark.parametrize("words", [[], [""], ["benchmarks"], ["--quick"]])
def test_what_is_neither_gets_no_suggestion(words: list[str]) -> None:
    assert suggest_for_words(words) == ""


def test_a_file_of_functions_is_told_how_one_of_them_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "my model.py"
    file.write_text("def _own(x): ...\n" + "".join(f"def f{i}(x): ...\n" for i in range(5)), encoding="utf-8")

    told = suggest_for_file(file)

    assert told.startswith("a function of it (f0, f1, f2, f3, …) is measured by: benchax run ")
    assert f"'{file}':f0" in told
    assert f"benchax profile -- python '{file}'" in told


@pytest.mark.parametrize("content", ["loss = 3\n", "def f(:\n", "def f(x): '\0'\n"])
def test_of_a_file_without_functions_only_the_program_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "train.py").write_text(content, encoding="utf-8")

    told = suggest_for_file(tmp_path / "train.py")

    assert told == f"this shows where a program spends its time: benchax profile -- python {tmp_path / 'train.py'}"


def test_a_file_of_tests_is_told_of_the_fixture(tmp_path: Path) -> None:
    assert suggest_for_file(tmp_path / "test_speed.py").endswith("test_speed.py --benchax-fixture")
