import pytest

pytest.importorskip("vllm", reason="these tests run in the environment of vLLM: scripts/check_engines.sh")
from engine import Engine, prompt  # noqa: E402

PROMPTS = [prompt(400, 1), prompt(300, 2), prompt(97, 3), prompt(20, 4)]


@pytest.fixture(scope="session")
def reference():
    """What an engine without Cairn generates for PROMPTS."""
    with Engine() as engine:
        return engine.generate(PROMPTS)
