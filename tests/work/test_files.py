"""The files of a project that are watched, and which of them have changed."""

import os
import sys
from types import ModuleType

from holdfast.store.common.clock import system_clock
from holdfast.work.files import WatchedFiles, project_files


def test_a_file_that_is_edited_while_it_is_imported_has_changed(tmp_path, monkeypatch):
    """Its import may have read it before the edit; one that was left alone has not changed."""
    monkeypatch.chdir(tmp_path)
    began_ms = system_clock()
    for name, changed_ms in (("edited_module", began_ms + 1), ("old_module", began_ms - 1)):
        file = tmp_path / f"{name}.py"
        file.write_text("")
        module = ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
        os.utime(file, ns=(0, changed_ms * 10**6))

    watched = WatchedFiles()
    watched.add(project_files(began_ms))

    assert watched.changed() == [str(tmp_path / "edited_module.py")]
    assert watched.changed() == []


def test_a_missing_module_is_watched_for(tmp_path, monkeypatch):
    """As a file and as a package, wherever it would be found below the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    watched = WatchedFiles()
    watched.add(project_files(system_clock(), ModuleNotFoundError(name="missing.part")))
    assert watched.changed() == []

    file = tmp_path / "src" / "missing" / "part.py"
    file.parent.mkdir(parents=True)
    file.write_text("")

    assert watched.changed() == [str(file)]
