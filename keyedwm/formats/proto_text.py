"""The source of a .proto file, as a registry keeps it, read into the descriptor that Google's runtime links.

Rule: the parser reads everything that decides how bytes are read: messages, fields, enums, oneofs, maps, groups,
defaults, packed lists. Services, extensions and all other options are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from keyedwm.core.errors import InputError
from keyedwm.core.text import short_repr

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>/\*.*|.)""",  # a comment that does not end is one sign: it is looked through once
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL, "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}  # fmt: skip
_SCALARS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FieldDescriptorProto.Type.items()
    if name not in {"TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM"}
}
_CLOSING = {"{": "}", "[": "]", "(": ")"}
_MOST_DEPTH = 64
_MOST_TOKENS = 1_000_000
_AHEAD = 4  # tokens that may be read ahead


class _Token(NamedTuple):
    kind: str  # number, name, text, sign, or end
    text: str
    line: int


def parse_proto(name: str, source: str) -> FileDescriptorProto:
    """Read the source of a file. name: as imports name it. Raises InputError with the line that is wrong."""
    return _Parser(name, _tokens(source)).file()


def _tokens(source: str) -> list[_Token]:
    tokens, line = [], 1
    for match in _TOKEN.finditer(source):
        kind = match.lastgroup or ""
        if kind != "skip":
            tokens.append(_Token(kind, match[0], line))
            if len(tokens) > _MOST_TOKENS:
                raise InputError(f"the text is a .proto file of more than {_MOST_TOKENS} words and signs")
        line += match[0].count("\n")
    return [*tokens, *[_Token("end", "the end", line)] * _AHEAD]


class _Parser:
    """Reads the tokens of one file."""

    def __init__(self, name: str, tokens: list[_Token]) -> None:
        self._proto = FileDescriptorProto(name=name)
        self._tokens, self._at = tokens, 0

    def file(self) -> FileDescriptorProto:
        """Read the whole file."""
        proto = self._proto
        parts: dict[str, Callable[[], None]] = {
            "syntax": self._syntax, "edition": self._edition, "import": self._import, "package": self._package,
            "message": lambda: self._message(proto.message_type.add(), 0), "service": self._pass_block,
            "enum": lambda: self._enum(proto.enum_type.add()), "option": self._pass_statement,
            "extend": self._pass_block, ";": lambda: self._expect(";"),
        }  # fmt: skip
        while self._is.kind != "end":
            parts.get(self._is.text, self._refuse)()
        return proto

    @property
    def _is(self) -> _Token:
        return self._tokens[self._at]

    def _refuse(self) -> None:
        token = self._is
        text = token.text if token.kind == "end" else short_repr(token.text)
        raise InputError(f"the text is no .proto file that can be read: {text} is not expected in line {token.line}")

    def _next(self) -> str:
        """Pass the token, and return its text."""
        token = self._is
        if token.kind == "end":
            self._refuse()
        self._at += 1
        return token.text

    def _expect(self, text: str) -> None:
        if self._is.text != text or self._is.kind == "text":
            self._refuse()
        self._at += 1

    def _if(self, text: str) -> bool:
        """Pass the token if it is `text`; return whether it is."""
        is_match = self._is.text == text and self._is.kind != "text"
        self._at += is_match
        return is_match

    def _name(self) -> str:
        if self._is.kind != "name":
            self._refuse()
        return self._next()

    def _path(self) -> str:
        """Pass a name with dots, perhaps with a dot in front, and return it."""
        parts = ["." if self._if(".") else "", self._name()]
        while self._if("."):
            parts += [".", self._name()]
        return "".join(parts)

    def _whole(self) -> int:
        sign = -1 if self._if("-") else 1
        if self._is.kind != "number":
            self._refuse()
        try:
            return sign * _integer(self._is.text)
        except ValueError:
            self._refuse()
            raise
        finally:
            self._at += 1

    def _text(self) -> bytes:
        """Pass texts one behind the other, and return them joined, without their quotes."""
        if self._is.kind != "text":
            self._refuse()
        parts = []
        while self._is.kind == "text":
            parts.append(_ESCAPE.sub(_unescaped, self._next()[1:-1].encode()))
        return b"".join(parts)

    def _syntax(self) -> None:
        self._next()
        self._expect("=")
        if self._is.text.strip("\"'") not in {"proto2", "proto3"}:
            self._refuse()
        self._proto.syntax = self._text().decode()
        self._expect(";")

    def _edition(self) -> None:
        raise InputError(
            f"the text is a .proto file with an edition (line {self._is.line}), which cannot be read: "
            'syntax = "proto2" or "proto3" is expected'
        )

    def _import(self) -> None:
        self._next()
        is_public = self._is.text == "public"
        if is_public or self._is.text == "weak":
            self._next()
        if is_public:
            self._proto.public_dependency.append(len(self._proto.dependency))
        self._proto.dependency.append(self._text().decode(errors="replace"))
        self._expect(";")

    def _package(self) -> None:
        self._next()
        self._proto.package = self._path()
        self._expect(";")

    def _pass_statement(self) -> None:
        """Pass everything up to a semicolon that is not in brackets."""
        while not self._if(";"):
            self._pass_value()

    def _pass_block(self) -> None:
        while self._is.text != "{" or self._is.kind == "text":
            self._next()
        self._pass_value()

    def _pass_value(self) -> None:
        """Pass one token, or everything from an opening bracket to its closing bracket."""
        closing: list[str] = []
        while True:
            token = self._is
            self._next()
            if token.kind == "sign" and token.text in _CLOSING:
                closing.append(_CLOSING[token.text])
            elif token.kind == "sign" and closing and token.text == closing[-1]:
                closing.pop()
            if not closing:
                return

    def _message(self, proto: DescriptorProto, depth: int, *, is_named: bool = True) -> None:
        if is_named:
            self._next()
            proto.name = self._name()
        if depth > _MOST_DEPTH:
            self._refuse()
        self._expect("{")
        parts: dict[str, Callable[[], None]] = {
            "message": lambda: self._message(proto.nested_type.add(), depth + 1),
            "enum": lambda: self._enum(proto.enum_type.add()),
            "oneof": lambda: self._oneof(proto, depth), "extend": self._pass_block,
            "option": self._message_option(proto),
            "reserved": self._pass_statement, "extensions": self._pass_statement, ";": lambda: self._expect(";"),
        }  # fmt: skip
        while not self._if("}"):
            # A field may have the type of a message that is called `message` or `option`.
            part = parts.get(self._is.text) if self._tokens[self._at + 1].text != "." else None
            if part is None:
                self._field(proto, depth)
            else:
                part()
        self._presence(proto)

    def _message_option(self, proto: DescriptorProto) -> Callable[[], None]:
        def read() -> None:
            if self._tokens[self._at + 1].text == "message_set_wire_format":
                proto.options.message_set_wire_format = self._tokens[self._at + 3].text == "true"
            self._pass_statement()

        return read

    def _presence(self, proto: DescriptorProto) -> None:
        """Give each `optional` field of proto3 a oneof of its own, behind the oneofs of the source."""
        for field in proto.field:
            if field.proto3_optional:
                field.oneof_index = len(proto.oneof_decl)
                proto.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, proto: DescriptorProto, depth: int) -> None:
        self._next()
        number = len(proto.oneof_decl)
        proto.oneof_decl.add(name=self._name())
        self._expect("{")
        while not self._if("}"):
            if self._is.text == "option" and self._tokens[self._at + 1].text != ".":
                self._pass_statement()
            elif not self._if(";"):
                self._field(proto, depth)
                proto.field[-1].oneof_index = number

    def _field(self, proto: DescriptorProto, depth: int) -> None:
        label = self._is.text
        if label in _LABELS:
            self._next()
        if self._is.text == "map" and self._tokens[self._at + 1].text == "<":
            self._map(proto)
            return
        field = proto.field.add(label=_LABELS.get(label, FieldDescriptorProto.LABEL_OPTIONAL))
        if self._proto.syntax == "proto3" and label == "optional":
            field.proto3_optional = True
        if self._if("group"):
            group = proto.nested_type.add(name=self._name())
            field.name, field.type, field.type_name = group.name.lower(), FieldDescriptorProto.TYPE_GROUP, group.name
            self._numbered(field)
            self._message(group, depth + 1, is_named=False)
            return
        self._typed(field)
        field.name = self._name()
        self._numbered(field)
        self._expect(";")

    def _typed(self, field: FieldDescriptorProto) -> None:
        name = self._path()
        if name in _SCALARS:
            field.type = _SCALARS[name]
        else:
            field.type_name = name  # of a message or an enum: the runtime decides which

    def _numbered(self, field: FieldDescriptorProto) -> None:
        self._expect("=")
        number = self._whole()
        if not 0 < number < 2**29:
            self._refuse()
        field.number = number
        if self._if("["):
            while not self._if("]"):
                self._option_of(field)
                self._if(",")

    def _option_of(self, field: FieldDescriptorProto) -> None:
        name = self._next() if self._is.kind == "name" else ""
        if name == "packed" and self._if("="):
            field.options.packed = self._next() == "true"
        elif name == "default" and self._if("="):
            field.default_value = self._default(field)
        else:
            while self._is.text not in {",", "]"} or self._is.kind == "text":
                self._pass_value()

    def _default(self, field: FieldDescriptorProto) -> str:
        if self._is.kind == "text":
            text = self._text()
            is_bytes = field.type == FieldDescriptorProto.TYPE_BYTES
            return "".join(f"\\{b:03o}" for b in text) if is_bytes else text.decode(errors="replace")
        sign = "-" if self._if("-") else ""
        is_whole = self._is.kind == "number" and field.type not in {
            FieldDescriptorProto.TYPE_DOUBLE, FieldDescriptorProto.TYPE_FLOAT
        }  # fmt: skip
        return f"{sign}{self._whole()}" if is_whole else f"{sign}{self._next()}"

    def _map(self, proto: DescriptorProto) -> None:
        self._next()
        self._expect("<")
        entry = DescriptorProto()
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=FieldDescriptorProto.LABEL_OPTIONAL)
        self._typed(key)
        self._expect(",")
        value = entry.field.add(name="value", number=2, label=FieldDescriptorProto.LABEL_OPTIONAL)
        self._typed(value)
        self._expect(">")
        field = proto.field.add(name=self._name(), label=FieldDescriptorProto.LABEL_REPEATED)
        entry.name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        field.type_name = entry.name
        proto.nested_type.append(entry)
        self._numbered(field)
        self._expect(";")

    def _enum(self, proto: EnumDescriptorProto) -> None:
        self._next()
        proto.name = self._name()
        self._expect("{")
        while not self._if("}"):
            if self._if(";"):
                continue
            if self._is.text in {"option", "reserved"} and self._tokens[self._at + 1].text != "=":
                if self._tokens[self._at + 1].text == "allow_alias":
                    proto.options.allow_alias = self._tokens[self._at + 3].text == "true"
                self._pass_statement()
                continue
            name = self._name()
            self._expect("=")
            proto.value.add(name=name, number=self._whole())
            self._pass_statement()


def _integer(text: str) -> int:
    if text[:2].lower() == "0x":
        return int(text, 16)
    return int(text, 8) if text.startswith("0") and len(text) > 1 else int(text)


def _unescaped(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if code[:1] in b"xX" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[:1] in b"01234567":
        return bytes([int(code, 8) & 0xFF])
    if code[:1] in b"uU" and len(code) > 1:
        return chr(int(code[1:], 16)).encode(errors="replace")
    return _ESCAPED.get(code, code)
