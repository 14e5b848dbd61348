"""The arithmetic behind every figure of the bench."""

from __future__ import annotations

import math

import pytest

from bench.figures import Samples, added_buckets, bucket_growth, bucket_quantile, percentile


def test_percentile_is_the_smallest_value_that_enough_others_do_not_exceed() -> None:
    hundred = [float(value) for value in range(100, 0, -1)]
    assert [percentile(hundred, percent) for percent in (50, 99, 99.9, 100)] == [50, 99, 100, 100]
    assert percentile([7.0], 1) == 7.0


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], 50)


def test_bucket_quantile_is_the_bound_of_the_bucket_that_holds_it() -> None:
    buckets = {0.001: 90.0, 0.01: 99.0, 0.1: 100.0, math.inf: 100.0}
    assert [bucket_quantile(buckets, quantile) for quantile in (0.5, 0.99, 0.999)] == [0.001, 0.01, 0.1]


def test_an_empty_histogram_has_no_quantile() -> None:
    assert bucket_quantile({}, 0.5) is None
    assert bucket_quantile({0.1: 0.0, math.inf: 0.0}, 0.5) is None


def test_only_what_was_observed_inside_the_stretches_counts() -> None:
    first = bucket_growth({0.1: 5.0, math.inf: 9.0}, {0.1: 7.0, math.inf: 12.0})
    second = bucket_growth({0.1: 7.0, math.inf: 40.0}, {0.1: 8.0, math.inf: 41.0})
    assert added_buckets([first, second]) == {0.1: 3.0, math.inf: 4.0}


def test_a_figure_is_the_median_of_the_rounds_and_a_ratio_is_that_of_their_ratios() -> None:
    samples = Samples()
    for mine, theirs in ((10.0, 4.0), (1.0, 400.0), (12.0, 5.0)):
        samples.add("rate", "headrace", mine)
        samples.add("rate", "Apache Kafka", theirs)
    assert samples.median("rate", "headrace") == 10.0
    assert samples.ratio("rate", "headrace", "Apache Kafka") == 2.4


def test_a_missing_peer_leaves_no_ratio() -> None:
    samples = Samples()
    samples.add("rate", "headrace", 1.0)
    assert samples.median("rate", "Apache Kafka") is None
    assert samples.ratio("rate", "headrace", "Apache Kafka") is None
