"""What can go wrong for a user, in a few classes.

All of them are ``ValueError`` too, because that is what scikit-learn's callers catch.
"""


class AutoCrossError(ValueError):
    """Something the user can put right; the message says how."""


class OptionError(AutoCrossError):
    """An option has a value it cannot take."""


class TableError(AutoCrossError):
    """The table as a whole cannot be used."""


class ColumnError(AutoCrossError):
    """One column cannot be used as its schema says."""


class LabelError(AutoCrossError):
    """The target is not a yes/no column."""


class FileError(AutoCrossError):
    """A file cannot be read or written."""


class BundleError(FileError):
    """A saved model is damaged, newer than this version, or not one of ours."""


class EngineError(AutoCrossError):
    """The machines that should do the work cannot."""


class MissingLibraryError(AutoCrossError, ImportError):
    """A library that only some need is not installed."""


class TableWarning(UserWarning):
    """Something in the table was left out or looks wrong; the fit goes on."""


class FileWarning(UserWarning):
    """The journal, the progress display or a checkpoint can no longer be written; the fit goes on."""


class OptionWarning(UserWarning):
    """An option has a value with which a promise may not be kept; the work goes on."""
