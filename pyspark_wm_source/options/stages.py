"""All kinds of stages that the option stage may ask for, and the one place where its text, a JSON object, is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from keyedwm.arrow.schema import row_schema
from keyedwm.config.validation import boolean, wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.parsing import parse_json
from pyspark_wm_source.options.frame_stage import FrameSpec
from pyspark_wm_source.options.message_stage import MessageSpec
from pyspark_wm_source.options.side_stage import SideSpec
from pyspark_wm_source.options.stage import STAGE, SourceColumns, Stage, StageSpec

if TYPE_CHECKING:
    from pyspark_wm_source.options.axes import TimeAxis
    from pyspark_wm_source.options.chosen_columns import ChosenColumns


def json_object(name: str, text: str, fields: Collection[str] | None = None, wanted: str = "") -> dict[str, Any]:
    """Return the content of an option. Raises OptionError unless it is an object, with these fields if any are
    given; wanted: what is expected then.
    """
    try:
        found = parse_json(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or (fields is not None and set(found) != set(fields)):
        raise wrong(name, text, wanted or "a JSON object is expected")
    return found


_KINDS: dict[object, type[StageSpec]] = {spec.kind: spec for spec in (FrameSpec, SideSpec, MessageSpec)}


def parse_stage(text: str) -> StageSpec:
    """Read the option's text. Raises OptionError."""
    description = json_object(STAGE, text)
    kind = description.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise wrong(STAGE, text, "what an operator over keyedwm.spark.source writes is expected")
    return _KINDS[kind].of(description, text)


def stage_of(
    settings: Mapping[str, str], axes: Mapping[str, TimeAxis], chosen: ChosenColumns, *, headers: bool
) -> Stage:
    """Return the stage that the options ask for, and refuse options that contradict it. settings: lower-case names."""
    for name in ("emitControl", "barriers"):
        if not boolean(name, settings.get(name.lower(), "true")):
            raise OptionError(
                f"option {name}: false contradicts the operator over this read, which needs control rows: leave it out"
            )
    every = chosen.every(tuple(axes), headers=headers)
    own = row_schema(tuple(axes), headers=headers, control=False, columns=chosen.names, fields=chosen.schema)
    known = SourceColumns(every=every, chosen=None if chosen.names is None else own, axes=axes, fields=chosen.fields)
    return parse_stage(settings[STAGE]).stage(known)
