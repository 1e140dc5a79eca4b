"""names_test.py - what the package is made of: every name is there, has a type, and no name is left out.

SPDX-License-Identifier: Apache-2.0
"""
import ast
import importlib
import importlib.util
import pathlib

import pytest

import fiber
from fiber import _fiber

FOLDER = pathlib.Path(fiber.__file__).parent


def names_in(stub):
    tree = ast.parse((FOLDER / stub).read_text())
    names = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.asname}
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
    return names


def test_the_version_is_the_library_s():
    assert fiber.__version__ == _fiber.version()


def test_a_free_threaded_interpreter_is_refused(program):
    ran = program("""
        import sys

        sys.abiflags = "t"
        try:
            import fiber
        except ImportError as e:
            print(e)
    """)
    assert ran.out.startswith("fiber needs an interpreter with the GIL, and this one is free-threaded"), ran


@pytest.mark.parametrize("name", fiber.__all__)
def test_a_name_is_there(name):
    module = fiber._NAMES.get(name)
    if module and not importlib.util.find_spec("fiber." + module):
        pytest.skip("fiber.%s is missing" % module)
    assert getattr(fiber, name) is getattr(fiber, name)


def test_programs_derive_from_the_classes_of_contexts():
    class Context(fiber.context.SpawnContext):
        class Process(fiber.context.SpawnProcess):
            pass
    assert isinstance(Context().Process(target=print), fiber.Process)
    assert isinstance(fiber.get_context("spawn"), fiber.context.SpawnContext)


def test_names_have_types():
    assert set(fiber.__all__) - names_in("__init__.pyi") == set()
    assert set(fiber._MODULES) - names_in("__init__.pyi") == set()


def test_unknown_names():
    with pytest.raises(AttributeError, match="nothing"):
        fiber.nothing
    assert "Process" in dir(fiber) and "pool" in dir(fiber)


@pytest.mark.parametrize("stub", [p.name for p in FOLDER.glob("*.pyi") if p.name != "__init__.pyi"])
def test_a_stub_says_what_is_there(stub):
    module = importlib.import_module("fiber." + stub.removesuffix(".pyi"))
    assert {name for name in names_in(stub) if not hasattr(module, name)} == set()


def test_the_extension_says_what_it_has():
    parts = [_fiber, *(kind for kind in vars(_fiber).values() if isinstance(kind, type))]
    names = {(part.__name__, name) for part in parts for name in vars(part) if not name.startswith("_")}
    assert {name for part, name in names if not getattr(getattr(_fiber, part, _fiber), name).__doc__} == set()
