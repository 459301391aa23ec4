"""What a text is about, and whom: topics and subject from the logits of its windows.

This file owns the choice among windows and the calibration of the answer. It knows no network.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lily.gate.findings import Subject, TopicFinding
from lily.gate.neural.settings import Settings

LEAST = 0.1  # topics less likely than this are not worth a word
DOUBT = 0.35  # of the pair, where its threshold is at 0.5: from here on it may be somebody's
_EDGE = 1e-6  # probabilities are kept this far from 0 and 1, where a logit is infinite


def topics(logits: NDArray[np.float32], settings: Settings) -> list[TopicFinding]:
    """Topics that the text may have, from logits [windows, topics + subjects].

    Each topic speaks from the window in which topic and personal subject together are most likely:
    one private paragraph makes a text private. Whether that pair counts is what the thresholds of
    the model are for; where it does, both confidences are at least 0.5, and where it does not, the
    personal subject's is below 0.5. A topic is said to be general or fiction only where that is
    hardly in doubt: below `DOUBT` for the pair.
    """
    wide = logits.astype(np.float64)
    count = len(settings.topics)
    likely = 1 / (1 + np.exp(-wide[:, :count] / settings.topic_temperature))
    scaled = wide[:, count:] / settings.subject_temperature
    about = np.exp(scaled - scaled.max(1, keepdims=True))
    about /= about.sum(1, keepdims=True)
    personal = settings.subjects.index(Subject.PERSONAL)
    windows = (likely * about[:, personal, None]).argmax(0)
    found = []
    for index, window in enumerate(windows.tolist()):
        if likely[window, index] >= LEAST:
            found.append(_finding(float(likely[window, index]), about[window], index, settings))
    return found


def _finding(
    likely: float, about: NDArray[np.float64], index: int, settings: Settings
) -> TopicFinding:
    topic, threshold = settings.topics[index], settings.topic_thresholds[index]
    personal = float(about[settings.subjects.index(Subject.PERSONAL)])
    # 0.5 exactly where the product of both is the threshold.
    joint = _calibrated(likely * personal, threshold)
    if joint >= 0.5:
        return TopicFinding(topic, Subject.PERSONAL, max(likely, joint), max(personal, joint))
    best = int(about.argmax())
    if joint >= DOUBT or settings.subjects[best] is Subject.PERSONAL:
        return TopicFinding(topic, Subject.PERSONAL, max(likely, joint), joint)
    return TopicFinding(topic, settings.subjects[best], likely, float(about[best]))


def _calibrated(probability: float, threshold: float) -> float:
    def logit(value: float) -> float:
        inner = min(max(value, _EDGE), 1 - _EDGE)
        return math.log(inner / (1 - inner))

    return 1 / (1 + math.exp(logit(threshold) - logit(probability)))
