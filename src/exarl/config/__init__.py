"""Configuration: documented fields, layered loading, one frozen result."""

from exarl.config.layers import FAMILIES, Source, parse_flags, read_source, tuned_files
from exarl.config.learner import GROUPS, STOPS, LearnerConfig
from exarl.config.resolve import (
    AUTO,
    Configuration,
    Declared,
    Lookup,
    is_default,
    load,
    resolve,
    stored_source,
    tuned_in,
)
from exarl.config.schema import (
    Parameter,
    Schema,
    check,
    param,
    schema_of,
    schema_of_signature,
    type_name,
)

__all__ = [
    "AUTO",
    "FAMILIES",
    "GROUPS",
    "STOPS",
    "Configuration",
    "Declared",
    "LearnerConfig",
    "Lookup",
    "Parameter",
    "Schema",
    "Source",
    "check",
    "is_default",
    "load",
    "param",
    "parse_flags",
    "read_source",
    "resolve",
    "schema_of",
    "schema_of_signature",
    "stored_source",
    "tuned_files",
    "tuned_in",
    "type_name",
]
