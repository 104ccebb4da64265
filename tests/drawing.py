"""Figures as tests look at them."""

from surnn.analysis.figures import PLOTS, Subject, name_all


def drawn(name, *paths, data=None):
    """A figure, after the estimate of its time."""
    subjects = [Subject(path, data=data) for path in paths]
    name_all(subjects)
    plot = PLOTS[name]
    assert plot.seconds(subjects) > 0
    return plot.draw(subjects, 0)


def texts(figure):
    """All that is written in a figure."""
    found = [figure.get_suptitle()]
    found += [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        legend = axes.get_legend()
        found += [axes.get_title(), axes.get_title("left"), axes.get_xlabel(), axes.get_ylabel()]
        found += [text.get_text() for text in (legend.get_texts() if legend else [])]
        found += [text.get_text() for text in axes.texts]
    return "\n".join(found)
