"""`holdfast handler`: code goes into the store, comes back, is run here, rolled back and deleted."""

import os


def test_a_handler_is_set_read_listed_rolled_back_and_deleted(shell):
    """From a file, from --body and from standard input; each is a new version."""
    code = shell.folder / "resize.py"
    code.write_text("result = 1\n")
    assert shell.ok("handler", "set", "resize", code, "--lang", "python").lines == ["resize version 1"]
    shell.ok("handler", "set", "resize", "--lang", "python", "--body", "result = 2", "--cpu", "1s")
    shell.ok("handler", "set", "resize", "--lang", "shell", "--eid", "e", stdin="true")

    assert shell.ok("handler", "get", "resize").out == "true\n"
    assert shell.ok("handler", "get", "resize", "--version", "1").out == "result = 1\n"
    second = shell.ok("handler", "get", "resize", "--version", "2", "--json").record
    assert (second["body"], second["options"], second["restores"]) == ("result = 2", {"cpu_ms": 1000}, None)
    assert shell.ok("handler", "list").lines[1].split()[:4] == ["resize", "shell", "3", "e"]
    versions = shell.ok("handler", "list", "--versions", "resize", "--json").records
    assert [one["version"] for one in versions] == [3, 2, 1]

    assert shell.ok("handler", "rollback", "resize").lines == ["resize version 4, as version 2"]
    shell.ok("handler", "delete", "resize")
    assert shell.ok("handler", "list").lines == ["no handlers"]


def test_handlers_are_refused_by_name(shell):
    """With the exit code of what went wrong."""
    assert "lang and body required" in shell.refused(
        "handler", "set", "t", "--lang", "node", "--body", "", code=2
    )
    shell.refused("handler", "set", "t", "file", "--lang", "node", "--body", "x", code=2)
    assert "nofile: No such file" in shell.refused("handler", "set", "t", "nofile", "--lang", "node", code=2)
    shell.ok("handler", "set", "t", "--lang", "node", "--body", "x")
    for verb in ("get", "delete", "rollback", "run"):
        assert "no handler 'u'" in shell.refused("handler", verb, "u", code=3)
    assert "version 7" in shell.refused("handler", "get", "t", "--version", "7", code=3)


def test_a_handler_is_run_here(shell):
    """Without a job: its log goes to stderr, its result to stdout, and 4xx is exit code 7."""
    body = 'read line; echo "a line"; echo "J: next|$line"; echo "$line" >&3'
    shell.ok("handler", "set", "t", "--lang", "shell", "--body", body)

    said = shell.ok("handler", "run", "t", '"hello"')

    assert said.out == '"hello"\n'
    assert said.err.splitlines()[-2:] == ["a line", 'J: next|"hello"']
    record = shell.ok("handler", "run", "t", "-", "--json", stdin='"hello"\n').record
    assert (record["code"], record["exit_code"], record["result"]) == ("ok", 200, "hello")
    assert (record["log"], record["new_jobs"]) == (["a line"], [{"task": "next", "data": "hello"}])
    shell.ok("handler", "set", "t", "--lang", "shell", "--body", "echo 404 >&4")
    assert shell.run("handler", "run", "t").code == 7
    shell.ok("handler", "set", "bad", "--lang", "cobol", "--body", "x")
    bad = shell.run("handler", "run", "bad")
    assert (bad.code, "BAD_HANDLER" in bad.err) == (7, True)


def test_a_payload_of_any_bytes_is_run_as_typed(shell):
    """As a job's data may be any bytes; an argument need not be UTF-8."""
    shell.ok("handler", "set", "t", "--lang", "python", "--body", "return list(data)")

    said = shell.ok("handler", "run", "t", os.fsdecode(b"\xff\x01"))

    assert said.out == "[255,1]\n"
