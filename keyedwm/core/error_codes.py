"""The codes of errors, which stand at the end of their messages and on docs/reference/errors.md.

Rule: a code is never given to another error, and never changes. The first digit is the kind of fault: 1 options and
rights, 2 input, 3 something is away, 4 lost records, 5 durable data, 6 another writer, 7 the installation, 9 a bug.
"""

from __future__ import annotations

from collections.abc import Mapping

CODES: Mapping[str, str] = {
    "OptionError": "KWM-1001",
    "UnsupportedRequestError": "KWM-1002",
    "AccessError": "KWM-1101",
    "GroupAccessError": "KWM-1102",
    "StoreAccessError": "KWM-1103",
    "CatalogAccessError": "KWM-1104",
    "RegistryAccessError": "KWM-1105",
    "InputError": "KWM-2001",
    "UnknownTopicError": "KWM-2002",
    "CorruptRecordError": "KWM-2003",
    "RecordTooLargeError": "KWM-2004",
    "UnknownSchemaError": "KWM-2005",
    "RegressionError": "KWM-2101",
    "CallError": "KWM-2201",
    "UnavailableError": "KWM-3001",
    "NoBrokerError": "KWM-3002",
    "NoAnswerError": "KWM-3003",
    "ExpiredTransactionError": "KWM-3101",
    "DataLossError": "KWM-4001",
    "StartBeyondEndError": "KWM-4002",
    "OffsetOutOfRangeError": "KWM-4003",
    "TopicRecreatedError": "KWM-4004",
    "LogTruncatedError": "KWM-4005",
    "FrozenEndError": "KWM-4006",
    "LostTransactionError": "KWM-4101",
    "FormatError": "KWM-5001",
    "DamagedError": "KWM-5002",
    "DamagedLedgerError": "KWM-5003",
    "FencedError": "KWM-6001",
    "VersionError": "KWM-7001",
    "JavaError": "KWM-7002",
    "MissingError": "KWM-7003",
    "MatplotlibMissingError": "KWM-7004",
    "KeyedwmError": "KWM-9001",
    "OutOfTurnError": "KWM-9002",
}


def code_of(kind: type) -> str:
    """Return the code of a class of errors: its own, else the code of the nearest base class that has one."""
    return next(CODES[base.__name__] for base in kind.__mro__ if base.__name__ in CODES)
