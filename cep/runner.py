"""What a runner is: rules that run together, over inputs, into outputs."""

from __future__ import annotations

from typing import Protocol

from cep.counts import Counts
from cep.rule_set import RuleSet


class Runner(Protocol):
    """Runs rules over inputs that it was made with, and gives what is found to the outputs it was made with.

    There are three: in this process (`cep.local.match_file.LocalRun`), as a batch and as a stream on Spark
    (`spark_runtime.pipeline.runs`). Each finds the same matches with the same ids in the same events, however
    these are cut into files and ordered within the lateness. A run that is repeated after a crash gives each
    match again or not as the guarantees of its outputs say (`spark_runtime.sinks.protocol.Guarantee`).
    """

    @property
    def rules(self) -> RuleSet:
        """The rules."""
        ...

    @property
    def was_stopped(self) -> bool:
        """Whether `run` has returned because a user stopped it before the end of the input."""
        ...

    def run(self) -> Counts:
        """Run to the end of the input; return what was counted. Called once, in the process of the user.

        When it returns, the outputs have all that was found.

        Raises
        ------
        CepError
            What went wrong, in a user's words. What the outputs have got then is what their guarantee says.
        """
        ...
