"""``zae-limiter namespace``: parts of a limiter that know nothing of each other, from register to purge."""

import pytest

from tests.cli.aws import told


@pytest.fixture
def deleted(run):
    """The id of a namespace that was deleted with a limit in it."""
    run("namespace", "register", "acme")
    run("system", "set-defaults", "-l", "rpm:5", "-N", "acme")
    return told(run("namespace", "delete", "acme", "--json"))["id"]


class TestRegister:
    def test_every_name_has_an_id(self, run):
        """Registering again finds the same."""
        ids = told(run("namespace", "register", "acme", "globex", "--json"))
        plain = run("namespace", "register", "globex", "acme")

        assert {"acme", "globex"} == set(ids)
        assert f"NAMESPACE  ID\nglobex     {ids['globex']}\nacme       {ids['acme']}\n" == plain.stdout

    def test_data_commands_work_in_it(self, run):
        run("namespace", "register", "acme")
        run("system", "set-defaults", "-l", "rpm:5", "--namespace", "acme")

        assert [] == told(run("system", "get-defaults", "--json"))["limits"]
        assert 5 == told(run("system", "get-defaults", "-N", "acme", "--json"))["limits"][0]["capacity"]

    def test_a_name_that_cannot_be_registers_none(self, run):
        done = run("namespace", "register", "acme", "a#b")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert ["default"] == [one["name"] for one in told(run("namespace", "list", "--json"))]

    def test_it_needs_a_name(self, run):
        done = run("namespace", "register")

        assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
        assert "Missing argument 'NAME...'" in done.stderr


class TestLooking:
    def test_all_are_listed_by_name(self, run):
        run("namespace", "register", "globex", "acme")
        plain, facts = run("namespace", "list"), told(run("namespace", "list", "--json"))

        names = ["acme", "default", "globex"]
        assert ["NAMESPACE", *names] == [line.split()[0] for line in plain.stdout.splitlines()]
        assert names == [one["name"] for one in facts]
        assert {"id", "name", "status", "created_at", "deleted_at"} == set(facts[0])

    def test_one_is_shown(self, run):
        run("namespace", "register", "acme")
        facts = told(run("namespace", "show", "acme", "--json"))
        lines = [line.split() for line in run("namespace", "show", "acme").stdout.splitlines()]

        assert ("acme", "active", None) == (facts["name"], facts["status"], facts["deleted_at"])
        assert [["NAMESPACE"], ["name", "acme"], ["id", facts["id"]], ["status", "active"]] == lines[:4]

    @pytest.mark.parametrize("arguments", [("namespace", "show", "acme"), ("system", "get-defaults", "-N", "acme")])
    def test_one_that_is_not_there_is_told_with_the_commands_that_help(self, run, database, arguments):
        """They lead to the same store, where that was named."""
        done = run(*arguments, "--url", f"sqlite:///{database}")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert (
            f"there is no namespace 'acme'; register it: zae-limiter namespace register acme --url sqlite:///{database},"
            in done.stderr
        )
        assert done.stderr.endswith(f"zae-limiter namespace orphans --url sqlite:///{database}\n")


class TestDelete:
    def test_it_says_how_to_bring_it_back(self, run):
        """Nothing is lost, so nobody is asked."""
        run("namespace", "register", "acme")
        done = run("namespace", "delete", "acme")
        (orphan,) = told(run("namespace", "orphans", "--json"))

        assert f"Deleted namespace acme; its data is kept under the id {orphan['id']}.\n" == done.stdout
        assert f"zae-limiter namespace recover {orphan['id']}\n" in done.stderr
        assert f"zae-limiter namespace purge {orphan['id']}\n" in done.stderr
        assert ["default"] == [one["name"] for one in told(run("namespace", "list", "--json"))]

    def test_the_default_one_stays(self, run):
        done = run("namespace", "delete", "default")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "the default namespace is always there" in done.stderr

    def test_the_deleted_are_listed(self, run, deleted):
        """By the id that recover and purge need."""
        plain = run("namespace", "orphans")

        assert [deleted, "acme", "deleted"] == plain.stdout.splitlines()[1].split()[:3]

    def test_none_deleted_is_no_failure(self, run):
        done = run("namespace", "orphans")

        assert (0, "", []) == (done.exit_code, done.stdout, told(run("namespace", "orphans", "--json")))
        assert "There are no deleted namespaces.\n" == done.stderr


class TestRecover:
    def test_it_is_back_with_its_data(self, run, deleted):
        facts = told(run("namespace", "recover", deleted, "--json"))

        assert ("acme", "active") == (facts["name"], facts["status"])
        assert 5 == told(run("system", "get-defaults", "-N", "acme", "--json"))["limits"][0]["capacity"]

    def test_what_is_active_needs_none(self, run, deleted):
        run("namespace", "recover", deleted)
        done = run("namespace", "recover", deleted)

        assert (1, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "it is active" in done.stderr

    @pytest.mark.parametrize("command", [("recover",), ("purge",), ("purge", "--yes")])
    @pytest.mark.parametrize("name", ["acme", "a7x3kq00000"])
    def test_what_is_no_id_leads_to_the_ids(self, run, command, name):
        """A name is easily given in place of an id."""
        done = run("namespace", *command, name)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert f"the id {name!r}; list them with their ids: zae-limiter namespace orphans\n" in done.stderr


class TestPurge:
    def test_with_yes_it_is_gone_for_good(self, run, deleted):
        """How much was in it is said; audit events of the namespace stay."""
        facts = told(run("namespace", "purge", deleted, "--yes", "--json"))

        assert deleted == facts["id"]
        assert 0 < facts["removed"]
        assert [] == told(run("namespace", "orphans", "--json"))

    @pytest.mark.parametrize("answer", ["n", "", "y"])
    def test_it_asks_who_is_there(self, run, deleted, somebody, answer):
        done = run("namespace", "purge", deleted, answers=f"{answer}\n")

        question = f"Remove namespace {deleted}, formerly acme, and all its data permanently? [y/N]"
        assert question in done.stderr
        assert (0 if answer == "y" else 1) == done.exit_code
        assert (0 if answer == "y" else 1) == len(told(run("namespace", "orphans", "--json")))

    def test_without_anybody_to_ask_it_needs_yes(self, run, deleted):
        done = run("namespace", "purge", deleted)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "pass --yes" in done.stderr

    def test_what_is_active_is_deleted_first(self, run):
        ids = told(run("namespace", "register", "acme", "--json"))
        done = run("namespace", "purge", ids["acme"], "--yes")

        assert (1, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "Error: namespace 'acme' is active; delete it first: zae-limiter namespace delete acme\n" == done.stderr
