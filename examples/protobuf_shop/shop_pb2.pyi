from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Order(_message.Message):
    __slots__ = ("customer", "items")
    CUSTOMER_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    customer: str
    items: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, customer: _Optional[str] = ..., items: _Optional[_Iterable[str]] = ...) -> None: ...

class Invoice(_message.Message):
    __slots__ = ("customer", "cents")
    CUSTOMER_FIELD_NUMBER: _ClassVar[int]
    CENTS_FIELD_NUMBER: _ClassVar[int]
    customer: str
    cents: int
    def __init__(self, customer: _Optional[str] = ..., cents: _Optional[int] = ...) -> None: ...
