"""Reasons for a score, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from autocross.checks import shown
from autocross.errors import OptionError
from autocross.producer.printing import printable, shortened

By = Literal["column", "term", "field"]
TOP = 5  # reasons that are printed
MISSING = "(missing)"


@dataclass(frozen=True)
class Reason:
    """What a column, a term or a field adds to the log-odds of a row, compared with the mean of the training rows."""

    name: str
    value: str
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """Why a row scores as it does: all reasons add up to its log-odds minus the mean log-odds of the training rows.

    ``reasons`` has all of them, the strongest first; printing shows ``top``. ``classes`` are the two labels, the positive one last.
    """

    probability: float
    log_odds: float
    mean_log_odds: float
    reasons: tuple[Reason, ...]
    classes: tuple[Any, Any] = (0, 1)
    top: int = field(default=TOP, compare=False)

    def strongest(self, n: int = TOP) -> list[Reason]:
        """The reasons that move the score most, up or down."""
        return list(self.reasons[:n])

    def adverse(self, n: int = 4, favourable: Any = None, texts: Mapping[str, str] | None = None) -> list[str]:
        """The reasons that cost most, in words for a letter: what stood most against the favourable label, which is the negative
        one unless ``favourable`` says otherwise.

        ``texts`` has a text for each column that needs one; ``{value}`` in it stands for the value of the row.
        """
        check_count("n", n)
        if not all(isinstance(text, str) for text in (texts or {}).values()):
            raise OptionError(
                "Option texts holds something that is no text. Give a text for each column, as in {'age': 'Your age'}."
            )
        sign = 1.0 if self.is_negative(favourable) else -1.0
        costly = sorted((one for one in self.reasons if sign * one.contribution > 0), key=lambda one: -sign * one.contribution)
        return [in_a_letter(reason, texts or {}) for reason in costly[:n]]

    def is_negative(self, favourable: Any) -> bool:
        """Whether the favourable label is the negative one."""
        return favours_negative(self.classes, favourable)

    def to_dict(self) -> dict[str, Any]:
        """All facts, in a form that JSON can hold."""
        facts = asdict(self)
        return {name: facts[name] for name in ("probability", "log_odds", "mean_log_odds", "reasons")}

    def __str__(self) -> str:
        lines = [f"probability {self.probability:.4f}   log-odds {self.log_odds:+.4f}   on average {self.mean_log_odds:+.4f}"]
        for reason in self.reasons[: self.top]:
            lines.append(printable(f"{reason.contribution:+9.4f}  {reason.name} = {shortened(reason.value)}"))
        if rest := self.reasons[self.top :]:
            total = sum(reason.contribution for reason in rest)
            lines.append(f"{total:+9.4f}  {len(rest):,} other {'reason' if len(rest) == 1 else 'reasons'} together")
        return "\n".join(lines)


def favours_negative(classes: tuple[Any, Any], favourable: Any) -> bool:
    """Whether the favourable label is the negative one, the first of the two. Nobody has to name it: None says that it is."""
    if favourable is None:
        return True
    for label, is_negative in zip(classes, (True, False), strict=True):
        if favourable == label or str(favourable) == str(label):
            return is_negative
    labels = " and ".join(shown(label) for label in classes)
    raise OptionError(f"favourable={shown(favourable)} is no label of the model. Its labels are {labels}; give one of them.")


def in_a_letter(reason: Reason, texts: Mapping[str, str]) -> str:
    """A reason as a sentence for the person whom it concerns."""
    if reason.name in texts:
        return texts[reason.name].replace("{value}", reason.value)
    return f"{reason.name} is not known" if reason.value == MISSING else f"{reason.name} is {reason.value}"


def checked(top: Any, by: Any) -> None:
    """Refuse what an explanation cannot be asked for."""
    if by not in ("column", "term", "field"):
        raise OptionError(f"by={shown(by)} is unknown. Choose one of: column, term, field.")
    check_count("top", top)


def check_count(name: str, value: Any) -> None:
    """Refuse what is no number of reasons."""
    if not hasattr(value, "__index__") or isinstance(value, bool) or value < 0:
        raise OptionError(f"{name}={shown(value)} is no number of reasons. Give a whole number of 0 or more.")
