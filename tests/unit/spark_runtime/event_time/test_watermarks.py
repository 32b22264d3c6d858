"""One watermark for each source partition: who holds it back, who does not."""

from spark_runtime.event_time.partitions import Partition, Unread, after, stream_of
from spark_runtime.event_time.watermarks import Follows, Held, WatermarkRule

RULE = WatermarkRule(10, idle_after_s={"a": 60})
A, B = Partition("a", 1_000, "a:1", 0), Partition("b", 400, "b:1", 0)


def test_the_slowest_partition_holds_the_watermark_back() -> None:
    assert RULE.watermark({"a": A, "b": B}, {}, 0) == Held(390, "b")


def test_one_partition_is_held_back_by_nobody() -> None:
    assert RULE.watermark({"a": A}, {}, 0) == Held(990)


def test_before_any_event_of_a_partition_the_watermark_is_not_known() -> None:
    assert RULE.watermark({"a": A, "b": Partition("b")}, {}, 0) == Held(None, "b")


def test_the_fastest_partition_decides_where_the_pipeline_says_so() -> None:
    fastest = WatermarkRule(10, Follows.FASTEST)
    assert fastest.watermark({"a": A, "b": Partition("b")}, {"b": Unread(5)}, 0) == Held(990)
    assert fastest.watermark({"b": Partition("b")}, {}, 0) == Held(None)


def test_a_silent_partition_holds_nothing_back_until_it_gives_an_event() -> None:
    slow = Partition("a", 100, "a:1", 0)
    fast = Partition("b", 400, "b:1", 0)
    assert RULE.watermark({"a": slow, "b": fast}, {}, 59.9) == Held(90, "a")
    assert RULE.watermark({"a": slow, "b": fast}, {}, 60) == Held(390)
    woken = after({"a": slow, "b": fast}, {"a": (120, "a:2")}, 61)
    assert RULE.watermark(woken, {}, 61) == Held(110, "a")


def test_a_stream_without_idle_after_is_never_idle() -> None:
    assert RULE.watermark({"a": A, "b": B}, {}, 1e9) == Held(390, "b")


def test_when_all_are_silent_nothing_is_behind() -> None:
    both = {"a[x]": Partition("a", 100), "a[y]": Partition("a", 400)}
    assert RULE.watermark(both, {}, 60) == Held(390)


def test_what_is_not_read_holds_back_even_if_its_partition_was_silent() -> None:
    # An event of 50 may be followed by one of 41: at a watermark of 40 neither is late.
    assert RULE.watermark({"a": A, "b": B}, {"a": Unread(50)}, 1e9) == Held(40, "a")
    assert RULE.watermark({"a": A}, {"a": Unread(None)}, 0) == Held(None, "a")
    assert WatermarkRule(0).watermark({"a": A}, {"a": Unread(50)}, 0) == Held(49, "a")


def test_a_partition_that_was_given_up_holds_nothing_back() -> None:
    assert RULE.watermark({"a": A, "b": B}, {"b": Unread(5)}, 0, {"b"}) == Held(990)


def test_the_latest_event_of_a_partition_never_goes_back() -> None:
    found = after({"a": A}, {"a": (900, "a:9"), "b[7]": (5, "b:1")}, 3)
    assert found == {"a": Partition("a", 1_000, "a:1", 3), "b[7]": Partition("b", 5, "b:1", 3)}


def test_a_partition_is_named_after_its_stream() -> None:
    assert (stream_of("s[x/y.csv]"), stream_of("s")) == ("s", "s")


def test_a_source_stands_for_its_partitions_until_one_is_known() -> None:
    assert set(after({"a": Partition("a")}, {"a[x]": (5, "")}, 0)) == {"a[x]"}


S = 1_000_000
ENDS = WatermarkRule(10 * S, end_waits_after_us=30 * S)
QUIET = {"a": Partition("a", 500 * S, "a:1", 100), "b": Partition("b", 420 * S, "b:1", 130)}


def test_by_the_wall_clock_event_time_goes_on_in_steps_once_all_partitions_are_silent() -> None:
    seconds = [ENDS.by_clock(QUIET, 130 + silent_s, 0) for silent_s in (0, 29, 30, 59, 60, 605)]
    assert seconds == [None, None, 520 * S, 520 * S, 550 * S, 1_090 * S]


def test_a_lateness_longer_than_the_steps_is_waited_for_behind_the_latest_event_only() -> None:
    rule = WatermarkRule(100 * S, end_waits_after_us=30 * S)
    assert [rule.by_clock(QUIET, 130 + silent_s, 0) for silent_s in (30, 90, 120)] == [
        500 * S,
        500 * S,
        520 * S,
    ]


def test_time_in_which_nobody_looked_for_events_does_not_count() -> None:
    assert ENDS.by_clock(QUIET, 1_029, 1_000) is None
    assert ENDS.by_clock(QUIET, 1_030, 1_000) == 520 * S


def test_without_an_event_or_without_the_setting_the_wall_clock_shows_nothing() -> None:
    assert ENDS.by_clock({"a": Partition("a", None, "", 0)}, 1_000, 0) is None
    assert WatermarkRule(10).by_clock(QUIET, 1_000, 0) is None


def test_what_the_wall_clock_shows_is_reached_in_the_milliseconds_of_spark() -> None:
    def of_spark(watermark_us: int, lateness_us: int) -> int:
        return (watermark_us + lateness_us) // 1_000 - -(-lateness_us // 1_000)

    for lateness_us in (0, 1, 999, 1_500, 2_000):
        rule = WatermarkRule(lateness_us, end_waits_after_us=3_000)
        found = rule.by_clock({"a": Partition("a", 1_234_567, "", 0)}, 0.003, 0)
        assert found is not None
        assert of_spark(found, lateness_us) * 1_000 >= 1_234_567 + 3_000 - lateness_us
        assert found < 1_234_567 + 3_000 - lateness_us + 2_000
