"""All kinds of stages that the option stage may ask for, and the one place where its text is read."""

from __future__ import annotations

from keyedwm.config.validation import wrong
from pyspark_wm_source.options.frame_stage import FrameSpec
from pyspark_wm_source.options.json_option import json_object
from pyspark_wm_source.options.message_stage import MessageSpec
from pyspark_wm_source.options.side_stage import SideSpec
from pyspark_wm_source.options.stage import STAGE, StageSpec

_KINDS: dict[object, type[StageSpec]] = {spec.kind: spec for spec in (FrameSpec, SideSpec, MessageSpec)}


def parse_stage(text: str) -> StageSpec:
    """Read the option's text. Raises OptionError."""
    description = json_object(STAGE, text)
    kind = description.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise wrong(STAGE, text, "what an operator over keyedwm.spark.source writes is expected")
    return _KINDS[kind].of(description, text)
