"""Nothing that names the person, the host or a secret gets past the scrubber."""

import pwd

import pytest

from env import privacy


@pytest.fixture
def someone(monkeypatch):
    """A person called mallory on a host called snowwhite."""
    monkeypatch.setenv("USER", "mallory")
    monkeypatch.setenv("HOME", "/home/mallory")
    monkeypatch.setattr(privacy.socket, "gethostname", lambda: "snowwhite.example.org")
    entry = pwd.struct_passwd(("mallory", "x", 1000, 1000, "Mallory Archer,,,", "/home/mallory", "/bin/sh"))
    monkeypatch.setattr(privacy.pwd, "getpwuid", lambda _: entry)
    privacy.forget()
    yield
    privacy.forget()


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("cannot open /home/mallory/data/x.bin", "cannot open ~/data/x.bin"),
        ("on snowwhite.example.org:", "on <host>:"),
        ("SNOWWHITE said no to Mallory Archer", "<host> said no to <user>"),
        ("/home/other/secret.txt and /Users/Bob/x", "~/secret.txt and ~/x"),
        (r"C:\Users\Bob\x", r"~\x"),
        ("git@example.org:team/private.git", "<address>"),
        ("clone https://user:pw@example.org/x.git failed", "clone <url> failed"),
        ("ssh://host.example.org/x", "<url>"),
        ("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer <token>"),
        ("--token abcdefghijklmnopqrstuv --nloops 5", "--token <token> --nloops 5"),
        ("API_KEY=xyz123 python", "API_KEY=<token> python"),
        ("ghp_" + "a1" * 18, "<token>"),
        ("hf_" + "aB" * 12, "<token>"),
        ("MAC 00:1a:2b:3c:4d:5e", "MAC <mac>"),
        ("mallorys malloryx snowwhite2", "mallorys malloryx snowwhite2"),
    ],
)
def test_names_paths_and_secrets_are_taken_out(someone, text, clean):
    assert privacy.scrub(text) == clean
    assert privacy.scrub(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "python -m fastrnns.bench --rnns cudnn jit --seqLength 20",
        "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
        "tokenizers 0.19, sentencepiece, cookiecutter",
        "governor: unavailable (no cpufreq interface)",
        "lone surrogate \udcff stays",
    ],
)
def test_ordinary_text_stays_as_it_is(someone, text):
    assert privacy.scrub(text) == text


def test_an_account_called_like_a_word_of_ours_does_not_damage_the_record(monkeypatch):
    monkeypatch.setenv("USER", "cudnn")
    privacy.forget()
    assert privacy.scrub("cudnn") == "cudnn"
    privacy.forget()


def test_every_string_of_a_record_is_scrubbed_keys_included(someone):
    found = privacy.scrub_all(
        {"mallory": [{"path": "/home/mallory/x"}], "n": [1.0, 2], "t": ("snowwhite", 1)}
    )
    assert found == {"<user>": [{"path": "~/x"}], "n": [1.0, 2], "t": ["<host>", 1]}
