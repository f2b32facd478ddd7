#!/usr/bin/env python3
"""make_stubs.py TORCH_LIB FOLDER: empty CUDA libraries, so that PyPI's torch can be imported without the 6 GB of the real ones.

torch's own libraries say which symbols, of which version, they want of each; a stub has all of them as functions that fail.
libcudart is not among them: the real one is small.
"""

import collections
import subprocess
import sys
import tempfile
from pathlib import Path

# The library, the version of its symbols if that is not its name, and how names of symbols without a version begin.
LIBRARIES = {
    "libcublas.so.13": ("", "cublas"),
    "libcublasLt.so.13": ("", "cublasLt"),
    "libcudnn.so.9": ("", "cudnn"),
    "libcufft.so.12": ("", "cufft"),
    "libcufile.so.0": ("cuFile", "cuFile"),
    "libcupti.so.13": ("", "cupti"),
    "libcurand.so.10": ("", "curand"),
    "libcusolver.so.12": ("", "cusolver"),
    "libcusparse.so.12": ("", "cusparse"),
    "libcusparseLt.so.0": ("", "cusparseLt"),
    "libnccl.so.2": ("", "nccl"),
    "libnvrtc.so.13": ("", "nvrtc"),
    "libnvshmem_host.so.3": ("NVSHMEM", "nvshmem"),
}


def wanted_symbols(folder: Path) -> tuple[dict[str, set[str]], set[str]]:
    """Undefined symbols of all libraries of the folder: by version, and without one."""
    versioned: dict[str, set[str]] = collections.defaultdict(set)
    plain: set[str] = set()
    defined: set[str] = set()
    for library in folder.glob("*.so*"):
        listed = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            *_, kind, symbol = line.split()
            name, _, version = symbol.partition("@")
            if kind not in ("U", "w"):
                defined.add(name)
            elif version:
                versioned[version.lstrip("@")].add(name)
            else:
                plain.add(name)
    return versioned, plain - defined


def main() -> None:
    torch, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    versioned, plain = wanted_symbols(torch)
    for library, (version, prefix) in LIBRARIES.items():
        version = version or library
        names = versioned.get(version, set())
        functions = names | {name for name in plain if name.startswith(prefix)}
        source = "".join(f"int {name}(void) {{ return 1; }}\n" for name in sorted(functions))
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-o", folder / library, f"-Wl,-soname,{library}"]
        command += ["-x", "c", "-"]
        with tempfile.NamedTemporaryFile("w", suffix=".map") as script:
            if names:
                script.write(f"{version} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};\n")
                script.flush()
                command.append(f"-Wl,--version-script={script.name}")
            subprocess.run(command, input=source, text=True, check=True)


if __name__ == "__main__":
    main()
