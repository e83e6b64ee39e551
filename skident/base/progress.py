"""A log of stages: seconds, queries and residual of each, with progress bars on demand."""

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

_SOON = 5.0  # seconds left below which no estimate is displayed
_MINUTES = 90.0  # seconds left from which on it is in minutes


@dataclass(frozen=True)
class Stage:
    """A stage of a fit that ended.

    Attributes
    ----------
    name : str
    seconds : float
        Wall time.
    queries : int
        To the black box.
    residual : float or None
        None if the stage measures none.
    details : dict
        What the stage adds, such as why it ``failed``.
    """

    name: str
    seconds: float
    queries: int
    residual: float | None = None
    details: dict = field(default_factory=dict)


class StageLog:
    """Records stages and displays their progress: a bar per stage and its result on stderr if `verbose` is 1 or more.

    `stages` is a list of `Stage`. `unfinished` names the stage that is running, or that an error ended, with its
    progress. `name`, that of the estimator, starts every line.
    """

    def __init__(self, verbose=0, name=""):
        self.verbose, self.name, self.stages, self.unfinished = verbose, name, [], None

    def say(self, text):
        """Print a line on stderr if `verbose`."""
        if self.verbose:
            print(f"[{self.name}] {text}" if self.name else text, file=sys.stderr)

    @contextmanager
    def stage(self, name, oracle=None, total=None, unit="steps"):
        """Time a block, count the queries of an oracle, display its progress.

        The block may set the ``residual`` and details of the entry that it gets. ``entry["progress"]`` takes the number
        of steps done so far, and the total number if `total` is unknown at the start; `unit` names the steps. With a
        total, the bar estimates the seconds left from those of the steps done. A block that raises is not recorded.
        """
        n_before = oracle.n_queries if oracle is not None else 0
        bar = _bar(name) if self.verbose else None
        entry = {"residual": None}
        start, counted = time.perf_counter(), ""

        def progress(done, of=None):
            nonlocal counted
            every = of if total is None else total
            counted = f"{done}{'' if every is None else f' of {every}'} {unit}, "
            if bar is not None:
                queries = "" if oracle is None else f"{oracle.n_queries - n_before} queries"
                left = _time_left(time.perf_counter() - start, done, every)
                bar.set_description_str(f"{name}: {counted}{queries}".rstrip(", ") + left, refresh=False)
                bar.update(done - bar.n)
            self.unfinished = f"{name} ({done}{'' if every is None else f' of {every}'} done)"

        entry["progress"], self.unfinished = progress, name
        try:
            yield entry
        finally:
            if bar is not None:
                bar.close()
        seconds, queries = time.perf_counter() - start, oracle.n_queries - n_before if oracle is not None else 0
        residual = entry["residual"]
        details = {key: value for key, value in entry.items() if key not in ("residual", "progress")}
        self.stages.append(Stage(name, seconds, queries, residual, details))
        self.unfinished = None
        text = "" if residual is None else f", residual {residual:.2e}"
        self.say(f"{name}: {counted}{seconds:.2f} s, {queries} queries{text}")


def _time_left(elapsed, done, total):
    """The time left if further steps take as long as those done; empty if it is short or unknown."""
    left = elapsed * (total - done) / done if total and done else 0.0
    if left > _MINUTES:
        return f", about {left / 60:.0f} min left"
    return f", about {left:.0f} s left" if left > _SOON else ""


def _bar(name):
    """A line of text on stderr that is written over. tqdm's widgets warn in notebooks without ipywidgets."""
    from tqdm import tqdm

    return tqdm(desc=name, file=sys.stderr, leave=False, bar_format="{desc} [{elapsed}]")
