"""All kinds of stages that the option `stage` can name. Only this module parses its text, a JSON object."""

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
    from pyspark_wm_source.options.selected_columns import SelectedColumns


def json_object(name: str, text: str, fields: Collection[str] | None = None, expectation: str = "") -> dict[str, Any]:
    """Return the JSON object of an option.

    fields: the names that it must have, None for any. expectation: the sentence for a text without these fields.
    Raises OptionError for another text.
    """
    try:
        content = parse_json(text)
    except ValueError:
        content = None
    if not isinstance(content, dict) or (fields is not None and set(content) != set(fields)):
        raise wrong(name, text, expectation or "a JSON object is expected")
    return content


_KINDS: dict[object, type[StageSpec]] = {spec.kind: spec for spec in (FrameSpec, SideSpec, MessageSpec)}


def parse_stage(text: str) -> StageSpec:
    """Return the step that the option's text describes. Raises OptionError for a text of no step."""
    description = json_object(STAGE, text)
    kind = description.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise wrong(STAGE, text, "what an operator over keyedwm.spark.source writes is expected")
    return _KINDS[kind].of(description, text)


def stage_of(
    settings: Mapping[str, str], axes: Mapping[str, TimeAxis], selection: SelectedColumns, *, headers: bool
) -> Stage:
    """Return the stage of the option `stage`. settings: by lower-case names.

    Raises OptionError for options that contradict the stage.
    """
    for name in ("emitControl", "barriers"):
        if not boolean(name, settings.get(name.lower(), "true")):
            raise OptionError(
                f"option {name}: false contradicts the operator over this read, which needs control rows: set true"
            )
    every = selection.every(tuple(axes), headers=headers)
    own = row_schema(tuple(axes), headers=headers, control=False, columns=selection.names, fields=selection.schema)
    selected = None if selection.names is None else own
    source = SourceColumns(every=every, selected=selected, axes=axes, fields=selection.fields)
    return parse_stage(settings[STAGE]).stage(source)
