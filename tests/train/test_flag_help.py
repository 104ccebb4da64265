"""Help of flags: one paragraph per option, without markup, with the meaning of None."""

import re
from dataclasses import dataclass, fields, is_dataclass, replace

import pytest

from surnn.cli.main import main
from surnn.config import GATE_CONFIGS, ModelConfig, RunConfig, TrainConfig
from surnn.tasks import TASKS, load_task
from surnn.tasks.copying import Copying
from surnn.train.flag_help import field_texts, flag, plain
from surnn.train.flags import parse


def help_text(capsys, monkeypatch, *words: str) -> str:
    """The whole help, with paragraphs on one line each: the page is wider than any of them."""
    monkeypatch.setenv("COLUMNS", "500")
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_texts_are_not_broken_and_have_no_markup(capsys, monkeypatch):
    text = help_text(capsys, monkeypatch, "train", "copying")
    assert "1: no convolution. From 10 on, its memory" in text
    assert "one: one signal. fill: signals up to the end" in text
    assert "`" not in text


def test_none_is_shown_as_what_it_stands_for(capsys, monkeypatch):
    text = help_text(capsys, monkeypatch, "train", "copying")
    assert "in a block. (default: four times the width)" in text
    assert "that a stream keeps. (default: all of them)" in text
    assert "Learning rate of the gates. (default: train.learning_rate)" in text
    assert "before training. (default: 0.1)" in text
    assert "None:" not in text


def test_another_default_is_shown_with_the_meaning_of_none(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    defaults = RunConfig(Copying(), ModelConfig(window=7, kind="transformer"))
    with pytest.raises(SystemExit):
        parse("surnn train copying", ["--help"], defaults)
    assert "that a stream keeps. None: all of them. (default: 7)" in capsys.readouterr().out


def test_flags_are_parsed_as_before():
    config, chosen = parse(
        "surnn train copying",
        ["--model.window", "5", "--model.kind", "transformer", "--task.delay", "9", "--out", "x"],
        RunConfig(Copying(delay=3)),
    )
    assert config.task == Copying(delay=9)
    assert config.model == ModelConfig("transformer", window=5)
    assert config.train == TrainConfig()
    assert str(chosen.out) == "x"
    assert replace(config.model, window=None) == ModelConfig("transformer")


PARTS = [ModelConfig, TrainConfig, *GATE_CONFIGS.values(), *map(load_task, TASKS)]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_option_has_a_text(part):
    assert is_dataclass(part)
    texts = field_texts(part)
    for field in fields(part):
        text = plain(texts[field.name])
        assert text
        assert not re.search(r"``|:\w+:`|\n", text)
        if field.default is None:
            assert "None: " in text, f"{part.__name__}.{field.name}: say what None stands for"


def test_markup_is_removed():
    text = plain('A ``"word"``,\n    ``--flag`` and :class:`~surnn.SuGRU`;  see :func:`x`.')
    assert text == "A word, --flag and surnn.SuGRU; see x."


def test_a_class_without_source_has_the_texts_of_its_docstring():
    namespace: dict = {"dataclass": dataclass}
    code = 'class Own:\n    """Own.\n\n    Args:\n        a: the first.\n    """\n    a: int = 1\n'
    exec(f"@dataclass\n{code}", namespace)
    texts = field_texts(namespace["Own"])
    assert {name: plain(text) for name, text in texts.items()} == {"a": "the first."}


def test_flag_keeps_the_type():
    assert flag(int, "A number. None: many.", 3).__origin__ is int
