"""A log of what each stage took: seconds, queries, residual; with progress bars on demand."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager

from tqdm.auto import tqdm

__all__ = ["StageLog"]


class StageLog:
    """Records stages and shows their progress.

    Parameters
    ----------
    verbose : int, default=0
        With 1 or more, a progress bar a stage and its result on stderr.
    name : str, default=""
        Of the estimator, in front of every line.

    Attributes
    ----------
    stages : list of dict
        ``name``, ``seconds``, ``queries`` (rows the black box was asked in it) and ``residual`` (what the stage left
        unexplained, None where it measures nothing), plus what the stage adds.
    unfinished : str or None
        Name of the stage that is running, or that was left by an error, with how far it came.
    """

    def __init__(self, verbose=0, name=""):
        self.verbose, self.name, self.stages, self.unfinished = verbose, name, [], None

    def say(self, text):
        """One line on stderr, where progress is wanted.

        Parameters
        ----------
        text : str
        """
        if self.verbose:
            print(f"[{self.name}] {text}" if self.name else text, file=sys.stderr)

    @contextmanager
    def stage(self, name, oracle=None, total=None, unit="steps"):
        """Time a block, count its queries, show its progress.

        Parameters
        ----------
        name : str
        oracle : Oracle, default=None
            Whose queries count.
        total : int, default=None
            Steps of the progress bar, where they are known.
        unit : str, default="steps"
            What is counted.

        Yields
        ------
        dict
            The stage's entry, to which the block may add; ``entry["progress"]`` takes the number of steps done so far,
            and how many there are where that turns out only then. A block that raises is not recorded.
        """
        asked = oracle.n_queries if oracle is not None else 0
        bar = tqdm(desc=name, file=sys.stderr, disable=not self.verbose, leave=False, bar_format="{desc} [{elapsed}]")
        entry = {"name": name, "seconds": 0.0, "queries": 0, "residual": None}
        start, counted = time.perf_counter(), ""

        def progress(done, of=None):
            nonlocal counted
            every = of if total is None else total
            counted = f"{done}{'' if every is None else f' of {every}'} {unit}, "
            queries = "" if oracle is None else f"{oracle.n_queries - asked} queries"
            bar.set_description_str(f"{name}: {counted}{queries}".rstrip(", "), refresh=False)
            bar.update(done - bar.n)
            self.unfinished = f"{name} ({done}{'' if every is None else f' of {every}'} done)"

        entry["progress"], self.unfinished = progress, name
        try:
            yield entry
        finally:
            bar.close()
            del entry["progress"]
            entry["seconds"] = time.perf_counter() - start
            entry["queries"] = oracle.n_queries - asked if oracle is not None else 0
        self.stages.append(entry)
        self.unfinished = None
        residual = "" if entry["residual"] is None else f", residual {entry['residual']:.2e}"
        self.say(f"{name}: {counted}{entry['seconds']:.2f} s, {entry['queries']} queries{residual}")
