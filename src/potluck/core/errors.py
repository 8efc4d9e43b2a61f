"""What a user can get wrong, one class per border where it is checked."""


class PotluckError(Exception):
    """A mistake the user can mend: one sentence that says what, where, what was expected and what to do."""


class ConfigError(PotluckError):
    """A setting is unknown, of the wrong type or out of range."""


class DataError(PotluckError):
    """A data set cannot be read or does not fit what is asked of it."""


class ModelError(PotluckError):
    """A network does not fit the task, or a level of it cannot be built."""


class EngineError(PotluckError):
    """This machine does not give an engine what it needs: memory, file handles, processes."""


class RunError(PotluckError):
    """A run directory or one of its files cannot be used."""


class UpdateError(PotluckError):
    """One client's contribution is unusable; it is left out and counted, the round goes on."""
