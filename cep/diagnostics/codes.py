"""The code of every problem that a user can meet, with its meaning in one line. This is the only such table.

The first digits are the family of the problem. docs/reference/errors.md has a section for each family and
explains each code. A code keeps its meaning, and the code of a removed problem is not reused.
"""

from __future__ import annotations

SYNTAX: dict[str, str] = {
    "E0101": "something else was expected here",
    "E0102": "a text or a quoted name is not closed on its line",
    "E0103": "a character that is no part of the language",
    "E0104": "a number out of range, or of the wrong kind",
    "E0105": "a clause occurs twice",
    "E0106": "a clause every rule needs is missing",
    "E0107": "the file has no rule",
    "E0108": "text before the first rule",
    "E0109": "not one of the words possible here",
    "E0110": "comparisons cannot be chained",
    "E0111": "not a point in time",
    "E0112": "two quantifiers on one step",
    "E0113": "a reserved word used as a name",
    "E0114": "a sign or a word of another language",
    "E0115": "a second rule without RULE",
    "E0116": "a bracket that is not closed, or that closes nothing",
    "E0117": "a file in another language",
    "E0150": "part of the language, but not supported yet",
}
"""E01. The text of a rule file."""

NAMES_AND_TYPES: dict[str, str] = {
    "E0201": "no such stream",
    "E0202": "no such variable in the pattern",
    "E0203": "no such column in the stream",
    "E0204": "no such function",
    "E0205": "wrong number of arguments",
    "E0206": "an operation that its operand's type does not have",
    "E0207": "two values of types that do not go together",
    "E0208": "a condition that is not BOOLEAN",
    "E0209": "a column in a measure without its variable",
    "E0210": "an aggregate that is not over the columns of one variable",
    "E0211": "strings of several events that are not just compared for equality",
    "E0212": "a measure without a type",
    "E0213": "one measure name with different types in different rules",
    "E0214": "a column that cannot be a key",
    "E0216": "ARRAY_AGG where a single value is needed",
    "E0217": "a window that cannot be",
    "E0218": "a window over something else than single events of the key",
    "E0219": "a LET whose name is taken",
    "E0220": "no such table",
    "E0221": "a table where a stream is needed, or a stream where a table is",
    "E0222": "a join that does not give the whole key of the table",
    "E0223": "a join of something else than an event's column and a key column",
    "E0224": "a join of columns of different types",
    "E0225": "a table's name that is taken",
    "E0226": "a table joined by another key than the rule's, and not declared to be everywhere",
    "E0230": "a stream is in FROM twice",
    "E0231": "a stream that is not in FROM",
    "E0232": "a variable that needs a stream",
    "E0233": "a key that is not one column of each stream",
    "E0234": "key columns of different types",
    "E0235": "nothing says by which column the key is found",
    "E0236": "BY with the wrong number of columns",
    "E0237": "a name that is both a rule and a stream",
    "E0238": "MATCHES OF a rule that does not exist",
    "E0239": "matches that can come any time after they end",
    "E0240": "a rule that reads its own matches",
    "E0241": "a regular expression that is not one",
    "E0242": "a part of regular expressions that RLIKE does not have",
    "E0243": "a clause about patterns in a rule with WINDOW",
    "E0244": "HAVING or WHERE without WINDOW",
    "E0245": "a column of a window without an aggregate",
    "E0246": "a value that a window rule does not have",
    "E0247": "a window rule whose windows cannot be",
    "E0248": "a parameter whose name is taken",
    "E0249": "a live rule that reads the matches of a shadow rule",
    "E0250": "a parameter of another type than its place needs",
}
"""E02. Names and types of a rule."""

PATTERNS: dict[str, str] = {
    "E0301": "two rules of one name",
    "E0302": "a variable is defined twice",
    "E0303": "a defined variable does not occur in the pattern",
    "E0304": "an output column's name is taken",
    "E0305": "a key column occurs twice",
    "E0306": "a quantifier that allows no repetition",
    "E0307": "a quantifier with its bounds the wrong way round",
    "E0308": "a pattern that matches without any event",
    "E0309": "a skip to a variable that does not occur in the pattern",
    "E0310": "a skip that would not move on",
    "E0311": "an absence at the start or the end without a time",
    "E0312": "a limit in time that nothing fits into",
    "E0313": "an absence where none can be",
    "E0314": "UNTIL without a loop",
    "E0315": "PREV of a subset over several streams",
    "E0316": "an anchor that is not at the beginning",
    "E0317": "WITHOUT an event that the pattern takes",
    "E0318": "IN over the events of a variable outside a condition",
    "E0319": "DISTINCT BY where it cannot be",
    "E0320": "an absence FOR a time without an arrow",
    "E0321": "a limit on the gap before an absence",
    "E0322": "an absence without a time at the end of a group with WITHIN",
    "E0323": "an absence at the start that reads other events",
    "E0324": "FOR EACH where there are no windows without events",
    "E0325": "FOR EACH with a table that is no changelog",
    "E0326": "FOR EACH with a table of another key",
    "E0327": "steps that a window cannot move in",
    "E0328": "a view of something else than the rows of changelogs under one key",
    "E0329": "an aggregate or a value of other events in a view",
    "E0330": "a clause of rules in a view",
    "E0331": "ON TIMEOUT where nothing limits a wait",
    "E0332": "SUPPRESS FOR no time",
    "E0333": "MAX RUNS 0",
    "E0334": "ON TIMEOUT with MATCH PREFERRED",
    "E0335": "SUPPRESS AFTER 0",
    "E0340": "a subset whose name is taken",
    "E0341": "a member that a subset cannot have",
}
"""E03. Pattern and clauses of a rule."""

SETTINGS: dict[str, str] = {
    "E0401": "the file is not YAML",
    "E0402": "a value of the wrong kind",
    "E0403": "no such setting",
    "E0404": "a setting is missing",
    "E0405": "a setting occurs twice",
    "E0406": "no such column type",
    "E0407": "a setting names a column that is not in the schema",
    "E0408": "an event time that is not a timestamp",
    "E0409": "not a duration",
    "E0410": "not a range of time",
    "E0411": "deduplicate without tie_break",
    "E0412": "YAML anchors, aliases and tags are not read",
    "E0413": "a name that cannot be used here",
    "E0414": "the streams file cannot be read",
    "E0415": "a setting that columns of this type do not have",
    "E0416": "settings that do not go together",
    "E0417": "no such time zone",
    "E0418": "a variable of the environment",
    "E0419": "not a format of times",
    "E0420": "a value that a setting cannot have",
    "E0421": "not the name of a field",
    "E0422": "a stream and a table of one name",
    "E0423": "settings of a table that contradict each other",
    "E0424": "a column that cannot be the key or the `op` of a table",
    "E0425": "a table of no rows",
}
"""E04. Files of settings: YAML, and what a streams file says."""

WARNINGS: dict[str, str] = {
    "W0501": "nothing bounds how long a run lives",
    "W0502": "a comparison or a condition that is never true",
    "W0503": "a comparison that is true of every value",
    "W0504": "a strict loop next to an arrow",
    "W0505": "an absence that an optional tail switches off",
    "W0506": "an absence between adjacent elements",
    "W0507": "a predicate reads a variable that cannot have an event yet",
    "W0508": "a limit longer than the window of the rule, or a window too small for its pattern",
    "W0509": "a possessive loop that leaves nothing for what follows it",
    "W0510": "a comment in a pattern that looks like an arrow",
    "W0511": "a variable without a definition",
    "W0512": "a word of another language, read as a variable",
    "W0513": "an absence that holds only up to the first repetition of a loop",
    "W0514": "a comparison with an event of a loop that can end at each",
    "W0515": "windows with time between them",
    "W0516": "FOR EACH with a HAVING that is not TRUE without events",
    "W0518": "a table that is joined for nothing",
    "W0519": "an event that is compared with itself by IN",
    "W0520": "a parameter that nothing reads",
}
"""W05. What is legal and probably not meant."""

LINT: dict[str, str] = {
    "W0530": "a rule name that another file has, too",
    "W0531": "a key that keeps something for ever",
    "W0532": "a rule without tests",
    "W0533": "no test expects a match",
    "W0534": "no test expects that there is none",
    "W0535": "a rule without measures",
    "W0536": "an automaton with many states",
    "W0537": "a loop that may open many runs",
    "W0538": "a rule without a title",
    "W0539": "a rule without a severity",
    "W0540": "a finding that is allowed without a reason",
    "W0541": "a finding that is allowed, and is none",
    "W0542": "a comment for `cep lint` that is not understood",
}
"""W053, W054. What a rule lacks to be trusted: `cep lint`."""

LIMITS: dict[str, str] = {
    "E0901": "the file is too large",
    "E0902": "nested too deeply",
    "E0903": "the pattern has too many positions",
    "E0904": "too many different predicates on single events",
    "E0905": "runs would have to remember too many values",
    "E0906": "an offset that reaches back too far",
    "E0907": "a duration that is too long",
    "E0908": "too many ways through optional steps",
    "E0909": "too many windowed values in one rule",
    "E0910": "too many words and signs in one file",
    "E0911": "too many rules in one file",
    "E0912": "a name or a text that is too long",
    "E0913": "an expression that grows too large",
    "E0914": "too many variables in one pattern",
    "E0915": "too many errors to show",
    "E0931": "too many runs per key",
    "E0941": "a regular expression that is too large",
}
"""E09. Limits of a rule, of its text and of what it compiles to."""

FILES: dict[str, str] = {
    "E0601": "no such file or directory",
    "E0602": "the format of the input is unknown",
    "E0603": "there is nothing in the input",
    "E0604": "a declared column is missing",
    "E0605": "a column of another type than declared",
    "E0606": "a file cannot be read",
    "E0607": "a stream that the rules read has no input",
    "E0608": "the format of an output file is unknown",
    "E0609": "a file cannot be written",
    "E0610": "no rule reads the stream that was chosen",
    "E0611": "no rule files",
    "E0612": "no streams file next to the rules or above them",
    "E0613": "a rule or streams file cannot be read",
    "E0614": "one stream is declared in two ways",
    "E0615": "rules of different streams give a column different types",
    "E0616": "no space is left where something is written",
    "E0617": "writing is not permitted",
    "E0618": "a file is where a folder is needed",
    "E0619": "a table has more rows than it may have",
    "E0620": "the rows of a static table are not given",
    "E0621": "a table that is joined has no input",
    "E0622": "too many windows without events at once",
    "E0624": "other bytes after the end of a packed file",
    "E0640": "a JSON array instead of an object on each line",
    "E0641": "a JSON object over several lines",
    "E0642": "text in a form that is not read",
    "E0643": "a pattern of paths that does not fit the stream",
    "E0644": "a path that does not fit its pattern",
    "E0645": "a line that is too long",
    "E0646": "an encoding that cannot be read from this file system",
    "E0647": "corrections within no time",
    "E0648": "a column with the name of a column of corrections",
    "E0649": "stored state with corrections for a run without, or the other way round",
    "E0650": "a column with the name of one that a setting adds to matches",
    "E0651": "a profile that cannot be read",
    "W0652": "a value that the events never had",
    "E0653": "a file of matches that contains something else",
}
"""E06. Files: rules, events and what is written; a bad line of events is a dead letter."""

LIBRARY: dict[str, str] = {
    "E0660": "the library has no such rule",
    "E0661": "a file of yours would be replaced",
    "E0662": "a new rule without a stream or a column for it",
}
"""E066. Copies from the rule library; new rules: `cep new`."""

TESTS: dict[str, str] = {
    "E0670": "no test file",
    "E0671": "an event of a test that does not fit its stream",
    "E0672": "an event that is late and does not say so, or says so and is not",
    "E0673": "an expected value that the matches cannot have",
    "E0674": "a match that is missing, or that is not expected",
    "E0675": "matches that depend on how events arrive",
    "E0676": "a match that cannot be recorded as a test",
}
"""E067. Test files of rules: `cep test`."""

HISTORY: dict[str, str] = {
    "E0690": "a file of what there is to find that cannot be used",
    "E0691": "rules whose keys have no column in common, of which a sample is wanted",
    "E0692": "values of a sweep that cannot be read, or are too many",
    "E0693": "a rule or a parameter that cannot be tuned",
    "E0694": "a file of verdicts that cannot be read",
}
"""E069. Rules over history: `cep backtest`, `cep tune`, `cep scorecard`."""

PLUG_INS: dict[str, str] = {
    "E0680": "no format, source or sink of this name",
    "E0681": "a name or a file ending that two packages register",
    "E0682": "a plug-in that cannot be loaded",
    "E0683": "a plug-in whose extra is not installed",
    "E0684": "a plug-in that lacks a member of its protocol",
    "E0685": "a format that cannot be read from a file system that only Spark reaches",
}
"""E068. Formats, sources and sinks that packages register."""

STATE: dict[str, str] = {
    "E0701": "a checkpoint of other rules",
    "E0702": "a part of a checkpoint that is damaged or missing",
    "E0703": "a snapshot of a format that this version does not read",
    "E0704": "a checkpoint with another number of key groups",
    "E0705": "a folder that is no checkpoint of a pipeline",
    "E0706": "a checkpoint that this version cannot read",
    "E0707": "a key has more open runs than it may have",
    "E0710": "a source that is another one than at the first start",
    "E0711": "two runs on one checkpoint",
    "E0712": "a static table whose rows cannot be used",
    "E0713": "a checkpoint without what a static table held",
    "E0714": "a folder that is no savepoint, or a damaged one",
    "E0715": "a source whose position a savepoint cannot contain",
    "E0716": "a folder to which no savepoint or checkpoint can be written",
    "E0717": "rule files that a restore would overwrite",
    "E0718": "a past with which new rules cannot begin",
    "E0720": "a file of a log of matches that is damaged or missing",
    "E0721": "nothing that `cep replay` can write, or no sink that it can write to",
    "E0722": "more than the limits of a pipeline allow",
}
"""E07. State: snapshots, checkpoints and savepoints."""

SPARK: dict[str, str] = {
    "E0801": "PySpark is missing or too old",
    "E0802": "Java is missing, too old or does not run",
    "E0803": "Spark does not start",
    "E0804": "Spark failed",
    "E0805": "the Python of Spark's workers does not start, or is of another version",
    "E0806": "the Python of Spark's workers lacks a package",
    "E0807": "Spark's workers have another spark-cep",
    "E0808": "no temporary folder can be made",
    "E0809": "a folder of the driver that workers on other machines do not have",
    "E0810": "Spark Connect, where Spark's Java in this process is needed",
}
"""E080. What Spark needs."""

CALLS: dict[str, str] = {
    "E0820": "events without a declared event time",
    "E0821": "a lateness that is not a duration",
    "E0822": "a RuleSet together with rule texts",
    "E0823": "events that are no DataFrame",
    "E0824": "a watermark that `detect` cannot take over",
    "E0825": "a stream that has passed an operator with state",
    "E0826": "streams and batches together",
    "E0827": "an argument that is not of its type",
    "E0828": "an argument that another one rules out",
    "E0829": "a DataFrame without the event time that records in their order would tell",
    "E0832": "`find_matches`: rows that do not fit their stream",
    "E0837": "a question to Spark within a query function of Declarative Pipelines",
}
"""E082. Calls from Python: `detect`, `find_matches`."""

PIPELINES: dict[str, str] = {
    "E0831": "a rule file or a streams file where a pipeline is needed",
    "E0834": "an address at which a pipeline cannot listen",
    "E0835": "a source of a pipeline that `cep why` cannot read",
    "E0838": "a setting of Spark that a pipeline file may not set",
    "E0839": "a path outside of the declared roots",
    "E0840": "the pipeline file cannot be read",
    "E0841": "not one of the words possible here",
    "E0842": "no rule reads a source's stream, or a rule reads one without a source",
    "E0843": "settings that do not go together",
    "E0844": "a pattern of paths that names no file",
    "E0845": "more source partitions than a pipeline may have",
    "E0846": "a device clock, and a source that has no order",
    "E0847": "too many events wait for a source partition, and a pause would not help",
    "E0848": "a source or a sink that does not answer in time",
    "E0849": "a checkpoint that is not the latest of its stream",
    "E0887": "a batch that would replace the result of another one",
    "E0888": "a path in a pipeline that an archive for a cluster cannot have",
    "E0889": "no such parameter",
    "E0895": "a value that a parameter cannot have",
    "E0896": "corrections of the rows of a view",
    "E0897": "a chosen rule does not exist",
    "E0898": "no event has the key that was asked for",
    "E0899": "a rule without steps, which `cep why --summary` cannot count",
}
"""E083, E084. Pipeline files, and what they name."""

KAFKA: dict[str, str] = {
    "E0830": "Spark lacks the connector that a source needs",
    "E0850": "no broker of Kafka answers",
    "E0851": "a topic or a partition does not exist",
    "E0852": "a broker of Kafka refuses access",
    "E0853": "an option of Kafka's client that is wrong, or a variable that the environment does not have",
    "E0854": "messages that were removed before they were read",
    "E0855": "two runs that write to one topic of Kafka under one name",
    "E0856": "Kafka failed",
}
"""E085. Kafka; a variable of the environment."""

POSTGRES: dict[str, str] = {
    "E0860": "no server of PostgreSQL answers",
    "E0861": "a server of PostgreSQL refuses access",
    "E0862": "a table or a column does not exist, or is not published",
    "E0863": "a server of PostgreSQL that cannot give changes",
    "E0864": "a replication slot does not exist, is of another kind, or is not free",
    "E0865": "changes that are lost, because their slot does not have them any more",
    "E0866": "a table whose old rows are not in the log",
    "E0867": "PostgreSQL failed",
    "E0868": "a publication, or a table of it, that is not what it was",
    "E0870": "a table of PostgreSQL that does not fit the rows",
    "E0871": "a table of PostgreSQL that another transaction locks",
}
"""E086. PostgreSQL: the source and the sink."""

SINKS: dict[str, str] = {
    "E0836": "a body of a webhook that is no template, or names a column that rows do not have",
    "E0872": "a place that is no Delta table, or cannot be written",
    "E0873": "a Delta table that does not fit the rows",
    "E0874": "a webhook that does not answer, or too late",
    "E0875": "a webhook that refuses what it gets",
    "E0876": "no broker of RabbitMQ answers",
    "E0877": "a broker of RabbitMQ refuses access",
    "E0878": "no such exchange or queue, or a message that reaches no queue",
    "E0879": "Delta or RabbitMQ failed",
}
"""E087. Delta, webhooks and RabbitMQ."""

LOGS: dict[str, str] = {
    "E0880": "no server of a log of messages answers",
    "E0881": "a stream, a subject or a partition does not exist",
    "E0882": "a server of a log of messages refuses access",
    "E0883": "an option of a client that is wrong",
    "E0884": "messages of a stream that were removed before they were read",
    "E0885": "a server of a log of messages failed",
    "E0886": "messages that are not kept, or not kept one by one",
}
"""E088. Logs of messages besides Kafka."""

MESSAGES: dict[str, str] = {
    "E0890": "a schema or a descriptor of messages that cannot be used",
    "E0891": "a schema of messages that does not fit the stream",
    "E0892": "no registry of schemas answers",
    "E0893": "a registry of schemas refuses access",
    "E0894": "a registry of schemas failed",
}
"""E089. Schemas of messages, and registries of schemas."""

SPOOL: dict[str, str] = {
    "E0950": "a folder that is not a spool",
    "E0951": "two spools on one folder",
    "E0952": "a spool that is damaged, or of another version",
    "E0953": "messages that were removed from a spool before they were read, or another spool than before",
    "E0954": "an address that a spool cannot listen at",
    "E0955": "a server that a spool takes from, and that does not answer",
    "E0956": "a server that refuses access, or has no such queue",
    "E0957": "a setting of `cep spool` that cannot be, or a variable that the environment does not have",
    "E0958": "the disk of a spool failed",
}
"""E095. The spool: `cep spool`, and pipelines that read one."""

OF_RULES: dict[str, str] = SYNTAX | NAMES_AND_TYPES | PATTERNS | SETTINGS | WARNINGS | LIMITS
"""What is said about the text of rules and of streams files."""

FAMILIES: dict[str, dict[str, str]] = {
    "Syntax": SYNTAX,
    "Names and types": NAMES_AND_TYPES,
    "Patterns and clauses": PATTERNS,
    "Streams file": SETTINGS,
    "Warnings": WARNINGS,
    "Lint": LINT,
    "Limits": LIMITS,
    "Files": FILES,
    "The rule library": LIBRARY,
    "Tests of rules": TESTS,
    "Rules over history": HISTORY,
    "Plug-ins": PLUG_INS,
    "Checkpoints": STATE,
    "Spark": SPARK,
    "Calls from Python": CALLS,
    "Pipelines": PIPELINES,
    "Kafka": KAFKA,
    "PostgreSQL": POSTGRES,
    "Delta, webhooks and RabbitMQ": SINKS,
    "Logs of messages": LOGS,
    "Schemas of messages": MESSAGES,
    "The spool": SPOOL,
}
"""Section of docs/reference/errors.md -> its codes. `tools/errors_page.py` writes the headings there."""

CODES: dict[str, str] = {code: meaning for table in FAMILIES.values() for code, meaning in table.items()}
"""Code -> meaning, of all families."""
