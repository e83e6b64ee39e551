import threading

import joblib
import pytest

import skident
from skident.budget import (
    MemoryLimitError,
    OutOfBudgetError,
    chunk_bytes,
    chunks,
    memory_allows,
    require_memory,
    rows_at_once,
    with_budget,
)
from skident.optim import in_order

MB = 10**6


@pytest.mark.parametrize(
    ("given", "n_bytes"),
    [
        (5 * MB, 5 * MB),
        (5e6, 5 * MB),
        ("5MB", 5 * MB),
        (" 5 mb ", 5 * MB),
        ("1.5GB", 1500 * MB),
        ("2GiB", 2**31),
        ("2048K", 2048 * 10**3),
        ("3000000", 3 * MB),
    ],
)
def test_sizes_are_bytes_or_strings(given, n_bytes):
    with skident.config_context(max_memory=given):
        assert skident.get_config() == {"max_memory": n_bytes}


@pytest.mark.parametrize("given", ["", "much", "5 PB", "-5MB", 0, 1000, float("inf"), float("nan"), True, [1]])
def test_other_sizes_are_refused(given):
    with pytest.raises(ValueError, match="max_memory must be a size of at least 1 MiB"):
        skident.set_config(max_memory=given)
    with pytest.raises(ValueError, match="such as '500MB'"), skident.config_context(max_memory=given):
        pass


def test_the_default_is_a_quarter_of_the_memory_and_two_gibibytes_at_most(monkeypatch):
    from skident.budget import config

    for machine, container, expected in [
        (2**40, None, 2**31),
        (2**32, None, 2**30),
        (2**40, 2**32, 2**30),
        (None,) * 2 + (2**31,),
    ]:
        monkeypatch.setattr(config, "_machine_bytes", lambda machine=machine: machine)
        monkeypatch.setattr(config, "_container_bytes", lambda container=container: container)
        assert config._default_limit.__wrapped__() == expected
    assert 2**20 <= skident.get_config()["max_memory"] <= 2**31


def fail_within():
    with skident.config_context(max_memory="5MB"):
        with skident.config_context():
            assert skident.get_config()["max_memory"] == 5 * MB
        skident.set_config(max_memory="6MB")
        skident.set_config()
        assert skident.get_config()["max_memory"] == 6 * MB
        raise KeyError("of the block")


def test_blocks_nest_and_end_with_an_error():
    before = skident.get_config()
    with pytest.raises(KeyError, match="of the block"):
        fail_within()
    assert skident.get_config() == before


def test_threads_have_their_own_configuration():
    seen = []

    def look():
        seen.append(skident.get_config()["max_memory"])

    with skident.config_context(max_memory="5MB"):
        for target in (look, with_budget(look)):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    assert seen == [skident.get_config()["max_memory"], 5 * MB]


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_workers_have_that_of_their_caller(backend):
    with skident.config_context(max_memory="5MB"), joblib.parallel_config(backend=backend):
        found = list(in_order(lambda _: skident.get_config()["max_memory"], [(i,) for i in range(3)], 2))
    assert found == [5 * MB] * 3


def test_chunks():
    with skident.config_context(max_memory=2**24):
        assert chunk_bytes() == 2**20
        assert rows_at_once(2**18) == 4 and rows_at_once(2**18, at_most=3) == 3 and rows_at_once(2**30) == 1
        assert chunks(9, 2**18) == [slice(0, 4), slice(4, 8), slice(8, 9)]
        assert chunks(0, 8) == [slice(0, 0)]


def test_the_error_names_the_bytes_and_a_call_that_suffices():
    with skident.config_context(max_memory="100MB"):
        require_memory(50 * MB, "a matrix")
        assert memory_allows(50 * MB) and not memory_allows(50 * MB + 1)
        with pytest.raises(OutOfBudgetError, match="does not allow a matrix: 123456790 bytes are needed") as caught:
            require_memory(61_728_395, "a matrix")
    assert isinstance(caught.value, MemoryLimitError) and caught.value.needed == 123_456_790
    call = str(caught.value).split("`")[1].removeprefix("with ").removesuffix(":")
    with eval(call, {"skident": skident}):
        require_memory(61_728_395, "a matrix")
