"""Shows what the persistent compilation cache did, and what would make it keep more."""

from __future__ import annotations

from benchax.model import Remark
from benchax.reporting.document import Document, Facts, Section, TextRow, list_remarks
from benchax.results.cache import CacheUse, Fate
from benchax.units import plural, seconds, size


def document(found: CacheUse) -> Document:
    return Document((Facts((Section("persistent cache", tuple(rows(found))),)), *list_remarks(remarks(found))))


def rows(found: CacheUse) -> list[TextRow]:
    if found.is_enabled is None:
        return [TextRow("state", "", "the block has not ended")]
    if not found.is_enabled:
        return [TextRow("state", "off", found.why_off or "")]
    return [
        TextRow("state", "on", _place(found)),
        *([TextRow("in the folder", *_describe_entries(found))] if found.after else []),
        _line(found, "hit", "read from the cache"),
        _line(found, "written", "compiled, and written to the cache"),
        *_line_if(found, "too quick", f"compiled in less than the threshold of {_threshold(found)}, and not kept"),
        *_line_if(
            found, "not kept", "compiled, and not kept: a callback, a small size, or compiled before the folder was set"
        ),
    ]


def _place(found: CacheUse) -> str:
    how = {True: "", False: ", which cannot be written to", None: ", of which is not known whether it can be written"}
    return f"{found.directory}{how[found.is_writable]}"


def _describe_entries(found: CacheUse) -> tuple[str, str]:
    """(how many entries, how large they are and how many there were)"""
    assert found.after is not None
    before = found.before.entries if found.before else 0
    return str(found.after.entries), f"{size(found.after.size_bytes)}; {before} when it began"


def _line(found: CacheUse, fate: Fate, what: str) -> TextRow:
    count = len(found.of(fate))
    return TextRow(fate, str(count), f"{what}; took {seconds(found.total_s(fate))}" if count else what)


def _line_if(found: CacheUse, fate: Fate, what: str) -> list[TextRow]:
    return [_line(found, fate, what)] if found.of(fate) else []


def _threshold(found: CacheUse) -> str:
    return "not known" if found.min_compile_time_s is None else seconds(found.min_compile_time_s)


def remarks(found: CacheUse) -> list[Remark]:
    listed: list[Remark] = []
    compiled = [program for program in found.programs if program.fate != "hit"]
    if found.is_enabled is False and compiled:
        spent = seconds(sum(program.elapsed_s for program in compiled))
        listed.append(
            Remark(
                "cache-off",
                "info",
                f"{plural(len(compiled), 'program')} took {spent} to compile, and will again in the next process; "
                "JAX_COMPILATION_CACHE_DIR=FOLDER keeps what compiles for longer than the threshold",
            )
        )
    if found.is_enabled and found.is_writable is False:
        listed.append(Remark("cache-unwritable", "warning", f"{found.directory} cannot be written to: nothing is kept"))
    if found.keeping_setting:
        spent = seconds(found.total_s("too quick"))
        listed.append(
            Remark(
                "cache-threshold",
                "warning",
                f"{plural(len(found.of('too quick')), 'program')} cost {spent} here and will again in the next "
                f"process: each compiled in less than {_threshold(found)}. To keep them: {found.keeping_setting}",
            )
        )
    if not found.is_reliable:
        listed.append(Remark("lost-events", "warning", "JAX's listeners were cleared meanwhile: programs are missing"))
    return listed
