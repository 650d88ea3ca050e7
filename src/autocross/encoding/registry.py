"""The only list of encoders: which encoder a kind of column has, and which encoder a word in a bundle stands for.

A new kind of column is a file with its encoder, and a call of `register`.
"""

from __future__ import annotations

from autocross.checks import require
from autocross.encoding.column import ColumnEncoder
from autocross.encoding.discretize import Bins
from autocross.encoding.timestamps import Calendar, Course
from autocross.encoding.vocabulary import PrivateVocabulary, Vocabulary
from autocross.table.schema import READINGS, ColumnSchema, Reading

OF_KIND: dict[str, type[ColumnEncoder]] = {
    "categorical": Vocabulary,
    "multivalue": Vocabulary,
    "numerical": Bins,
    "time": Calendar,
}
OF_CODER: dict[str, type[ColumnEncoder]] = {
    encoder.coder: encoder for encoder in (Vocabulary, PrivateVocabulary, Bins, Calendar, Course)
}


def unpacker(coder: str, column: ColumnSchema) -> type[ColumnEncoder]:
    """The encoder class that a word in a bundle stands for. It must be one for columns of this kind."""
    fits = coder in OF_CODER and issubclass(OF_CODER[coder], OF_KIND.get(column.kind, ()))
    require(fits, f"column {column.name!r} is not coded as its kind asks")
    return OF_CODER[coder]


def register(kind: str, reading: Reading, encoder: type[ColumnEncoder]) -> None:
    """Add a kind of column, which users declare by its name. ``reading`` says as what its cells are read, and ``encoder`` turns
    them into codes.

    A model with such a column can be loaded only where the kind is registered too.
    """
    assert kind not in READINGS, f"there is a kind {kind!r} already"
    assert encoder.coder not in OF_CODER, f"there is a coder {encoder.coder!r} already"
    READINGS[kind], OF_KIND[kind], OF_CODER[encoder.coder] = reading, encoder, encoder
