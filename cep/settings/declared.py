"""Settings as declarations: a setting is one line, a field of a frozen dataclass.

The line gives the allowed values, the default, and the other settings that it depends on::

    @dataclass(frozen=True, slots=True)
    class Console:
        limit: int = integer(20)
        width: int = integer(80, at_least=40)

`read` returns such a dataclass with the settings of a file. It reports all problems, each with its code, its
place, what is wrong and what to write. A wrong value counts as not given.

A function without a default declares a setting that must be given. See `More` for the further arguments of
each function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypedDict, TypeVar, Unpack

import yaml

from cep.schema.time_literals import parse_duration
from cep.settings.file_mode import HELP, PRIVATE, FileMode, parse_file_mode
from cep.settings.settings import Settings, has_no_nul

TEXT_FORM: Mapping[str, Any] = {"type": ["string", "number", "boolean"]}
"""The JSON Schema of a text: YAML may read one without quotes as a number."""

TEXTS_FORM: Mapping[str, Any] = {"anyOf": [TEXT_FORM, {"type": "array", "items": TEXT_FORM}]}
"""The JSON Schema of a text or a list of texts."""

_Read = Callable[[Settings, str], Any]
"""The settings and the name of one -> its value; None after a report."""

_US = {"us": 1, "s": 1e6}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wrong:
    """The problem of a value that is not allowed. In the strings `{}` is the value."""

    title: str
    label: str
    help: str
    code: str = "E0402"

    def note(self, settings: Settings, name: str, value: object) -> None:
        """Report it at the setting."""
        title, advice = (text.replace("{}", str(value)) for text in (self.title, self.help))
        settings.problem(self.code, title, name, self.label, advice)


class More(TypedDict, total=False):
    """What a declaration may say about a setting, apart from its type and its default."""

    name: str
    """Its name in the file, if the field has a different one."""
    unless: str
    """A setting in whose presence this one need not be given."""
    not_with: str
    """A setting that cannot be given together with this one."""
    needs: tuple[str, str, str]
    """A setting without which this one has no effect; why, and what to write."""
    valid: Callable[[Any], object]
    """Whether a value can be."""
    wrong: Wrong
    """What is said of a value that is not `valid`."""
    hidden: bool
    """Whether no representation shows the value."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A line of a declaration.

    `words`: the allowed values, if the setting has a fixed set of them. `form` is its JSON Schema; if it is
    empty, the setting may have any form.
    """

    read: _Read
    default: Any
    is_required: bool
    words: tuple[str, ...] = ()
    more: More = field(default_factory=More)
    form: Mapping[str, Any] = field(default_factory=dict)

    def value(self, settings: Settings, name: str, *, is_complete: bool) -> Any:
        """Return its value, or the default after a report. `is_complete`: missing ones were reported."""
        more = self.more
        if name not in settings:
            other = more.get("unless", "")
            if self.is_required and not is_complete and other not in settings:
                settings.missing(name, other)
            return self.default
        if (other := more.get("not_with", "")) in settings:
            together = f"`{other}` and `{name}` together"
            settings.problem("E0843", together, name, "one or the other", "remove one")
            return self.default
        if "needs" in more and more["needs"][0] not in settings:
            needed, why, advice = more["needs"]
            settings.problem("E0843", f"`{name}` without `{needed}`", name, why, advice)
        value = self.read(settings, name)
        if value is not None and "valid" in more and not more["valid"](value):
            more["wrong"].note(settings, name, value)
            value = None
        return self.default if value is None else value


def text(default: str | None = None, *, secret: bool = False, **more: Unpack[More]) -> Any:
    """Declare a string. In a secret, `${NAME}` may stand for an environment variable."""
    read = Settings.secret if secret else Settings.text_without_nul
    return _declared(read, default or "", more, default is None, form=TEXT_FORM)


def path(default: str | None = None, **more: Unpack[More]) -> Any:
    """Declare a path. A path with a scheme is kept as it is; any other is made absolute."""
    return _declared(Settings.path, default or "", more, default is None, form=TEXT_FORM)


def names(default: tuple[str, ...] | None = None, **more: Unpack[More]) -> Any:
    """Declare a string or a list of strings. The value is a tuple without duplicates."""
    return _declared(Settings.names, default or (), more, default is None, form=TEXTS_FORM)


def flag(default: bool, **more: Unpack[More]) -> Any:
    """Declare `true` or `false`."""
    return _declared(Settings.boolean, default, more, form={"type": "boolean", "default": default})


def choice(words: Mapping[str, Any] | Iterable[str], default: Any = None, **more: Unpack[More]) -> Any:
    """Declare a choice among words; the first is the default. A mapping says what they mean."""
    meanings = dict(words) if isinstance(words, Mapping) else {word: word for word in words}

    def read(settings: Settings, name: str) -> Any:
        word = settings.word(name, tuple(meanings))
        return None if word is None else meanings[word]

    first = next(iter(meanings.values()))
    words_form = {"enum": list(map(str, meanings))}
    chosen = first if default is None else default
    return _declared(read, chosen, more, words=tuple(meanings), form=words_form)


def integer(default: int | None, *, at_least: int = 0, required: bool = False, **more: Unpack[More]) -> Any:
    """Declare a whole number."""

    def read(settings: Settings, name: str) -> int | None:
        value = settings.integer(name)
        if value is None or value >= at_least:
            return value
        must = f"`{name}` must be at least {at_least}"
        settings.problem("E0402", must, name, "too small", f"write {at_least} or more")
        return None

    form = {"type": "integer", "minimum": at_least} | ({} if default is None else {"default": default})
    return _declared(read, default, more, required, form=form)


def duration(
    default: float | None,
    unit: str,
    *,
    example: str = "5 minutes",
    above_zero: bool = False,
    otherwise: Wrong | None = None,
    **more: Unpack[More],
) -> Any:
    """Declare a duration in `unit`, ``us`` or ``s``. `otherwise` is the problem of any other text."""

    def read(settings: Settings, name: str) -> float | None:
        given = settings.text(name)
        length_us = None if given is None else parse_duration(given)
        if given is None or length_us is None or (above_zero and not length_us):
            advice = f"write for example: {name}: {example}"
            usual = Wrong("`{}` is not a duration", "expected a number and a unit", advice, "E0409")
            if given is not None:
                (otherwise or usual).note(settings, name, given.strip())
            return None
        return length_us if unit == "us" else length_us / _US[unit]

    return _declared(read, default, more, form={"type": "string", "examples": [example]})


def file_mode(**more: Unpack[More]) -> Any:
    """Declare who may read files; by default only their owner."""

    def read(settings: Settings, name: str) -> FileMode | None:
        given = settings.text(name)
        mode = None if given is None else parse_file_mode(given)
        if given is not None and mode is None:
            label = "expected 6, then 0, 4 or 6 for the group and for all others"
            settings.problem("E0841", f"`{name}` cannot be `{given}`", name, label, HELP)
        return mode

    return _declared(read, PRIVATE, more, form={"type": ["integer", "string"]})


def texts(*, refused: Collection[str] = (), **more: Unpack[More]) -> Any:
    """Declare a mapping of names to strings; see `read_texts`."""

    def read(settings: Settings, name: str) -> tuple[tuple[str, str], ...]:
        return read_texts(settings, name, refused)

    form = {"type": "object", "additionalProperties": TEXT_FORM}
    return _declared(read, (), {"hidden": True, **more}, form=form)


def read_texts(
    settings: Settings, name: str, refused: Collection[str] = (), known: Collection[str] = ()
) -> tuple[tuple[str, str], ...]:
    """Return a mapping of names to strings, in which `${NAME}` may stand for an environment variable.

    The user may not give the names `refused`, compared both in lower case and as written. If `known` is
    given, all other names are refused, too.
    """
    document, found = settings.document, []
    for entry in document.mapping(settings.found[name], f"`{name}`") or []:
        if entry.name in refused or entry.name.lower() in refused:
            title = f"`{entry.name}` is not for `{name}`"
            document.problem("E0843", title, entry.value, "the pipeline decides about it", "remove it")
        elif known and entry.name not in known:
            title, advice = f"there is no option `{entry.name}`", f"write {', '.join(known)}"
            document.problem("E0841", title, entry.value, "not known", advice)
        elif isinstance(entry.value, yaml.ScalarNode):
            if has_no_nul(document, entry.value, entry.value.value):
                found.append((entry.name, str(entry.value.value)))
        else:
            document.text(entry.value, f"`{entry.name}`")  # reports that it is not a text
    return tuple(found)


def later(**more: Unpack[More]) -> Any:
    """Declare a setting whose form depends on other settings. Its value is its place in the file, or None."""
    return _declared(lambda settings, name: settings.found[name], None, more, form={})


def own(
    read: _Read,
    default: T,
    *,
    required: bool = False,
    form: Mapping[str, Any] | None = None,
    **more: Unpack[More],
) -> T:
    """Declare a setting that the function `read` reads; `form` is its JSON Schema, if it has a fixed form."""
    declared: T = _declared(read, default, more, required, form=form or {})
    return declared


def nested(
    declaration: type[T],
    made: Callable[[Any, Settings], Any] | None = None,
    *,
    default: Any = None,
    **more: Unpack[More],
) -> Any:
    """Declare a mapping that has its own settings; `made` turns the declared settings into its value."""

    def value(settings: Settings, name: str) -> Any:
        known = declared_settings(declaration)
        needed = [each for each, setting in known.items() if setting.is_required]
        inner = settings.inside(name, known, needed)
        if inner is None:
            return None
        found = read(declaration, inner, is_complete=True)
        return found if made is None else made(found, inner)

    return _declared(value, default, more, form=form_of(declaration))


def declared_settings(declaration: type) -> dict[str, Setting]:
    """Return the declared settings, by their names in the file and in their order."""
    return {name: setting for _, name, setting in _lines(declaration)}


def form_of(declaration: type) -> dict[str, Any]:
    """Return the JSON Schema of a mapping with the declared settings, and no others."""
    known = declared_settings(declaration)
    required = [
        name for name, setting in known.items() if setting.is_required and "unless" not in setting.more
    ]
    return {
        "type": "object",
        "properties": {name: dict(setting.form) for name, setting in known.items()},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def read(declaration: type[T], settings: Settings, *, is_complete: bool = False, **given: Any) -> T:
    """Return the declared settings. Problems are recorded; a wrong value counts as not given.

    `is_complete`: whether missing settings were reported already. `given`: fields of the dataclass that are
    not settings.
    """
    found = {
        field_name: setting.value(settings, name, is_complete=is_complete)
        for field_name, name, setting in _lines(declaration)
    }
    return declaration(**given, **found)


class Declared(Generic[T]):
    """A format of a source or a sink whose settings are declared: see `SourceType` and `SinkType`.

    `made`: returns the spec, or None. Without `made`, the declared settings are the spec. `package` and
    `extra`: the package that the format needs, and the extra that installs it. `given`: fields of the
    declaration that are not settings.
    """

    def __init__(
        self,
        declaration: type[Any],
        made: Callable[[Any, Settings], T | None] | None = None,
        *,
        package: str = "",
        extra: str = "",
        kinds: frozenset[str] = frozenset(),
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.declaration = declaration
        self.settings = tuple(declared_settings(declaration))
        self.kinds = kinds
        self._made = made
        self._package = package, extra
        self._given = given or {}

    def spec(self, settings: Settings) -> T | None:
        """Return the spec, or None if a problem was recorded."""
        n_problems = settings.n_problems
        if self._package[0]:
            settings.require_package(*self._package)
        found = read(self.declaration, settings, **self._given)
        spec: T | None = found if self._made is None else self._made(found, settings)
        return spec if settings.n_problems == n_problems else None


_KEY = "setting"


def _lines(declaration: type) -> list[tuple[str, str, Setting]]:
    """Return each setting of a declaration with the name of its field and its name in the file."""
    lines = ((each.name, each.metadata[_KEY]) for each in fields(declaration) if _KEY in each.metadata)
    return [(name, setting.more.get("name", name), setting) for name, setting in lines]


def _declared(
    read: _Read,
    default: Any,
    more: More,
    is_required: bool = False,
    *,
    words: tuple[str, ...] = (),
    form: Mapping[str, Any],
) -> Any:
    """Return the field of a setting. The default is also the value of a required setting that is missing."""
    has_own = default.__class__.__hash__ is None  # each dataclass gets a copy of a mutable default
    about: Any = {"default_factory": default.copy, "hash": False} if has_own else {"default": default}
    setting = Setting(read, default, is_required, words, more, form)
    return field(**about, repr=not more.get("hidden", False), metadata={_KEY: setting})
