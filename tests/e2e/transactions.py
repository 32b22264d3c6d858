"""Card transactions for the rule of the README: its files, and the matches of a local run."""

from __future__ import annotations

import json
import random
from pathlib import Path

from cep.local.match_file import match_file
from cep.rulebook import compile_rulebook, load_rulebook
from tests.pages import DOCS, blocks

README = (DOCS.parent / "README.md").read_text()


def write_transactions(folder: Path, n: int, files: int) -> list[Path]:
    """Write the rule, its streams file and `n` transactions in some files; return these."""
    (folder / "streams.yaml").write_text(blocks(README, "yaml")[0])
    (folder / "card_testing.cep").write_text(blocks(README, "cep")[0])
    drawn = random.Random(7)
    rows = [
        {
            "tx_id": f"t{number}",
            "card_id": f"c{drawn.randrange(20)}",
            "ts": f"2024-05-01T{number // 180:02}:{number // 3 % 60:02}:{number % 3 * 20:02}Z",
            "amount": round(drawn.choice([1, 1, 1, 1, 1, 1, 900]) * drawn.uniform(1, 2), 2),
            "approved": True,
        }
        for number in range(n)
    ]
    found = [folder / f"part-{number}.json" for number in range(files)]
    size = -(-n // files)
    for number, file in enumerate(found):
        lines = [json.dumps(row) for row in rows[number * size : (number + 1) * size]]
        file.write_text("".join(f"{line}\n" for line in lines))
    return found


def local_matches(folder: Path) -> list[dict[str, object]]:
    """Return the matches of a local run over the files that `write_transactions` wrote."""
    rulebook = load_rulebook([folder / "card_testing.cep"], folder / "streams.yaml")
    together = folder / "all.jsonl"
    together.write_text("".join(file.read_text() for file in sorted(folder.glob("part-*.json"))))
    rows: list[dict[str, object]] = match_file(
        compile_rulebook(rulebook).rule_set, together
    ).matches.to_pylist()
    return sorted(rows, key=lambda row: str(row["match_id"]))
