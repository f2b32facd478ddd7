"""In place of triton, which is 900 MB: SGLang imports it everywhere and starts no kernel of it on a CPU. A kernel that is
started raises."""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "3.8.0"


class _Anything:
    """Answers every attribute, call and index with something like itself; as a decorator it returns the function."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "active":
            raise RuntimeError("there is no driver: triton is a stand-in")
        return _Anything(f"{self._name}.{name}")

    def __call__(self, *given, **named):
        return given[0] if len(given) == 1 and not named and callable(given[0]) else _Anything(self._name)

    def __getitem__(self, key):
        return self

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases):
        return ()

    def __iter__(self):
        return iter(())


class _Kernel:
    def __init__(self, function):
        self.fn = function
        self.__name__ = getattr(function, "__name__", "kernel")
        self.__doc__ = None
        self.__module__ = getattr(function, "__module__", None)

    def _started(self, *given, **named):
        raise RuntimeError(f"the kernel {self.__name__} was started, but triton is a stand-in")

    __call__ = __getitem__ = _started

    def __getattr__(self, name):
        if name.startswith("__") or name == "fn":
            raise AttributeError(name)
        return _Anything(name)


def jit(function=None, **named):
    return _Kernel if function is None else _Kernel(function)


def autotune(*given, **named):
    return lambda function: function


heuristics = autotune


class Config:
    def __init__(self, kwargs=None, *given, **named):
        self.kwargs = kwargs or {}
        self.__dict__.update(named)


def cdiv(a, b):
    return -(-a // b)


def next_power_of_2(n):
    return 1 << max(0, (n - 1).bit_length())


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Every module below triton exists."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith("triton.") else None

    def create_module(self, spec):
        module = _Module(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        if module.__name__ == "triton.language":
            module.constexpr = type(
                "constexpr",
                (),
                {
                    "__init__": lambda self, value=None: setattr(self, "value", value),
                    "__class_getitem__": classmethod(lambda cls, item: cls),
                },
            )
            module.dtype = type("dtype", (), {})
        if module.__name__ == "triton.runtime.jit":
            module.JITFunction = _Kernel


sys.meta_path.insert(0, _Finder())
importlib.import_module("triton.language")


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Anything(f"triton.{name}")
