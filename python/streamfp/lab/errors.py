class LabError(Exception):
    """A wrong command line, a damaged file, or a failed run: one sentence for the user, and an exit status."""

    def __init__(self, message: str, status: int = 2):
        super().__init__(message)
        self.status = status
