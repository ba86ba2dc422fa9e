"""``zae-limiter namespace``: isolated parts of a limiter, from register to purge."""

import pytest

from tests.cli.aws import printed_json


@pytest.fixture
def deleted(run):
    """The id of a deleted namespace with one limit in it."""
    run("namespace", "register", "acme")
    run("system", "set-defaults", "-l", "rpm:5", "-N", "acme")
    return printed_json(run("namespace", "delete", "acme", "--json"))["id"]


class TestRegister:
    def test_namespace_register_returns_the_same_id_for_the_same_name(self, run):
        """Registering a name again returns its existing id."""
        ids = printed_json(run("namespace", "register", "acme", "globex", "--json"))
        plain = run("namespace", "register", "globex", "acme")

        assert {"acme", "globex"} == set(ids)
        assert f"NAMESPACE  ID\nglobex     {ids['globex']}\nacme       {ids['acme']}\n" == plain.stdout

    def test_data_commands_work_in_a_registered_namespace(self, run):
        run("namespace", "register", "acme")
        run("system", "set-defaults", "-l", "rpm:5", "--namespace", "acme")

        assert [] == printed_json(run("system", "get-defaults", "--json"))["limits"]
        assert 5 == printed_json(run("system", "get-defaults", "-N", "acme", "--json"))["limits"][0]["capacity"]

    def test_namespace_register_of_an_invalid_name_registers_nothing(self, run):
        done = run("namespace", "register", "acme", "a#b")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert ["default"] == [one["name"] for one in printed_json(run("namespace", "list", "--json"))]

    def test_namespace_register_requires_a_name(self, run):
        done = run("namespace", "register")

        assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
        assert "Missing argument 'NAME...'" in done.stderr


class TestListAndShow:
    def test_namespace_list_is_ordered_by_name(self, run):
        run("namespace", "register", "globex", "acme")
        plain, facts = run("namespace", "list"), printed_json(run("namespace", "list", "--json"))

        names = ["acme", "default", "globex"]
        assert ["NAMESPACE", *names] == [line.split()[0] for line in plain.stdout.splitlines()]
        assert names == [one["name"] for one in facts]
        assert {"id", "name", "status", "created_at", "deleted_at"} == set(facts[0])

    def test_namespace_show_prints_one_namespace(self, run):
        run("namespace", "register", "acme")
        facts = printed_json(run("namespace", "show", "acme", "--json"))
        lines = [line.split() for line in run("namespace", "show", "acme").stdout.splitlines()]

        assert ("acme", "active", None) == (facts["name"], facts["status"], facts["deleted_at"])
        assert [["NAMESPACE"], ["name", "acme"], ["id", facts["id"]], ["status", "active"]] == lines[:4]

    @pytest.mark.parametrize("arguments", [("namespace", "show", "acme"), ("system", "get-defaults", "-N", "acme")])
    def test_namespace_show_of_a_missing_namespace_suggests_commands(self, run, database, arguments):
        """The suggested commands name the same store if the user named one."""
        done = run(*arguments, "--url", f"sqlite:///{database}")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert (
            f"there is no namespace 'acme'; register it: zae-limiter namespace register acme --url sqlite:///{database},"
            in done.stderr
        )
        assert done.stderr.endswith(f"zae-limiter namespace orphans --url sqlite:///{database}\n")


class TestDelete:
    def test_namespace_delete_without_a_terminal_warns_and_prints_how_to_recover_it(self, run):
        """The command proceeds without --yes, because no data is lost."""
        run("namespace", "register", "acme")
        done = run("namespace", "delete", "acme")
        (orphan,) = printed_json(run("namespace", "orphans", "--json"))

        warning = (
            "Warning: requests in namespace acme are refused until it is recovered; pass --yes to skip this warning"
        )
        assert f"Deleted namespace acme; its data is kept under the id {orphan['id']}.\n" == done.stdout
        assert warning == done.stderr.splitlines()[0]
        assert f"zae-limiter namespace recover {orphan['id']}\n" in done.stderr
        assert f"zae-limiter namespace purge {orphan['id']}\n" in done.stderr
        assert ["default"] == [one["name"] for one in printed_json(run("namespace", "list", "--json"))]

    @pytest.mark.parametrize("answer", ["n", "", "y"])
    def test_namespace_delete_in_a_terminal_asks_for_confirmation(self, run, interactive, answer):
        """An empty answer means no."""
        run("namespace", "register", "acme")
        done = run("namespace", "delete", "acme", answers=f"{answer}\n")

        assert "Delete namespace acme, but keep its data? [y/N]" in done.stderr
        assert "Warning" not in done.stderr
        assert (0 if answer == "y" else 1) == done.exit_code
        assert (1 if answer == "y" else 0) == len(printed_json(run("namespace", "orphans", "--json")))

    def test_namespace_delete_with_yes_neither_asks_nor_warns(self, run, interactive):
        run("namespace", "register", "acme")
        done = run("namespace", "delete", "acme", "--yes", "--json")

        assert (0, "") == (done.exit_code, done.stderr)

    def test_namespace_delete_of_a_missing_namespace_asks_nothing(self, run, interactive):
        done = run("namespace", "delete", "acme")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "there is no namespace 'acme'" in done.stderr

    def test_namespace_delete_of_the_default_namespace_is_refused(self, run):
        done = run("namespace", "delete", "default")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "the default namespace always exists" in done.stderr

    def test_namespace_orphans_lists_deleted_namespaces(self, run, deleted):
        """It lists the ids that `recover` and `purge` need."""
        plain = run("namespace", "orphans")

        assert [deleted, "acme", "deleted"] == plain.stdout.splitlines()[1].split()[:3]

    def test_namespace_orphans_without_deleted_namespaces_succeeds(self, run):
        done = run("namespace", "orphans")

        assert (0, "", []) == (done.exit_code, done.stdout, printed_json(run("namespace", "orphans", "--json")))
        assert "There are no deleted namespaces.\n" == done.stderr


class TestRecover:
    def test_namespace_recover_restores_the_namespace_and_its_data(self, run, deleted):
        facts = printed_json(run("namespace", "recover", deleted, "--json"))

        assert ("acme", "active") == (facts["name"], facts["status"])
        assert 5 == printed_json(run("system", "get-defaults", "-N", "acme", "--json"))["limits"][0]["capacity"]

    def test_namespace_recover_of_an_active_namespace_is_refused(self, run, deleted):
        run("namespace", "recover", deleted)
        done = run("namespace", "recover", deleted)

        assert (1, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "it is active" in done.stderr

    @pytest.mark.parametrize("command", [("recover",), ("purge",), ("purge", "--yes")])
    @pytest.mark.parametrize("name", ["acme", "a7x3kq00000"])
    def test_namespace_recover_and_purge_of_an_unknown_id_suggest_orphans(self, run, command, name):
        """A name given in place of an id is a common mistake."""
        done = run("namespace", *command, name)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert f"the id {name!r}; list them with their ids: zae-limiter namespace orphans\n" in done.stderr


class TestPurge:
    def test_namespace_purge_with_yes_removes_all_its_data(self, run, deleted):
        """The number of removed items is printed. Audit events of the namespace stay."""
        facts = printed_json(run("namespace", "purge", deleted, "--yes", "--json"))

        assert deleted == facts["id"]
        assert 0 < facts["removed"]
        assert [] == printed_json(run("namespace", "orphans", "--json"))

    @pytest.mark.parametrize("answer", ["n", "", "y"])
    def test_namespace_purge_in_a_terminal_asks_for_confirmation(self, run, deleted, interactive, answer):
        done = run("namespace", "purge", deleted, answers=f"{answer}\n")

        question = f"Remove namespace {deleted}, formerly acme, and all its data permanently? [y/N]"
        assert question in done.stderr
        assert (0 if answer == "y" else 1) == done.exit_code
        assert (0 if answer == "y" else 1) == len(printed_json(run("namespace", "orphans", "--json")))

    def test_namespace_purge_without_a_terminal_requires_yes(self, run, deleted):
        done = run("namespace", "purge", deleted)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "pass --yes" in done.stderr

    def test_namespace_purge_of_an_active_namespace_is_refused(self, run):
        ids = printed_json(run("namespace", "register", "acme", "--json"))
        done = run("namespace", "purge", ids["acme"], "--yes")

        assert (1, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "Error: namespace 'acme' is active; delete it first: zae-limiter namespace delete acme\n" == done.stderr
