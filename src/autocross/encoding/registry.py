"""Which encoder a kind of column has, and which one a word in a bundle stands for: the only list of encoders.

A new kind of column is a file with its encoder, and a call of `register`.
"""

from __future__ import annotations

from autocross.encoding.column import ColumnEncoder
from autocross.encoding.discretize import Bins
from autocross.encoding.timestamps import Calendar
from autocross.encoding.vocabulary import PrivateVocabulary, Vocabulary
from autocross.table.schema import READINGS, Reading

OF_KIND: dict[str, type[ColumnEncoder]] = {
    "categorical": Vocabulary,
    "multivalue": Vocabulary,
    "numerical": Bins,
    "time": Calendar,
}
OF_CODER: dict[str, type[ColumnEncoder]] = {encoder.coder: encoder for encoder in (Vocabulary, PrivateVocabulary, Bins, Calendar)}


def encoder_of(coder: str, kind: str) -> type[ColumnEncoder] | None:
    """What unpacks a column of this kind that was packed under this word; None where the two do not go together."""
    encoder, of_kind = OF_CODER.get(coder), OF_KIND.get(kind)
    return encoder if encoder is not None and of_kind is not None and issubclass(encoder, of_kind) else None


def register(kind: str, reading: Reading, encoder: type[ColumnEncoder]) -> None:
    """Add a kind of column, which users declare by its name: as what its cells are read, and what turns them into codes.

    A model with such a column is read where the kind is registered too.
    """
    assert kind not in READINGS, f"there is a kind {kind!r} already"
    assert encoder.coder not in OF_CODER, f"there is a coder {encoder.coder!r} already"
    READINGS[kind], OF_KIND[kind], OF_CODER[encoder.coder] = reading, encoder, encoder
