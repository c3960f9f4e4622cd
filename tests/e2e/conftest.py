"""Fixtures of the end-to-end tests: the real daemon with the real model.

POLYSIL names another program to test, as one built with sanitizers.
"""

import openai
import pytest
from daemon import MODEL, POLYSIL, Daemon


def pytest_configure(config):
    config.addinivalue_line("markers", "sanitized: part of the runs under sanitizers")


def pytest_sessionstart(session):
    for path, command in [(POLYSIL, "make build"), (MODEL, "make model")]:
        if not path.is_file():
            pytest.exit(f"{path} is not there; run '{command}'", returncode=2)


@pytest.fixture
def start(tmp_path):
    """Starts daemons with arguments of one's own; they are ended after the test."""
    daemons = []

    def start_one(*arguments, **options):
        daemons.append(Daemon(tmp_path / f"daemon-{len(daemons)}", *arguments, **options))
        return daemons[-1]

    yield start_one
    for daemon in daemons:
        daemon.end()


@pytest.fixture(scope="session")
def shared_daemon(tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("daemon"))
    yield daemon
    daemon.end()


@pytest.fixture
def daemon(shared_daemon):
    """One daemon for all tests that leave it as it was; after each, nothing may be left over."""
    assert shared_daemon.alive(), shared_daemon.log()
    yield shared_daemon
    assert shared_daemon.alive(), shared_daemon.log()
    shared_daemon.wait_idle()


@pytest.fixture
def client(daemon):
    return openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0)
