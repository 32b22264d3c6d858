from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cep.arrays import F64
from cep.backtest.truth import LOOKALIKE, NEAR_MISS
from cep.formats.files import Format, read_events
from cep.settings.schema_file import load_streams
from scenarios.delivery import Faults, draw_deliveries
from scenarios.fraud.delivery import DELAYS, JSON_FLAWS, PARQUET_FLAWS
from scenarios.fraud.events import (
    DAY_US,
    END_US,
    HOUR_US,
    LATENESS_US,
    NOTHING,
    RISKY,
    START_US,
    STATEMENT,
    STRANGE_PAYEE,
    Events,
)
from scenarios.fraud.generate import Options, draw_events, generate, truth_table
from scenarios.fraud.pen import Case
from scenarios.fraud.stories import FRAUD, PLOTS, n_frauds

ROOT = Path(__file__).resolve().parents[3]
CARD_EVENTS = load_streams(ROOT / "rules" / "fraud" / "streams.yaml")["card_events"]
N_EVENTS = 20_000


@pytest.fixture(scope="module")
def drawn() -> tuple[Events, tuple[Case, ...]]:
    return draw_events(np.random.default_rng(3), N_EVENTS)[:2]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("fraud")
    for file_format in ("json", "parquet"):
        generate(Options(events=N_EVENTS, seed=3, file_format=file_format, files=5), folder / file_format)
    return {file_format: folder / file_format for file_format in ("json", "parquet")}


def _read(folder: Path, file_format: str) -> tuple[pa.Table, pa.Table]:
    parts = list(read_events(folder / "events", CARD_EVENTS, Format(file_format), keys=[("card_id",)]))
    return pa.concat_tables([part.events for part in parts]), pa.concat_tables(
        [part.dead_letters for part in parts]
    )


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.*")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def test_one_seed_gives_the_same_bytes_and_another_seed_others(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    generate(Options(events=N_EVENTS, seed=3, files=5), tmp_path / "again")
    generate(Options(events=N_EVENTS, seed=4, files=5), tmp_path / "other")
    assert _digest(tmp_path / "again") == _digest(folders["json"])
    assert _digest(tmp_path / "other") != _digest(folders["json"])


def test_what_is_there_already_is_not_generated_again(tmp_path: Path) -> None:
    options = Options(events=5_000, files=2)
    manifest = generate(options, tmp_path)
    part = tmp_path / "events" / "part-0000.json"
    part.write_text("kept")
    assert generate(options, tmp_path) == manifest
    assert part.read_text() == "kept"
    generate(Options(events=5_000, files=3), tmp_path)
    assert part.read_text() != "kept"
    assert len(list((tmp_path / "events").iterdir())) == 3


def test_json_lines_and_parquet_hold_the_same_events(folders: dict[str, Path]) -> None:
    tables = {}
    for file_format, folder in folders.items():
        events, _ = _read(folder, file_format)
        tables[file_format] = events.filter(pc.is_valid(events["card_id"])).combine_chunks()
    assert tables["json"].equals(tables["parquet"])


@pytest.mark.parametrize(("file_format", "flaws"), [("json", JSON_FLAWS), ("parquet", PARQUET_FLAWS)])
def test_the_manifest_counts_what_a_reader_finds(
    folders: dict[str, Path], file_format: str, flaws: tuple[str, ...]
) -> None:
    manifest = generate(
        Options(events=N_EVENTS, seed=3, file_format=file_format, files=5), folders[file_format]
    )
    events, dead_letters = _read(folders[file_format], file_format)
    assert set(manifest["malformed"]) == set(flaws)
    assert len(dead_letters) == sum(manifest["malformed"].values()) == 20
    assert len(events) == manifest["events"] + manifest["duplicates"] == manifest["lines"] - 20
    ids = np.sort(np.unique(events["event_id"].to_numpy()))
    assert ids.tolist() == list(range(1, N_EVENTS + 1))


def test_a_duplicate_is_the_same_event_again(folders: dict[str, Path]) -> None:
    events, _ = _read(folders["json"], "json")
    frame = events.to_pandas()
    again = frame[frame.duplicated("event_id", keep=False)]
    assert len(again) == 2 * (len(frame) - N_EVENTS) > 0
    assert (again.astype(str).groupby("event_id").nunique() == 1).all().all()


def test_every_event_but_the_stragglers_arrives_within_the_lateness(
    drawn: tuple[Events, tuple[Case, ...]],
) -> None:
    events, _ = drawn
    assert CARD_EVENTS.lateness_us == LATENESS_US
    for faults, some_are_late in ((Faults(stragglers=0.0), False), (Faults(stragglers=0.01), True)):
        deliveries = draw_deliveries(
            np.random.default_rng(1), events.ts_us, events.case == NOTHING, faults, DELAYS
        )
        times = events.ts_us[deliveries.row]
        behind = np.maximum.accumulate(times) - times
        is_late = behind >= LATENESS_US
        assert is_late.any() == some_are_late
        assert (deliveries.n_stragglers > 0) == some_are_late
        assert (events.case[deliveries.row[is_late]] == NOTHING).all()
        assert (behind > 0).mean() > 0.01  # out of order, though within the lateness


def test_traffic_is_skewed_and_has_a_rhythm(drawn: tuple[Events, tuple[Case, ...]]) -> None:
    events, _ = drawn
    per_card = np.sort(np.bincount(events.card))[::-1]
    assert per_card[: len(per_card) // 10].sum() > 0.3 * len(events)
    assert per_card[0] < 0.08 * len(events)
    merchants = np.sort(np.bincount(events.merchant[events.merchant != NOTHING]))[::-1]
    assert merchants[0] > 5 * merchants[10:].mean()
    per_hour = np.bincount((events.ts_us % DAY_US) // HOUR_US, minlength=24)
    assert per_hour[12] > 5 * per_hour[3]
    assert ((events.ts_us > START_US - HOUR_US) & (events.ts_us < END_US + HOUR_US)).all()
    assert len(np.unique(events.kind)) == 9


def test_a_statement_is_the_sum_of_the_purchases_of_its_cycle(drawn: tuple[Events, tuple[Case, ...]]) -> None:
    events, _ = drawn
    for card in range(0, int(events.card.max()), 37):
        of_card = events.take(events.card == card)
        first, second = np.flatnonzero(of_card.kind == STATEMENT)
        between = of_card.take(np.arange(first, second))
        paid = between.amount[(between.kind == 0) & (between.approved == 1)]
        assert of_card.amount[second] == pytest.approx(paid.sum(), abs=0.01)


def test_the_truth_names_the_events_of_every_story(drawn: tuple[Events, tuple[Case, ...]]) -> None:
    events, cases = drawn
    truth = truth_table(events, cases)
    assert len(set(truth["card_id"].to_pylist())) == len(truth)
    for story, case in zip(truth.to_pylist(), cases, strict=True):
        rows = np.array(story["event_ids"]) - 1
        assert len(rows) > 0
        assert (events.card[rows] == case.card).all()
        assert events.ts_us[rows].min() == case.start_us
        assert events.ts_us[rows].max() == case.end_us


def test_every_rule_has_its_share_of_frauds_near_misses_and_look_alikes(
    drawn: tuple[Events, tuple[Case, ...]],
) -> None:
    _, cases = drawn
    rules = {path.stem for path in (ROOT / "rules" / "fraud").glob("*.cep")}
    assert set(PLOTS) == rules
    for rule in rules:
        labels = [case.label for case in cases if case.rule == rule]
        assert labels.count(FRAUD) == labels.count(NEAR_MISS) == n_frauds(N_EVENTS)
        assert labels.count(LOOKALIKE) == 1


def _amounts(events: Events, kind: int) -> F64:
    found: F64 = events.amount[events.kind == kind]
    return found


PURCHASE, WITHDRAWAL, TRANSFER, LOGIN, CREDENTIAL_CHANGE, OTP_SENT, OTP_USED = range(7)
MINUTE_US = 60_000_000

# What each rule asks of a fraud's own events, said once more and without the engine.
ASKED: dict[str, Callable[[Events], bool | np.bool]] = {
    "card_testing": lambda e: (
        (e.amount < 5).sum() >= 3
        and e.amount[-1] >= 200
        and e.amount[-1] > 100 * e.amount[:-1].mean()
        and e.ts_us[-1] - e.ts_us[0] <= 10 * MINUTE_US
    ),
    "impossible_travel": lambda e: (
        (e.card_present == 1).all() and e.country[0] != e.country[1] and np.ptp(e.ts_us) <= HOUR_US
    ),
    "account_takeover": lambda e: (
        e.kind.tolist() == [LOGIN] * (len(e) - 2) + [CREDENTIAL_CHANGE, TRANSFER]
        and len(e) >= 5
        and e.device[-1] == e.device[-2]
        and np.ptp(e.ts_us) <= 30 * MINUTE_US
    ),
    "rapid_drain": lambda e: len(e) >= 3 and e.amount.sum() > 3000 and np.ptp(e.ts_us) <= HOUR_US,
    "dormant_card_wakes": lambda e: e.kind.tolist() == [PURCHASE] and e.amount[0] >= 400,
    "unanswered_code": lambda e: (
        e.kind[0] == OTP_SENT
        and (len(e) == 1 or e.amount[1] != e.amount[0] or e.ts_us[1] - e.ts_us[0] > 5 * MINUTE_US)
    ),
    "velocity": lambda e: (
        (e.kind == PURCHASE).all()
        and (e.card_present == 0).all()
        and (e.amount >= 50).all()
        and len(np.unique(e.merchant[:5])) >= 3
        and e.ts_us[4] - e.ts_us[0] <= MINUTE_US
    ),
    "unusual_amount": lambda e: (
        (e.kind == TRANSFER).all()
        and len(e) >= 6
        and e.amount[-1] >= 2000
        and e.amount[-1] > 20 * np.median(e.amount[:-1])
        and np.ptp(e.ts_us) <= 30 * DAY_US
    ),
    "new_device": lambda e: (
        e.kind.tolist() == [LOGIN, LOGIN, TRANSFER]
        and e.device[0] != e.device[1] == e.device[2]
        and e.amount[2] >= 500
        and e.ts_us[2] - e.ts_us[1] <= 30 * MINUTE_US
    ),
    "new_payee": lambda e: (
        e.kind.tolist() == [TRANSFER]
        and e.payee[0] >= STRANGE_PAYEE
        and e.payee_country[0] in RISKY
        and e.amount[0] > 500
    ),
}


def test_every_planted_fraud_has_what_its_rule_asks_for(drawn: tuple[Events, tuple[Case, ...]]) -> None:
    events, cases = drawn
    for number, case in enumerate(cases):
        if case.label == FRAUD:
            assert ASKED[case.rule](events.take(events.case == number)), case


def test_a_dormant_card_has_an_empty_statement_and_no_purchase_before_it_wakes(
    drawn: tuple[Events, tuple[Case, ...]],
) -> None:
    events, cases = drawn
    dormant = [case for case in cases if case.rule == "dormant_card_wakes" and case.label == FRAUD]
    for case in dormant:
        of_card = events.take((events.card == case.card) & (events.ts_us < case.start_us))
        assert (of_card.kind != PURCHASE).all()
        assert _amounts(of_card, STATEMENT)[-1] == 0


def test_the_manifest_is_written_after_all_files(tmp_path: Path) -> None:
    (tmp_path / "truth.parquet").mkdir()  # the truth cannot be written
    with pytest.raises((OSError, pa.ArrowException)):
        generate(Options(events=5_000, files=1), tmp_path)
    assert not (tmp_path / "manifest.json").exists()
    (tmp_path / "truth.parquet").rmdir()
    generate(Options(events=5_000, files=1), tmp_path)
    assert len(pq.read_table(tmp_path / "truth.parquet")) > 0
