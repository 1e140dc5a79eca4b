"""types_test.py - the stubs: their parameters are those of the functions, and a program that uses all of them is sound.

SPDX-License-Identifier: Apache-2.0
"""
import ast
import importlib
import importlib.util
import inspect
import os
import pathlib
import subprocess
import sys

import pytest

import fiber

FOLDER = pathlib.Path(fiber.__file__).parent
STUBS = sorted(p.stem for p in FOLDER.glob("*.pyi") if p.stem != "dummy")
INNER = {"Connection", "Handle", "Ref", "AsyncResult", "IMapIterator", "Listener"}  # made by functions, not by programs


def parameters_in(function):
    a = function.args
    names = [arg.arg for arg in (*a.posonlyargs, *a.args)]
    return [*names, *(["*"] if a.vararg else []), *(arg.arg for arg in a.kwonlyargs), *(["**"] if a.kwarg else [])]


def parameters_of(function):
    kinds = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [kinds.get(p.kind, p.name) for p in inspect.signature(function).parameters.values()]


def functions_in(tree, owner, where=""):
    """Yields the name of each function in a stub, its node, and what it is in the package."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            if hasattr(owner, node.name):
                yield from functions_in(node, getattr(owner, node.name), where + node.name + ".")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            marks = {mark.id for mark in node.decorator_list if isinstance(mark, ast.Name)}
            if not marks & {"property", "overload", "classmethod"}:
                yield where + node.name, node, getattr(owner, node.name)


@pytest.mark.parametrize("module", STUBS)
def test_parameters_are_those_of_the_functions(module):
    there = fiber if module == "__init__" else importlib.import_module("fiber." + module)
    wrong = {}
    for name, node, function in functions_in(ast.parse((FOLDER / (module + ".pyi")).read_text()), there):
        owner, _, method = name.rpartition(".")
        if method == "__exit__" or method == "__init__" and owner in INNER or owner == "MaybeEncodingError":
            continue
        said, real = parameters_in(node), parameters_of(function)
        if not {"*", "**"} & set(real[:1]) and said != [p for p in real if "." in name or p != "self"]:
            wrong[name] = said, real
    assert wrong == {}


@pytest.mark.parametrize("module", STUBS)
def test_classes_have_the_bases_that_their_stubs_name(module):
    there = fiber if module == "__init__" else importlib.import_module("fiber." + module)
    classes = [node for node in ast.parse((FOLDER / (module + ".pyi")).read_text()).body if isinstance(node, ast.ClassDef)]
    wrong = [(node.name, base.id) for node in classes for base in node.bases
             if isinstance(base, ast.Name) and base.id in {other.name for other in classes}
             and not issubclass(getattr(there, node.name), getattr(there, base.id))]
    assert wrong == []


def test_a_program_that_uses_all_is_sound(tmp_path):
    if not importlib.util.find_spec("mypy"):
        pytest.skip("mypy is not installed")
    program = pathlib.Path(__file__).parent / "types" / "uses.py"
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)],
                          env={**os.environ, "MYPYPATH": str(FOLDER.parent)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
