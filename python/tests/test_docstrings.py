"""The examples in docstrings."""

import doctest
import importlib
import pkgutil

import pytest

import streamfp

NAMES = [module.name for module in pkgutil.iter_modules(streamfp.__path__, "streamfp.") if not module.name.endswith(("_abi", ".lab"))]


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
