"""A worker notices when the files of what it has imported are not what they were."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

from benchax.workers.worker import ImportedModules


@pytest.fixture
def module(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(project)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    file = project / "imported_by_a_job.py"
    file.write_text("value = 1")
    return file


def test_nothing_has_changed_while_nothing_changes(module: Path) -> None:
    imported = ImportedModules()
    importlib.import_module(module.stem)
    imported.note_new()

    assert imported.find_changed() == ""


@pytest.mark.parametrize("change", [lambda file: os.utime(file, ns=(1, 1)), Path.unlink])
def test_an_edited_or_removed_file_is_named(change, module: Path) -> None:
    imported = ImportedModules()
    importlib.import_module(module.stem)
    imported.note_new()
    change(module)

    assert imported.find_changed() == str(module)


def test_what_was_there_at_the_start_does_not_count(module: Path) -> None:
    importlib.import_module(module.stem)
    imported = ImportedModules()
    imported.note_new()
    module.unlink()

    assert imported.find_changed() == ""
