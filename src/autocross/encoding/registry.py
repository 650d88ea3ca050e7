"""Which encoder a kind of column has, and which one a word in a bundle stands for: the only list of encoders."""

from __future__ import annotations

from autocross.encoding.column import ColumnEncoder
from autocross.encoding.discretize import Bins
from autocross.encoding.timestamps import Calendar
from autocross.encoding.vocabulary import PrivateVocabulary, Vocabulary

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
