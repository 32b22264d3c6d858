"""The library's rules are found, listed and copied."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cep.commands.cli
from cep.errors import InputError
from cep.rule_library import copy_rules, library_rules
from cep.rulebook import check_rules

ROOT = Path(__file__).parents[3]


def cli(*arguments: str) -> Result:
    return CliRunner().invoke(cep.commands.cli.main, ["rules", *arguments])


def test_each_rule_of_the_folder_is_listed_under_its_own_name() -> None:
    files = {
        path.relative_to(ROOT / "rules").with_suffix("").as_posix() for path in ROOT.glob("rules/*/*.cep")
    }
    assert {rule.path for rule in library_rules()} == files
    for rule in library_rules():
        assert f"\nRULE {rule.name}\n" in f"\n{rule.file.read_text()}"
        assert rule.title
    assert len({rule.name for rule in library_rules()}) == len(files)  # a copy needs no folder's name


def test_the_list_fits_a_terminal_of_80_columns_and_says_what_each_rule_reads_and_detects() -> None:
    result = cli("list")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 82  # the longest title
    assert (
        "security/takeover_then_drain (reads logins, transactions)\n"
        "    Failed logins, one that succeeds from there, then a large payment\n"
    ) in result.stdout


def test_a_copy_has_the_streams_its_rule_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli("copy", "spike", "security/lateral_movement", "--to", "mine")
    assert (result.exit_code, result.stdout) == (
        0,
        "wrote mine/sensor/spike.cep\n"
        "wrote mine/sensor/streams.yaml\n"
        "wrote mine/security/lateral_movement.cep\n"
        "wrote mine/security/streams.yaml\n"
        "wrote mine/security/lateral_movement.test.yaml\n",
    )
    checked = check_rules(["mine"])
    assert (checked.n_files, checked.n_rules, checked.problems) == (2, 2, ())


def test_a_copy_has_the_tests_of_its_rule(tmp_path: Path) -> None:
    copy_rules(["card_testing", "spike"], tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == [
        "card_testing.cep",
        "card_testing.test.yaml",
        "spike.cep",
        "streams.yaml",
        "streams.yaml",
    ]


def test_a_folder_is_copied_as_a_whole_and_what_is_the_same_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("copy", "trading/spoofing").stdout == (
        "wrote trading/spoofing.cep\nwrote trading/streams.yaml\nwrote trading/spoofing.test.yaml\n"
    )
    assert cli("copy", "trading").stdout == (
        "wrote trading/fill_burst.cep\n"
        "wrote trading/fill_burst.test.yaml\n"
        "wrote trading/front_running.cep\n"
        "wrote trading/front_running.test.yaml\n"
        "wrote trading/layering.cep\n"
        "wrote trading/layering.test.yaml\n"
        "wrote trading/marking_the_close.cep\n"
        "wrote trading/marking_the_close.test.yaml\n"
        "wrote trading/momentum_ignition.cep\n"
        "wrote trading/momentum_ignition.test.yaml\n"
        "wrote trading/v_shape.cep\n"
        "wrote trading/v_shape.test.yaml\n"
        "wrote trading/w_shape.cep\n"
        "wrote trading/w_shape.test.yaml\n"
        "wrote trading/wash_trades.cep\n"
        "wrote trading/wash_trades.test.yaml\n"
        "kept trading/streams.yaml: it is the same\n"
        "kept trading/spoofing.cep: it is the same\n"
        "kept trading/spoofing.test.yaml: it is the same\n"
    )


def test_nothing_is_copied_over_a_file_that_differs(tmp_path: Path) -> None:
    mine = tmp_path / "operations" / "streams.yaml"
    mine.parent.mkdir()
    mine.write_text("streams: {}\n")
    with pytest.raises(InputError) as error:
        copy_rules(["no_heartbeat"], tmp_path)
    assert str(error.value) == (
        f"error[E0661]: `{mine}` is there and differs from the library's: nothing was copied\n"
        "help: move it away, or name another folder with --to"
    )
    assert [path.name for path in mine.parent.iterdir()] == ["streams.yaml"]
    assert mine.read_text() == "streams: {}\n"


def test_an_unknown_rule_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    result = cli("copy", "fraud", "spik", "--to", str(tmp_path / "new"))
    assert result.exit_code == 1
    assert result.stderr == (
        "error[E0660]: the library has no rule and no folder `spik`\n"
        "help: did you mean `spike`? `cep rules list` shows all rules\n"
    )
    assert not (tmp_path / "new").exists()


def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = cli("copy", "spike", "--to", str(tmp_path / "file"))
    assert result.exit_code == 1
    assert result.stderr == (
        f"error[E0618]: `{tmp_path}/file/sensor/spike.cep` cannot be written: "
        "a file is where a folder is needed\n"
        "help: move the file away, or name another place\n"
    )
