"""`holdfast token`: the secret is shown once, and never kept."""

from holdfast.core.queries import FindToken
from holdfast.core.token import grant_of


def test_a_token_is_created_listed_and_revoked(shell):
    """What is stored opens by the secret that was printed, and does not contain it."""
    secret = shell.ok(
        "token", "create", "shop", "--tenant", "acme", "--scope", "add", "--expires", "30d"
    ).out.strip()

    with shell.queue() as queue:
        kept = queue.connection.ask(FindToken(name="shop"))
    grant = grant_of(kept, secret, now_ms=kept.created_at)
    assert grant is not None
    assert (grant.tenant, grant.scopes) == ("acme", ("add",))
    assert secret.rpartition("_")[2].encode() not in shell.file.read_bytes()
    assert [line.split()[:3] for line in shell.ok("token", "list").lines[1:]] == [["shop", "acme", "add"]]
    (listed,) = shell.ok("token", "list", "--json").records
    assert listed.keys() == {"name", "tenant", "scopes", "expires_at", "created_at"}

    shell.refused("token", "create", "shop", code=2)
    shell.ok("token", "revoke", "shop")
    shell.refused("token", "revoke", "shop", code=3)
    assert shell.ok("token", "list").lines == ["no tokens"]


def test_a_token_is_for_one_tenant_unless_all_are_meant(shell):
    """With all scopes unless some are named; not for two sayings at once."""
    one = shell.ok("token", "create", "one", "--json").record
    everybody = shell.ok("token", "create", "everybody", "--all-tenants", "--json").record

    assert (one["tenant"], everybody["tenant"]) == ("", None)
    assert one["scopes"] == ["add", "work", "read", "manage", "handlers", "data", "signal"]
    assert one["secret"].startswith("hf_one_")
    shell.refused("token", "create", "x", "--tenant", "a", "--all-tenants", code=2)
    shell.refused("token", "create", "a_b", code=2)


def test_a_session_key_that_could_be_guessed_is_refused(shell):
    """By its length, from the option and from HOLDFAST_SESSION_KEY; the secret itself is not shown."""
    words = ("serve", "--store", shell.file, "--http", "127.0.0.1:0")

    for said in (
        shell.run(*words, "--session-key", "hunter2"),
        shell.run(*words, HOLDFAST_SESSION_KEY="hunter2"),
    ):
        assert said.code == 2
        assert "session-key is '7 characters', and must be at least 32" in said.err
        assert "hunter2" not in said.err
