"""Why a rule matched, or how far it came: for one key the runs of the engine, event by event.

The engine decides. The events of the key are matched again, one at a time, and the open runs are compared
before and after each event (`cep.engine.matching.watched`). So what happened to a run is what the kernels
did. The part of a condition that failed comes from the evaluator of columns
(`cep.engine.prepare.predicates`).
"""
